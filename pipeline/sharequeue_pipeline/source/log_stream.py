"""A stream of the log by offsets, without a group and without locks: `spark.readStream` with `mode=log`.

`latestOffset` decides the end of a micro-batch: each partition contributes a share of `maxRecordsPerTrigger` in
proportion to the records it has. `log_offsets` has the offset of a stream. Spark 4.0 and 4.1 call `latestOffset`
without arguments, so a micro-batch ends at the log end there, and `partitions` finds what was deleted.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sharequeue.repeats import SPARK, Tries
from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError, data_loss
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import DEFAULT_MAX_RECORDS_PER_TRIGGER, SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source import log_offsets
from sharequeue_pipeline.source.admission import Admission
from sharequeue_pipeline.source.log_offsets import Bounds, Log, Place
from sharequeue_pipeline.source.range_reads import read_ranges
from sharequeue_pipeline.source.topic_bounds import log_of, starts_of
from sharequeue_pipeline.source.topic_names import TopicNames
from sharequeue_pipeline.spark_version import STREAM_LIMITS, reaches

if TYPE_CHECKING or reaches(pyspark.__version__, STREAM_LIMITS):
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

log = logging.getLogger(__name__)

LOOKS: Final = 4
"""A stream looks for records so many times before Spark hears that there are none."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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
            starts = starts_of(self._client(), self._options, found.bounds)
            self._initial = log_offsets.encode(starts, found.topic_ids, 0)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records_per_trigger or DEFAULT_MAX_RECORDS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {place: end for place, (_, end) in self._log().bounds.items()}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        if start is None:
            topic_ids, bounds, _ = self._log()
            return log_offsets.encode({place: end for place, (_, end) in bounds.items()}, topic_ids, 0)
        options = self._options
        begun, lost = log_offsets.decode(start), start.get("lost", 0)
        for look in range(LOOKS):
            topic_ids, bounds, log_ends = self._log()
            log_offsets.check_topics(start, topic_ids)
            begun = self._still_there(begun, bounds)
            for entry in self._lost(begun, bounds, log_ends):
                begun[entry[:2]] = entry.last_offset + 1
                lost += entry.size
            ends = self._targets or {place: end for place, (_, end) in bounds.items()}
            new = {place: max(0, end - begun.get(place, 0)) for place, end in ends.items()}
            total = sum(new.values())
            if total >= options.min_records_per_trigger or self._targets is not None or look == LOOKS - 1:
                break
            Tries(SPARK).rest()
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        if total == 0 or (self._targets is None and not self._admission.admits(total, time.monotonic() * 1000)):
            return start
        reached = dict(begun)
        for place, size in sorted(new.items()):
            taken = size if total <= room else -(-size * room // total)
            reached[place] = begun.get(place, 0) + taken
        if options.max_bytes_per_trigger is not None:
            reached = self._within(begun, reached, options.max_bytes_per_trigger)
        began = log_offsets.decode(start) if start == self._initial else None
        return log_offsets.encode(reached, topic_ids, lost, began)

    def _within(self, begun: Mapping[Place, int], reached: Mapping[Place, int], most: int) -> dict[Place, int]:
        """Shorten a micro-batch to so many bytes: each partition has an equal share, and at least one stored batch."""
        share = most // max(1, sum(end > begun.get(place, 0) for place, end in reached.items()))
        cut = dict(reached)
        for place, end in reached.items():
            first, size = begun.get(place, 0), 0
            for batch in self._client().batches(*place, first, end) if end > first else ():
                size += batch.size_bytes
                if size > share and batch.base_offset > first:
                    cut[place] = batch.base_offset
                    break
        return cut

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The log ends, for progress reports: their distance from `endOffset` is the lag."""
        return None if self._ends is None else {"log": ranges.by_topic(self._ends)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        topic_ids, bounds, log_ends = self._log()
        log_offsets.check_topics(end, topic_ids)
        begun, reached = log_offsets.begun(start, end), self._still_there(log_offsets.decode(end), bounds)
        log_offsets.check_topics(start, topic_ids)
        begun = self._still_there(begun, bounds)
        for entry in self._lost({place: begun.get(place, 0) for place in reached}, bounds, log_ends):
            begun[entry[:2]] = entry.last_offset + 1
        wanted = [
            Range(*place, begun.get(place, 0), offset - 1, topic_id=topic_ids.get(place[0], ""))
            for place, offset in sorted(reached.items())
            if offset > begun.get(place, 0)
        ]
        return [InputPartition((None, share)) for share in ranges.split(wanted, self._options.parallelism)]

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

    def _lost(self, begun: Mapping[Place, int], bounds: Bounds, log_ends: Mapping[Place, int]) -> list[Range]:
        """Return what left the log before it was read. Raises: PipelineError: it must not (failOnDataLoss)."""
        lost = log_offsets.deleted(begun, bounds, log_ends)
        if lost and self._options.fail_on_data_loss:
            raise data_loss(*lost[0][:4])
        for topic, partition, first, last, *_ in lost:
            log.warning("%s-%d: skipped the offsets %d to %d, which were deleted", topic, partition, first, last)
        return lost
