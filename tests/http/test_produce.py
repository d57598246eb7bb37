"""Produce over HTTP: values byte for byte, keys and headers, partitions, atomic, idempotent, raw bodies."""

import base64
import json
import time
from typing import Any

import pytest

from tests.http.calls import Gateway, good, problem, wait_until, when_loaded
from tests.kafka_log.on_kafka import ON_KAFKA

JSON = {"Content-Type": "application/json"}


def produce(gateway: Gateway, topic: str, *records: dict[str, Any], **headers: str) -> list[dict[str, int]]:
    path = f"/v1/topics/{topic}/records"
    answer = good(gateway.http.post(path, json={"records": list(records)}, headers=headers))
    return list(answer["records"])


def read(gateway: Gateway, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    """The records of a partition, without their timestamps."""
    records = gateway.read(topic, partition)["records"]
    return [{name: value for name, value in record.items() if name != "timestamp_ms"} for record in records]


@pytest.mark.parametrize(
    "value",
    [
        b"1e400",
        b"12345678901234567890123",
        b"1.10",
        b"-0.0",
        b'"\\u00e9\\/\\ud83d\\ude00"',
        b'"' + "größe 😀".encode() + b'"',
        b'{ "b" : 1 ,\n "a":[ ] }',
        b'{"a":1,"a":2}',
        b'""',
        b"true",
        b"[" * 64 + b"]" * 64,
    ],
)
def test_a_value_is_kept_byte_for_byte(gateway: Gateway, name: str, value: bytes) -> None:
    body = b'{"records":[{"value":%b,"headers":{"h":"1"}},{"value":%b}]}' % (value, value)
    good(gateway.http.post(f"/v1/topics/{name}/records", content=body, headers=JSON))
    fetched = when_loaded(lambda: gateway.http.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name]})).content
    assert fetched.count(b'"value":%b,"headers":{"h":"1"}}' % value) == 1
    assert fetched.count(b'"value":%b}' % value) == 1
    assert value in gateway.http.get(f"/v1/topics/{name}/partitions/0/records").content


def test_keys_and_values_of_bytes_come_back_as_bytes(gateway: Gateway, name: str) -> None:
    octets = base64.b64encode(bytes(range(256))).decode()
    produce(gateway, name, {"key_base64": octets, "value_base64": octets, "headers": {"h": "x"}}, {"value_base64": ""})
    assert read(gateway, name) == [
        {"offset": 0, "key_base64": octets, "value_base64": octets, "headers": {"h": "x"}},
        {"offset": 1, "key": None, "value_base64": ""},
    ]


def test_a_null_value_is_a_tombstone_as_json_and_as_bytes(gateway: Gateway, name: str) -> None:
    produce(gateway, name, {"key": "k", "value": None}, {"key": "k", "tombstone": True, "headers": {"h": "x"}})
    assert read(gateway, name) == [
        {"offset": 0, "key": "k", "value": None},
        {"offset": 1, "key": "k", "value": None, "headers": {"h": "x"}},
    ]


def test_null_and_empty_fields_of_generated_clients_are_absent(gateway: Gateway, name: str) -> None:
    """As Java of openapi-generator sends them with its default settings."""
    unset = {"key": None, "value": None, "tombstone": False, "headers": {}, "partition": None, "timestamp_ms": None}
    produce(gateway, name, {**unset, "value_base64": "AQ=="}, {**unset, "tombstone": True}, unset)
    assert read(gateway, name) == [
        {"offset": 0, "key": None, "value_base64": "AQ=="},
        {"offset": 1, "key": None, "value": None},
        {"offset": 2, "key": None, "value": None},
    ]
    for both in (
        {"value": 1, "value_base64": "AQ=="},
        {"value": "null", "tombstone": True},
        {"value": [], "tombstone": True},
    ):
        refused = gateway.http.post(f"/v1/topics/{name}/records", json={"records": [both]})
        assert "exactly one" in problem(refused, 422, "INVALID_REQUEST", 42)["detail"]
    both = {"value_base64": "AQ==", "tombstone": True, "value": None}
    problem(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [both]}), 422, "INVALID_REQUEST", 42)


def test_headers_and_keys_may_be_any_text(gateway: Gateway, name: str) -> None:
    record = {"key": 'a"b\\c\n\u2028😀', "value": 1, "headers": {"": "", "größe": 'x"\\\u0000', "a b": "😀"}}
    produce(gateway, name, record)
    assert read(gateway, name) == [{"offset": 0, **record}]


def test_a_timestamp_is_kept_or_set_to_now(gateway: Gateway, name: str) -> None:
    produce(gateway, name, {"value": 1, "timestamp_ms": 5}, {"value": 2})
    given, made = gateway.read(name)["records"]
    assert given["timestamp_ms"] == 5
    assert made["timestamp_ms"] > 1_700_000_000_000


def test_records_go_to_their_given_partitions_in_request_order(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=3)
    records = [{"value": number, "partition": number % 3} for number in (2, 0, 5, 1, 3)]
    placed = produce(gateway, name, *records)
    assert [(place["partition"], place["offset"]) for place in placed] == [(2, 0), (0, 0), (2, 1), (1, 0), (0, 1)]
    assert [record["value"] for record in read(gateway, name, 2)] == [2, 5]


def test_keyless_records_of_a_request_stay_together_and_requests_take_turns(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=3)
    seen = []
    for _ in range(3):
        placed = produce(gateway, name, {"value": 1}, {"value": 2})
        assert placed[0]["partition"] == placed[1]["partition"]
        seen.append(placed[0]["partition"])
    assert sorted(seen) == [0, 1, 2]


def test_a_request_appends_to_a_thousand_partitions_at_most(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=1001)
    wait_until(lambda: gateway.http.get(f"/v1/topics/{name}").is_success)  # a busy broker takes them up one by one
    records = [{"value": partition, "partition": partition} for partition in range(1001)]
    refused = gateway.http.post(f"/v1/topics/{name}/records", json={"records": records})
    assert problem(refused, 413, "MESSAGE_TOO_LARGE", 10)["limit"] == 1000
    assert gateway.log_ends(name) == [0] * 1001
    produce(gateway, name, *records[:1000])
    assert gateway.log_ends(name) == [1] * 1000 + [0]


def test_a_timestamp_far_in_the_future_is_refused_as_the_topic_says(gateway: Gateway, name: str) -> None:
    """Retention would keep all that is behind such a record until then."""
    hour = 3_600_000
    bound = {"message_timestamp_after_max_ms": hour} if ON_KAFKA else {}  # Kafka before 4.0 has no default
    gateway.create_topic(name, partitions=2, **bound)
    now_ms = int(time.time() * 1000)
    path = f"/v1/topics/{name}/records"
    far = [{"value": 1, "partition": 0}, {"value": 2, "partition": 1, "timestamp_ms": now_ms + hour + 60_000}]
    fault = problem(gateway.http.post(path, json={"records": far}), 422, "INVALID_REQUEST", 42)
    assert fault["errors"][0]["pointer"] == "/records/1/timestamp_ms"
    assert "message.timestamp.after.max.ms" in fault["errors"][0]["detail"]
    assert gateway.log_ends(name) == [0, 0]
    produce(gateway, name, {"value": 3, "timestamp_ms": now_ms + hour - 60_000}, {"value": 4, "timestamp_ms": 0})
    config = {"config": {"message.timestamp.after.max.ms": str(2 * hour)}}
    good(gateway.http.patch(f"/v1/topics/{name}", json=config))
    wait_until(lambda: gateway.http.post(path, json={"records": far}).status_code == 200)


# Idempotency keys


def test_a_repeat_with_the_key_gets_the_first_answer(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    records = [{"value": 1, "partition": 1}, {"value": 2, "partition": 0}]
    first = produce(gateway, name, *records, **{"Idempotency-Key": "k-1"})
    produce(gateway, name, {"value": "between", "partition": 0})
    assert produce(gateway, name, *records, **{"Idempotency-Key": "k-1"}) == first
    assert gateway.log_ends(name) == [2 + ON_KAFKA, 1 + ON_KAFKA], "on Kafka the transaction of a key has an end"
    assert produce(gateway, name, *records, **{"Idempotency-Key": "k-2"}) != first


def test_another_body_with_the_same_key_is_422(gateway: Gateway, name: str) -> None:
    produce(gateway, name, {"value": 1}, **{"Idempotency-Key": "k"})
    path = f"/v1/topics/{name}/records"
    other = gateway.http.post(path, json={"records": [{"value": 2}]}, headers={"Idempotency-Key": "k"})
    refused = problem(other, 422, "INVALID_REQUEST", 42)
    assert "send the same bytes" in refused["detail"]
    assert refused["first_batches"] == [{"partition": 0, "first_offset": 0, "last_offset": 0}]
    assert gateway.log_ends(name) == [1 + ON_KAFKA]


def test_the_refusal_of_another_body_tells_where_the_first_records_are(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 3)
    produce(gateway, name, {"value": 0, "partition": 2})
    records = [{"value": number, "partition": partition} for number, partition in enumerate((2, 0, 2, 2))]
    produce(gateway, name, *records, **{"Idempotency-Key": "k"})
    path = f"/v1/topics/{name}/records"
    other = gateway.http.post(path, json={"records": records[:3]}, headers={"Idempotency-Key": "k"})
    assert problem(other, 422, "INVALID_REQUEST", 42)["first_batches"] == [
        {"partition": 2, "first_offset": 1, "last_offset": 3},
        {"partition": 0, "first_offset": 0, "last_offset": 0},
    ]
    assert "first_batches" not in problem(gateway.http.post(path, json={"records": 1}), 422, "INVALID_REQUEST", 42)


@pytest.mark.parametrize("key", ["", "k" * 129])
def test_an_invalid_idempotency_key_is_refused(gateway: Gateway, name: str, key: str) -> None:
    gateway.create_topic(name)
    path = f"/v1/topics/{name}/records"
    response = gateway.http.post(path, json={"records": [{"value": 1}]}, headers={"Idempotency-Key": key})
    problem(response, 422, "INVALID_REQUEST", 42)
    assert gateway.log_ends(name) == [0]


@pytest.mark.parametrize("retention", ["0", "604800001", "1" * 30, "0" * 18 + "1" * 5000, "a week", "-1", ""])
def test_an_invalid_key_retention_is_refused(gateway: Gateway, name: str, retention: str) -> None:
    gateway.create_topic(name)
    path, headers = f"/v1/topics/{name}/records", {"Idempotency-Key": "k", "Idempotency-Retention-Ms": retention}
    problem(gateway.http.post(path, json={"records": [{"value": 1}]}, headers=headers), 422, "INVALID_REQUEST", 42)
    del headers["Idempotency-Key"]
    problem(gateway.http.post(path, json={"records": [{"value": 1}]}, headers=headers), 422, "INVALID_REQUEST", 42)
    assert gateway.log_ends(name) == [0]


# Raw bodies


def test_a_raw_body_is_the_value(gateway: Gateway, name: str) -> None:
    headers = {
        "Record-Key": "größe".encode(),
        "Record-Header-Trace": b"x",
        "Record-Header-City": "Zürich".encode(),
        "Content-Type": b"image/png",
    }
    body = b"\x89PNG\r\n\x00\xff"
    answer = good(gateway.http.post(f"/v1/topics/{name}/records/raw", content=body, headers=headers))
    assert answer == {"records": [{"partition": 0, "offset": 0}]}
    (record,) = read(gateway, name)
    assert base64.b64decode(record["value_base64"]) == body
    assert (record["key"], "value" in record) == ("größe", False)
    assert record["headers"] == {"trace": "x", "city": "Zürich", "content-type": "image/png"}


def test_raw_json_stays_bytes_and_an_empty_body_is_an_empty_value(gateway: Gateway, name: str) -> None:
    path = f"/v1/topics/{name}/records/raw"
    good(gateway.http.post(path, content=b'{"a": 1}', headers=JSON))
    good(gateway.http.post(path, content=b""))
    first, second = read(gateway, name)
    assert json.loads(base64.b64decode(first["value_base64"])) == {"a": 1}
    assert (first["headers"], first["key"]) == ({"content-type": "application/json"}, None)
    assert second == {"offset": 1, "key": None, "value_base64": ""}


def test_a_raw_record_goes_to_its_given_partition(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=3)
    path = f"/v1/topics/{name}/records/raw"
    placed = good(gateway.http.post(path, content=b"x", headers={"Record-Partition": "2"}))["records"]
    assert placed == [{"partition": 2, "offset": 0}]
    by_key = good(gateway.http.post(path, content=b"x", headers={"Record-Key": "abc"}))["records"]
    assert by_key[0]["partition"] == 479470107 % 3
    for partition in ("-1", "x", "99999999999999999999", "1" * 5000):
        response = gateway.http.post(path, content=b"x", headers={"Record-Partition": partition})
        problem(response, 422, "INVALID_REQUEST", 42)
    problem(
        gateway.http.post(path, content=b"x", headers={"Record-Partition": "3"}), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3
    )


def test_a_raw_header_that_is_not_utf8_is_refused(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    for header in ("Record-Key", "Record-Header-X"):
        response = gateway.http.post(f"/v1/topics/{name}/records/raw", content=b"x", headers={header: b"\xff"})
        problem(response, 400, "INVALID_REQUEST", 42)
    assert gateway.log_ends(name) == [0]


def test_a_topic_is_created_by_its_first_produce(gateway: Gateway, name: str) -> None:
    problem(gateway.http.get(f"/v1/topics/{name}"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    produce(gateway, name, {"value": 1})
    assert len(gateway.describe_topic(name)["partitions"]) == 1
