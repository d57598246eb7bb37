"""Batches and records as Kafka stores them."""

import random

import msgspec
import pytest
from msgspec import structs
from sharequeue_gateway.kafka_log.new_records import new_records
from sharequeue_gateway.kafka_log.read_values import reads_as_sent, tails_of
from sharequeue_gateway.producing.record_tails import record_tails
from sharequeue_gateway.record_log.log import PartitionAppend

from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue_kafka.batches import read_batches
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.producing import ATTRIBUTES_AT, LZ4, NONE, NewRecord, Numbering, encode


@pytest.mark.parametrize("codec", [LZ4, NONE])
def test_a_batch_is_compressed_if_that_saves_a_tenth(codec: int) -> None:
    values = [b"v" * 100 if codec else random.Random(seed).randbytes(100) for seed in range(50)]
    records: list[NewRecord] = [(b"k", value, [("h", b"1")], 1_000 + index) for index, value in enumerate(values)]
    batch = encode(records, Numbering(7, 1), Place("t", 0), False)
    assert batch[ATTRIBUTES_AT + 1] == codec
    assert (len(batch) < 1_000) == (codec == LZ4)
    (read,) = read_batches(batch)
    assert [(each.key, each.value, [*each.headers], each.timestamp_ms) for each in read.records] == records


def test_records_of_all_kinds_are_those_of_the_request() -> None:
    deep = b"[" * 500 + b"]" * 500
    tails = [
        b',"timestamp_ms":1,"key":null,"value":%b}' % deep,
        b',"timestamp_ms":2,"key":"k","value":null}',
        b',"timestamp_ms":3,"key_base64":"AAE=","value_base64":"AAE=","headers":{"a":"b"}}',
    ]
    found = new_records(PartitionAppend("t", 0, tails * 70, 1, None, None), "id")
    named = ("sharequeue.append", b"id")
    encoded = ("sharequeue.value", b"base64")
    assert found[:3] == [
        (None, deep, [named], 1),
        (b"k", None, [named], 2),
        (b"\0\1", b"\0\1", [("a", b"b"), named, encoded], 3),
    ]
    assert found == found[:3] * 70


def test_plain_records_are_those_of_their_tails() -> None:
    values = ("1", "null", '"\\u00e4\u00e4"', '{"value":{"key":null,"value":1},"headers":{"a":"b"}}', "[ 1 , 2 ]")
    records = [ProduceRecord(value=msgspec.Raw(value.encode())) for value in values]
    tails, plain = record_tails(records, 1_700_000_000_000)
    append = PartitionAppend("t", 0, tails, 1_700_000_000_000)
    expected = [None if value == "null" else value.encode() for value in values]
    assert plain
    assert [value for _, value, _, _ in new_records(structs.replace(append, plain=True), "id")] == expected
    assert new_records(structs.replace(append, plain=True), "id") == new_records(append, "id")


@pytest.mark.parametrize(
    ("members", "same"),
    [
        (b',"key":null,"value":{"a": [1, "\\ud83d\\ude00"]}', True),
        (b',"key":null,"value":null', True),
        ('"key":"kä/\x7f","value":1,"headers":{"a":"ä/","b":""}'.encode().join((b",", b"")), True),
        (b',"key_base64":"aw==","value":1', False),
        (b',"key":null,"value_base64":"QR=="', False),
        (b',"key":null,"value":1,"headers":{"sharequeue.value":"x"}', False),
    ],
)
def test_records_that_read_as_they_were_sent(members: bytes, same: bool) -> None:
    tails = [b',"timestamp_ms":5%b}' % members] * 2
    batch = encode(new_records(PartitionAppend("t", 0, tails, 5)), Numbering(7, 1), Place("t", 0), False)
    (read,) = read_batches(batch)
    assert (reads_as_sent(tails), tails_of(read.records, "auto", 64) == tails) == (same, same)
