"""Which records are the same to a task that runs again."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from sharequeue_pipeline.sink.digests import digest_of, digests_of_read

from sharequeue.arrow_records import SCHEMA

TEXTS = ["", "a", '"', "\\", "\u2028", "\U0001f600", "null", "{}"]


def read_back(value: bytes | None, is_json: bool, headers: list[tuple[str, str]] | None = None) -> Any:
    """One record as a gateway client reads it."""
    row = [[7], [9], [b"k"], [value], [is_json], [headers or []]]
    return pa.record_batch([pa.array(each, field.type) for each, field in zip(row, SCHEMA, strict=True)], schema=SCHEMA)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_json_string_of_it(text: str) -> None:
    json = msgspec.json.encode(text)
    assert digest_of("k", text, {}, None, None) == digest_of(b"k", msgspec.Raw(json), {}, None, None)
    assert [digest_of("k", text, {}, None, None)] == list(digests_of_read(read_back(json, True), None, timed=False))
    assert digest_of("k", text, {}, None, None) != digest_of("k", text.encode(), {}, None, None)


def test_json_is_the_same_if_its_bytes_are() -> None:
    one, other = (digest_of(None, msgspec.Raw(json), {}, None, None) for json in (b'{"a":1}', b'{"a": 1}'))
    assert one != other


def test_an_escape_that_is_no_character_is_the_json_that_it_is() -> None:
    half = msgspec.Raw(b'"\\ud800"')
    assert digest_of(None, half, {}, None, None) == digest_of(None, half, {}, None, None)


@pytest.mark.parametrize("value", [b"", b"\xff", b'"a"'])
def test_bytes_and_tombstones_are_read_back(value: bytes) -> None:
    assert [digest_of("k", value, {}, None, None)] == list(digests_of_read(read_back(value, False), None, timed=False))
    for is_json in (True, False):
        found = list(digests_of_read(read_back(None, is_json), None, timed=False))
        assert [digest_of("k", None, {}, None, None)] == found


def test_headers_partition_and_time_are_read_back() -> None:
    records = read_back(b"v", False, [("b", "2"), ("a", "1")])
    assert [digest_of("k", b"v", {"a": "1", "b": "2"}, 3, 9)] == list(digests_of_read(records, 3, timed=True))
    assert [digest_of("k", b"v", {"a": "1", "b": "2"}, None, None)] == list(digests_of_read(records, None, timed=False))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (digest_of("k", None, {}, None, None), digest_of(None, None, {}, None, None)),
        (digest_of(None, "", {}, None, None), digest_of(None, None, {}, None, None)),
        (digest_of(None, "a", {}, None, None), digest_of(None, b"a", {}, None, None)),
        (digest_of("a", "b", {}, None, None), digest_of("", "ab", {}, None, None)),
        (digest_of(None, "a", {"h": "1"}, None, None), digest_of(None, "a", {"h": "2"}, None, None)),
        (digest_of(None, "a", {}, 0, None), digest_of(None, "a", {}, 1, None)),
        (digest_of(None, "a", {}, None, 0), digest_of(None, "a", {}, None, 1)),
        (digest_of(None, "a", {}, 1, None), digest_of(None, "a", {}, None, 1)),
    ],
)
def test_other_records_have_other_digests(one: bytes, other: bytes) -> None:
    assert one != other
