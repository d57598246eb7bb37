"""Reading the log by offsets, without a group and without locks: `mode=log`, for batches and streams.

`latestOffset` decides the end of a micro-batch: each partition contributes a share of `maxRecordsPerTrigger` in
proportion to the records it has. `log_offsets` has the offset of a stream.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError, data_loss
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import DEFAULT_MAX_RECORDS_PER_TRIGGER, SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source import log_offsets
from sharequeue_pipeline.source.admission import Admission
from sharequeue_pipeline.source.log_offsets import Bounds, Deleted, Log, Place
from sharequeue_pipeline.source.log_times import first_at, offsets_at
from sharequeue_pipeline.source.pushed_filters import begin_ms, narrowed
from sharequeue_pipeline.source.range_reads import TaskRanges, read_ranges
from sharequeue_pipeline.source.topic_names import TopicNames

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
LOOKS: Final = 4
"""A stream looks for records so many times, `LOOK_S` apart, before Spark hears that there are none."""


def log_of(gateway: GatewayClient, topics: TopicNames, *, committed: bool = False) -> Log:
    """`committed`: the bounds end at the last stable offset."""
    found_now = {topic: gateway.find(topic) for topic in topics.names(gateway)}
    if topics.of_pattern:
        described = {topic: found for topic, found in found_now.items() if found is not None}
    else:
        described = {topic: found or gateway.describe(topic) for topic, found in found_now.items()}
    return Log(
        {topic: found.topic_id for topic, found in described.items()},
        {
            (topic, entry.partition): (
                entry.log_start_offset,
                entry.last_stable_offset if committed else entry.log_end_offset,
            )
            for topic, found in described.items()
            for entry in found.partitions
        },
        {
            (topic, entry.partition): entry.log_end_offset
            for topic, found in described.items()
            for entry in found.partitions
        },
    )


def bounds_of(gateway: GatewayClient, topics: TopicNames, *, committed: bool = False) -> Bounds:
    """Log start and log end of every partition of the topics;
    `committed`: the last stable offset in place of the end."""
    return log_of(gateway, topics, committed=committed).bounds


def _starts(gateway: GatewayClient, options: SourceOptions, bounds: Bounds) -> dict[Place, int]:
    """Where a read begins, by offsets or by time."""
    starting = options.starting
    if options.starting_at is not None:
        fail = options.starting_strategy == "error"
        starting = offsets_at(gateway, options.starting_at, bounds, "startingOffsetsByTimestamp", fail_if_none=fail)
    return log_offsets.starts_of(starting, bounds, fail_on_data_loss=options.fail_on_data_loss)


class LogBatchReader(DataSourceReader):
    """The reader of `read` with `mode=log`."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        log_offsets.check_batch(options.starting)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with GatewayClient(options.gateway) as gateway:
            bounds = bounds_of(gateway, TopicNames(options), committed=options.isolation == "read_committed")
            starts = _starts(gateway, options, bounds)
            ending = options.ending
            if options.ending_at is not None:
                ending = offsets_at(gateway, options.ending_at, bounds, "endingOffsetsByTimestamp", fail_if_none=False)
            ends = log_offsets.ends_of(ending, bounds, starts, fail_on_data_loss=options.fail_on_data_loss)
            wanted = [Range(*place, start, ends[place] - 1) for place, start in sorted(starts.items())]
            wanted = self._narrowed(gateway, wanted)
        return [TaskRanges(share) for share in ranges.split(wanted, options.parallelism)]

    def _narrowed(self, gateway: GatewayClient, wanted: list[Range]) -> list[Range]:
        return wanted

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)


class FilteredLogBatchReader(LogBatchReader):
    """The same in a session that pushes filters down. Spark refuses a reader with `pushFilters` in other sessions."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters to narrow the read. Returns: all of them, because Spark must apply them to the records."""
        self._filters = list(filters)
        return filters

    def _narrowed(self, gateway: GatewayClient, wanted: list[Range]) -> list[Range]:
        found = narrowed([entry for entry in wanted if entry.size > 0], self._filters)
        time_ms = begin_ms(self._filters)
        if time_ms is None:
            return found
        late = []
        for entry in found:
            bounds = entry.first_offset, entry.last_offset + 1
            first = first_at(gateway, (entry.topic, entry.partition), bounds, time_ms)
            if first is not None:
                late.append(entry._replace(first_offset=first))
        return late


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `readStream` with `mode=log`."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        self._options = options
        self._schema = schema
        self._topics = TopicNames(options)
        self._gateway: GatewayClient | None = None
        self._targets: dict[tuple[str, int], int] | None = None
        self._initial: dict[str, Any] | None = None
        self._admission = Admission(options.min_records_per_trigger, options.max_trigger_delay_ms)
        self._ends: dict[Place, int] | None = None
        """The log ends that were seen last."""

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            found = self._log()
            starts = _starts(self._client(), self._options, found.bounds)
            self._initial = log_offsets.encode(starts, found.topic_ids, 0)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records_per_trigger or DEFAULT_MAX_RECORDS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {place: end for place, (_, end) in self._log().bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        begun, lost = log_offsets.decode(start), start.get("lost", 0)
        for look in range(LOOKS):
            topic_ids, bounds, log_ends = self._log()
            log_offsets.check_topics(start, topic_ids)
            begun = self._still_there(begun, bounds)
            for entry in self._lost(begun, bounds, log_ends):
                begun[entry.topic, entry.partition] = entry.last_offset + 1
                lost += entry.last_offset - entry.first_offset + 1
            ends = self._targets or {place: end for place, (_, end) in bounds.items()}
            new = {place: max(0, end - begun.get(place, 0)) for place, end in ends.items()}
            total = sum(new.values())
            if total >= options.min_records_per_trigger or self._targets is not None or look == LOOKS - 1:
                break
            time.sleep(LOOK_S)  # Spark asks again every 10 ms
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        if total == 0 or (self._targets is None and not self._admission.admits(total, time.monotonic() * 1000)):
            return start
        reached = dict(begun)
        for place, size in sorted(new.items()):
            taken = size if total <= room else -(-size * room // total)
            reached[place] = begun.get(place, 0) + taken
        return log_offsets.encode(reached, topic_ids, lost)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The log ends, for progress reports: their distance from `endOffset` is the lag."""
        return None if self._ends is None else {"log": ranges.by_topic(self._ends)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        topic_ids, bounds, log_ends = self._log()
        log_offsets.check_topics(end, topic_ids)
        begun, reached = log_offsets.decode(start), self._still_there(log_offsets.decode(end), bounds)
        for entry in self._lost({place: begun.get(place, 0) for place in reached}, bounds, log_ends):
            begun[entry.topic, entry.partition] = entry.last_offset + 1
        wanted = [Range(*place, begun.get(place, 0), offset - 1) for place, offset in sorted(reached.items())]
        return [TaskRanges(share) for share in ranges.split(wanted, self._options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.close()

    def _log(self) -> Log:
        found = log_of(self._client(), self._topics, committed=self._options.isolation == "read_committed")
        self._ends = {place: end for place, (_, end) in found.bounds.items()}
        return found

    def _client(self) -> GatewayClient:
        if self._gateway is None:
            self._gateway = GatewayClient(self._options.gateway)
        return self._gateway

    def _still_there(self, places: dict[Place, int], bounds: Bounds) -> dict[Place, int]:
        """Leave out the places of topics that are gone. Raises: PipelineError: none may go (failOnDataLoss)."""
        if not self._topics.of_pattern:
            return places
        there = {topic for topic, _ in bounds}
        gone = sorted({topic for topic, _ in places} - there)
        if gone and self._options.fail_on_data_loss:
            raise PipelineError(
                f"the topic {gone[0]!r}, which subscribePattern matched, was deleted; set failOnDataLoss=false to read on "
                "without it"
            )
        for topic in gone:
            log.warning("the topic %s was deleted, and is not read any more", topic)
        return {place: offset for place, offset in places.items() if place[0] in there}

    def _lost(self, begun: Mapping[Place, int], bounds: Bounds, log_ends: Mapping[Place, int]) -> list[Deleted]:
        """What left the log before it was read. Raises: PipelineError: it must not (failOnDataLoss)."""
        lost = log_offsets.deleted(begun, bounds, log_ends)
        if lost and self._options.fail_on_data_loss:
            raise data_loss(*lost[0])
        for topic, partition, first, last in lost:
            log.warning("%s-%d: skipped the offsets %d to %d, which were deleted", topic, partition, first, last)
        return lost
