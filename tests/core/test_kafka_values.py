"""Records of any Kafka producer, as fetches send them."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from sharequeue_gateway.kafka_log.read_values import batch_of, tails_of

from sharequeue_kafka.batches import KafkaRecord, ReadBatch

DEEP = b"[" * 70 + b"]" * 70


def read(
    value: bytes | None,
    value_format: str = "auto",
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> dict[str, Any]:
    """Read a record, alone and beside one that is not JSON: the members that a fetch sends."""
    record = KafkaRecord(5, 7, key, value, headers)
    (alone,), (beside, _) = (
        tails_of([record, *others], value_format, 64) for others in ([], [record._replace(value=b"{")])
    )
    assert alone == beside
    found = json.loads(b"{" + alone[1:])
    assert found.pop("timestamp_ms") == 7
    return {name: member for name, member in found.items() if (name, member) != ("key", None)}


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("value", "auto", "text"),
    [
        (b'{"a": [1, 2]}', {"value": {"a": [1, 2]}}, {"value": '{"a": [1, 2]}'}),
        (b" 1 ", {"value": 1}, {"value": " 1 "}),
        (b"null", {"value": None}, {"value": "null"}),
        (b"hello", {"value_base64": encoded(b"hello")}, {"value": "hello"}),
        (b"1,2", {"value_base64": encoded(b"1,2")}, {"value": "1,2"}),
        (b"", {"value_base64": ""}, {"value": ""}),
        (b'"\xff"', {"value_base64": encoded(b'"\xff"')}, {"value_base64": encoded(b'"\xff"')}),
        (DEEP, {"value_base64": encoded(DEEP)}, {"value": DEEP.decode()}),
        (None, {"value": None}, {"value": None}),
    ],
)
def test_a_value_is_read_as_its_format_says(value: bytes | None, auto: object, text: object) -> None:
    assert read(value) == read(value, "json") == auto
    assert read(value, "text") == text
    assert read(value, "bytes") == ({"value": None} if value is None else {"value_base64": encoded(value)})


def test_values_that_are_json_only_together_are_not_json() -> None:
    values = [b"1,2", b'["3"', b'"4"]']
    tails = tails_of([KafkaRecord(0, 0, None, value, ()) for value in values], "auto", 64)
    assert [json.loads(b"{" + tail[1:])["value_base64"] for tail in tails] == [encoded(value) for value in values]


def test_a_value_that_was_sent_as_bytes_is_read_as_bytes() -> None:
    ours = [("sharequeue.value", b"base64"), ("sharequeue.append", b"x")]
    assert read(b"1", headers=ours) == {"value_base64": encoded(b"1")}


def test_a_key_is_text_if_it_can_be() -> None:
    assert read(b"1", key="ä\n".encode()) == {"key": "ä\n", "value": 1}
    assert read(b"1", key=b"\xff") == {"key_base64": encoded(b"\xff"), "value": 1}


def test_headers_that_are_repeated_or_no_text_are_there_twice() -> None:
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", None), ("d", b"\xff"), ("e", b"4"), ("e", None)]
    assert read(b"1", headers=headers) == {
        "value": 1,
        "headers": {"a": "3", "b": "2"},
        "headers_base64": {
            "a": [encoded(b"1"), encoded(b"3")],
            "c": [None],
            "d": [encoded(b"\xff")],
            "e": [encoded(b"4"), None],
        },
    }


def test_a_batch_has_gaps_where_it_has_no_record() -> None:
    records = [KafkaRecord(offset, 10 * offset, None, b"%d" % offset, ()) for offset in (4, 5, 8)]
    dense = batch_of(ReadBatch(4, 5, 0, records[:2]), "auto", 64)
    sparse = batch_of(ReadBatch(2, 9, 0, records), "auto", 64)
    empty = batch_of(ReadBatch(10, 12, 0, []), "auto", 64)
    assert (dense.base_offset, dense.last_offset, dense.absent(4, 5)) == (4, 5, [])
    assert sparse.absent(2, 9) == [(2, 3), (6, 7), (9, 9)]
    assert empty.absent(10, 12) == [(10, 12)]
    assert [each["offset"] for each in json.loads(b"[" + sparse.slice(3, 8) + b"]")] == [4, 5, 8]
    assert sparse.max_timestamp_ms == 80
    assert dense.slice(5, 5) == b'{"offset":5,"timestamp_ms":50,"key":null,"value":5}'
