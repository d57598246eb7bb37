"""A micro-batch waits for enough records, or for a time, as with Kafka's minOffsetsPerTrigger and maxTriggerDelay."""

import time

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from sharequeue_pipeline.source.admission import Admission
from sharequeue_pipeline.source.log_readers import LogStreamReader

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline.test_readers import SCHEMA, options_of, stream_reader
from tests.pipeline.test_source import produce

ALL = ReadMaxRows(1000)


def test_a_batch_begins_with_enough_records_or_after_the_delay() -> None:
    admission = Admission(10, 5000)
    assert admission.waits
    assert not admission.admits(9, 100)
    assert admission.admits(10, 200)
    assert not admission.admits(9, 5199)
    assert admission.admits(1, 5200)
    assert not admission.admits(9, 5201)


def test_no_batch_begins_without_records() -> None:
    admission = Admission(10, 5000)
    assert not admission.admits(0, 0)
    assert not admission.admits(0, 9000)
    assert admission.admits(1, 9001)


def test_by_default_a_batch_begins_with_one_record() -> None:
    admission = Admission(1, 5000)
    assert not admission.waits
    assert admission.admits(1, 0)
    assert admission.admits(1, 1)


@pytest.mark.parametrize("mode", ["group", "log"])
def test_a_stream_waits_for_enough_records(stack: Stack, gateway: Gateway, name: str, mode: str) -> None:
    """With availableNow it does not wait."""
    produce(gateway, name, 10)
    wanted = {"minRecordsPerTrigger": 8, "maxTriggerDelay": "2s"}

    def reader() -> LogStreamReader:
        if mode == "log":
            return LogStreamReader(options_of(stack, name, mode="log", **wanted), SCHEMA)
        return stream_reader(stack, name, **wanted)  # type: ignore[return-value]  # the same calls

    one = reader()
    began = time.monotonic()
    first = one.latestOffset(one.initialOffset(), ALL)
    assert first != one.initialOffset()
    produce(gateway, name, 5, first=10)
    second = first
    while second == first:
        second = one.latestOffset(first, ALL)
        assert time.monotonic() - began < 60
    assert time.monotonic() - began > 2
    produce(gateway, name, 5, first=15)
    one.stop()
    now = reader()
    now.prepareForTriggerAvailableNow()
    assert now.latestOffset(second, ALL) != second
    now.stop()
