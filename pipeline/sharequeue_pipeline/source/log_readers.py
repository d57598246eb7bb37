"""Reading the log by offsets, without a group and without locks: `mode=log`, for batches and streams.

The offset of a stream holds the next offset of each partition, and the ids of the topics:

    {"log": {"orders": {"0": 17}}, "topic_ids": {"orders": "4799b8f4-…"}}

`latestOffset` decides the end of a micro-batch: each partition contributes a share of `maxRecordsPerTrigger` in
proportion to the records it has. The topic ids tell a topic from another one of the same name, whose offsets mean other
records.
"""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import DEFAULT_MAX_RECORDS_PER_TRIGGER, EARLIEST, Offsets, SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.range_reads import TaskRanges, read_ranges

LOOK_S: Final = 0.25
LOOKS: Final = 4
"""A stream looks for records so many times, `LOOK_S` apart, before Spark hears that there are none."""
Bounds = dict[tuple[str, int], tuple[int, int]]


class Log(NamedTuple):
    """The topics of a read: their ids, and (log start, log end) of every partition."""

    topic_ids: dict[str, str]
    bounds: Bounds


def log_of(gateway: GatewayClient, options: SourceOptions) -> Log:
    described = {topic: gateway.describe(topic) for topic in options.topics}
    return Log(
        {topic: found.topic_id for topic, found in described.items()},
        {
            (topic, entry.partition): (entry.log_start_offset, entry.log_end_offset)
            for topic, found in described.items()
            for entry in found.partitions
        },
    )


def bounds_of(gateway: GatewayClient, options: SourceOptions) -> Bounds:
    """Log start and log end of every partition of the topics."""
    return log_of(gateway, options).bounds


def resolve(given: str | Offsets, bounds: Bounds, option: str) -> dict[tuple[str, int], int]:
    """The offset of every partition, as an option names it; for others, where the log begins or ends.

    Raises: PipelineError: the option names a topic or partition that is not read.
    """
    if isinstance(given, str):
        return {place: start if given == EARLIEST else end for place, (start, end) in bounds.items()}
    resolved = {place: start if option == "startingOffsets" else end for place, (start, end) in bounds.items()}
    for topic, partitions in given.items():
        for partition, offset in partitions.items():
            if (topic, partition) not in resolved:
                raise PipelineError(f"{option} names {topic}-{partition}, which is not among the partitions read")
            start, end = bounds[topic, partition]
            resolved[topic, partition] = min(max(offset, start), end)
    return resolved


class LogBatchReader(DataSourceReader):
    """The reader of `read` with `mode=log`."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with GatewayClient(self._options.gateway) as gateway:
            bounds = bounds_of(gateway, self._options)
        starts = resolve(self._options.starting, bounds, "startingOffsets")
        ends = resolve(self._options.ending, bounds, "endingOffsets")
        wanted = [Range(*place, start, ends[place] - 1) for place, start in sorted(starts.items())]
        return [TaskRanges(share) for share in ranges.split(wanted, self._options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `readStream` with `mode=log`."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        self._options = options
        self._schema = schema
        self._gateway: GatewayClient | None = None
        self._targets: dict[tuple[str, int], int] | None = None
        self._initial: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            log = self._log()
            self._initial = _offset(resolve(self._options.starting, log.bounds, "startingOffsets"), log.topic_ids)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records_per_trigger or DEFAULT_MAX_RECORDS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {place: end for place, (_, end) in self._log().bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = _places(start)
        for look in range(LOOKS):
            topic_ids, bounds = self._log()
            _check_topics(start, topic_ids)
            ends = self._targets or {place: end for place, (_, end) in bounds.items()}
            new = {place: max(0, end - begun.get(place, bounds[place][0])) for place, end in ends.items()}
            total = sum(new.values())
            if total or self._targets is not None or look == LOOKS - 1:
                break
            time.sleep(LOOK_S)  # Spark asks again every 10 ms
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        if total == 0:
            return start
        reached = dict(begun)
        for place, size in sorted(new.items()):
            taken = size if total <= room else -(-size * room // total)
            reached[place] = begun.get(place, bounds[place][0]) + taken
        return _offset(reached, topic_ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        _check_topics(end, self._log().topic_ids)
        begun = _places(start)
        wanted = [Range(*place, begun.get(place, 0), reached - 1) for place, reached in sorted(_places(end).items())]
        return [TaskRanges(share) for share in ranges.split(wanted, self._options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.close()

    def _log(self) -> Log:
        if self._gateway is None:
            self._gateway = GatewayClient(self._options.gateway)
        return log_of(self._gateway, self._options)


def _offset(places: dict[tuple[str, int], int], topic_ids: dict[str, str]) -> dict[str, Any]:
    log: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(places.items()):
        log.setdefault(topic, {})[str(partition)] = offset
    return {"log": log, "topic_ids": topic_ids}


def _check_topics(offset: dict[str, Any], topic_ids: dict[str, str]) -> None:
    """Raises: PipelineError: a topic was deleted and created again, so the offset means other records."""
    for topic, topic_id in offset.get("topic_ids", {}).items():
        found = topic_ids.get(topic, topic_id)
        if found != topic_id:
            raise PipelineError(
                f"the topic {topic!r} was deleted and created again (its id was {topic_id} and is {found}), "
                "so the offsets in the checkpoint mean other records: start the query with a new checkpoint"
            )


def _places(offset: dict[str, Any]) -> dict[tuple[str, int], int]:
    if not isinstance(offset, dict) or "log" not in offset:
        raise PipelineError(
            "the checkpoint was written by another source (a share group?): give this query a new checkpoint"
        )
    return {
        (topic, int(partition)): found
        for topic, partitions in offset["log"].items()
        for partition, found in partitions.items()
    }
