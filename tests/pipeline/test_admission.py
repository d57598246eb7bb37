"""A micro-batch waits for enough records, or for a time, as with Kafka's minOffsetsPerTrigger and maxTriggerDelay."""

import logging
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from sharequeue_pipeline import ranges
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.log_stream import LogStreamReader

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good
from tests.pipeline.test_readers import SCHEMA, options_of, stream_reader
from tests.pipeline.test_source import produce

ALL = ReadMaxRows(1000)


@pytest.mark.soak
def test_the_limit_of_locks_makes_batches_small_until_it_is_raised(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The query says so once, with the number and the setting. A full partition does not keep the others waiting."""
    backlogs = [3700, 100, 100, 100]
    gateway.create_topic(name, len(backlogs))
    for partition, backlog in enumerate(backlogs):
        gateway.produce(name, *range(backlog), partition=partition)

    def taken(group: str, **options: Any) -> list[list[Range]]:
        gateway.configure(group, share_partition_max_record_locks=100)
        reader = stream_reader(stack, name, group=group, maxRecordsPerTrigger=1000, **options)
        reader.prepareForTriggerAvailableNow()
        offset, found = reader.initialOffset(), []
        while (following := reader.latestOffset(offset, ALL)) != offset:
            offset = following
            found.append(ranges.decode(offset["ranges"]))
        reader.stop()
        assert sum(entry.size for each in found for entry in each) == sum(backlogs)
        return found

    with caplog.at_level(logging.WARNING):
        assert len(taken(f"{name}-kept")) == 37, "as many as windows of the fullest partition"
    (line,) = [record.getMessage() for record in caplog.records if "share.partition" in record.getMessage()]
    assert line == (
        f"a batch has 400 of 4000 records, because share.partition.max.record.locks of group {name}-kept is 100: "
        "set it to 1000, or let the query do it (option raiseRecordLocks)"
    )
    found = taken(f"{name}-raised", raiseRecordLocks=True)
    assert len(found) == 4
    config = good(gateway.http.get(f"/v1/share-groups/{name}-raised/config"))
    assert config["share.partition.max.record.locks"] == "1000"
    first = {entry.partition for each in found[:4] for entry in each}
    assert first == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("options", "limit"), [({}, "5000"), ({"raiseRecordLocks": False}, "2000")], ids=["default", "no"]
)
def test_the_limit_that_nobody_set_is_raised(
    stack: Stack, gateway: Gateway, name: str, options: dict[str, Any], limit: str
) -> None:
    produce(gateway, name, 10)
    reader = stream_reader(stack, name, group=name, maxRecordsPerTrigger=5000, **options)
    reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()
    config = good(gateway.http.get(f"/v1/share-groups/{name}/config"))
    assert config["share.partition.max.record.locks"] == limit


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
