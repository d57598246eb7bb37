"""Bad bytes: bodies that are not JSON, not UTF-8, too large or not what they claim.

The answer is a problem document, and nothing is appended.
"""

import gzip
from collections.abc import Iterator

import pytest

from tests.http.calls import Gateway, good, problem

INVALID_REQUEST = ("INVALID_REQUEST", 42)
JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024


@pytest.fixture
def topic(gateway: Gateway, name: str) -> Iterator[str]:
    """A topic that holds one record, and only that after the test."""
    gateway.produce(name, "first")
    yield name
    assert gateway.log_ends(name) == [1]
    assert gateway.produce(name, "second") == [1]


def record_of(value: bytes) -> bytes:
    return b'{"records":[{"value":%b}]}' % value


BODIES = {
    "malformed JSON": b'{"records":[{"value":1}',
    "nothing": b"",
    "a byte order mark": b"\xef\xbb\xbf" + record_of(b"1"),
    "NaN": record_of(b"NaN"),
    "a control character in a string": record_of(b'"\x01"'),
    "a lone high surrogate": record_of(b'"\\ud800"'),
    "a lone surrogate in a key": b'{"records":[{"value":1,"key":"\\ud83d."}]}',
    "a lone surrogate in a member of a value": record_of(b'{"\\udfff":1}'),
    "invalid UTF-8": record_of(b'"\xff"'),
    "UTF-8 of a surrogate": record_of(b'"\xed\xa0\x80"'),
    "UTF-16": '{"records":[{"value":1}]}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_not_json_is_400(gateway: Gateway, topic: str, body: bytes) -> None:
    response = gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers=JSON)
    assert problem(response, 400, *INVALID_REQUEST)["definite"]


DEEP = {
    "100,000 nested arrays": record_of(b"[" * 100_000 + b"]" * 100_000),
    "100,000 arrays in an unknown field": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
def test_a_body_that_nests_too_deeply_is_422(gateway: Gateway, topic: str, body: bytes) -> None:
    """As a value that nests deeper than `max_value_depth`."""
    response = gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers=JSON)
    problem(response, 422, *INVALID_REQUEST)


def test_without_a_body_the_answer_says_what_to_send(gateway: Gateway, topic: str) -> None:
    """Whether the length is 0 or there is none, with or without a content type."""
    for headers in ({}, JSON, {"Content-Type": "text/plain"}):
        response = gateway.http.post(f"/v1/topics/{topic}/records", headers=headers)
        detail = problem(response, 400, *INVALID_REQUEST)["detail"]
        assert detail == "there is no body; send a JSON object with `records`"


@pytest.mark.parametrize("size", [100, 65_535, 65_536, 200_000])
def test_a_byte_that_is_not_utf8_is_named_by_its_position(gateway: Gateway, topic: str, size: int) -> None:
    """Behind characters of three bytes, which stand across the slices that a large body is looked at in."""
    body = record_of(b'"%b\xff"' % ("€" * (size // 3)).encode())
    response = gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers=JSON)
    detail = f"the body is not UTF-8 at byte {len(body) - 5}"
    assert problem(response, 400, *INVALID_REQUEST)["detail"] == detail


def test_of_duplicate_members_the_last_one_counts(gateway: Gateway, name: str) -> None:
    """The last one counts, as in nearly every JSON parser; inside a value, which is kept byte for byte, both stay."""
    body = b'{"records":[{"value":"lost"}],"records":[{"value":{"a":1,"a":2},"key":"x","key":"y"}]}'
    response = gateway.http.post(f"/v1/topics/{name}/records", content=body, headers=JSON)
    assert response.json() == {"records": [{"partition": 0, "offset": 0}]}
    raw = gateway.http.get(f"/v1/topics/{name}/partitions/0/records").content
    assert b'"key":"y","value":{"a":1,"a":2}}' in raw
    assert b"lost" not in raw


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_another_media_type_is_415(gateway: Gateway, topic: str, media_type: str) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    response = gateway.http.post(f"/v1/topics/{topic}/records", content=record_of(b"1"), headers=headers)
    problem(response, 415, *INVALID_REQUEST)


@pytest.mark.parametrize("path", ["records", "records/raw"])
def test_a_body_with_a_content_encoding_is_415(gateway: Gateway, name: str, path: str) -> None:
    """Otherwise a compressed value would be stored without the name of its encoding."""
    gateway.create_topic(name)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    packed = gzip.compress(b'{"records":[{"value":1}]}')
    response = gateway.http.post(f"/v1/topics/{name}/{path}", content=packed, headers=headers)
    assert "Content-Encoding" in problem(response, 415, "INVALID_REQUEST", 42)["detail"]
    assert gateway.log_ends(name) == [0]
    for identity in ("identity", "Identity"):
        plain = {"Content-Type": "application/json", "Content-Encoding": identity}
        good(gateway.http.post(f"/v1/topics/{name}/{path}", content=b'{"records":[{"value":1}]}', headers=plain))


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"])
def test_parameters_and_suffixes_of_json_are_json(gateway: Gateway, name: str, media_type: str) -> None:
    response = gateway.http.post(
        f"/v1/topics/{name}/records", content=record_of(b"1"), headers={"Content-Type": media_type}
    )
    assert response.status_code == 200, response.text


def test_a_record_above_the_topics_limit_is_413_with_the_limit(gateway: Gateway, topic: str) -> None:
    limit = int(gateway.describe_topic(topic)["config"]["max.message.bytes"])
    records = [{"value": "small"}, {"value": "x" * limit}]
    response = gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records})
    document = problem(response, 413, "MESSAGE_TOO_LARGE", 10)
    assert document["limit"] == limit
    assert document["errors"][0]["pointer"] == "/records/1"
    response = gateway.http.post(f"/v1/topics/{topic}/records/raw", content=b"x" * limit)
    assert problem(response, 413, "MESSAGE_TOO_LARGE", 10)["limit"] == limit


def test_a_request_above_the_limit_is_413_with_the_limit(gateway: Gateway, topic: str) -> None:
    body = b'{"records":[%b]}' % b",".join([b'{"value":"%b"}' % (b"x" * MIB)] * 10)
    response = gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers=JSON)
    assert problem(response, 413, "MESSAGE_TOO_LARGE", 10)["limit"] == 10 * MIB
