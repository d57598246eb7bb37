"""Batches and records as Kafka stores them."""

import random

import pytest
from sharequeue_gateway.kafka_log.new_records import new_records
from sharequeue_gateway.record_log.log import PartitionAppend

from sharequeue_kafka.batches import read_batches
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.producing import ATTRIBUTES_AT, LZ4, NONE, NewRecord, Numbering, encode


@pytest.mark.parametrize("codec", [LZ4, NONE])
def test_a_batch_is_compressed_if_that_saves_a_tenth(codec: int) -> None:
    values = [b"v" * 100 if codec else random.Random(seed).randbytes(100) for seed in range(50)]
    records = [NewRecord(b"k", value, [("h", b"1")], 1_000 + index) for index, value in enumerate(values)]
    batch = encode(records, Numbering(7, 1), Place("t", 0), False)
    assert batch[ATTRIBUTES_AT + 1] == codec
    assert (len(batch) < 1_000) == (codec == LZ4)
    (read,) = read_batches(batch, 0)
    assert [(each.key, each.value, [*each.headers], each.timestamp_ms) for each in read.records] == [
        (record.key, record.value, record.headers, record.timestamp_ms) for record in records
    ]


def test_records_of_all_kinds_are_those_of_the_request() -> None:
    deep = b"[" * 5_000 + b"]" * 5_000
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
