"""Streaming from a share group: the calls that Spark makes, and the offset of a micro-batch.

An offset holds what one micro-batch acquired, so Spark's own write-ahead log has it before the batch runs:

    {"group": "billing", "member_id": …, "batch": 7, "lost": 0, "removed": {}, "isolating": 0, "raised": [2000, 100000],
     "ranges": {"orders/4799b8f4-…": {"0": "17-2016:1"}}}

Spark passes the offset of the last finished batch to `latestOffset`. The reader accepts the ranges of that batch there,
before it acquires more. `commit` would be too late: Spark calls it after it has planned the next batch, and a group
whose window is full of held records gives nothing for a next batch.
"""

import time
import uuid
from typing import Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sharequeue.protocol.types import MAX_INT32
from sharequeue.repeats import SPARK_LAG, Tries
from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import DEFAULT_MAX_RECORDS_PER_TRIGGER, SourceOptions
from sharequeue_pipeline.source.admission import Admission
from sharequeue_pipeline.source.bounded_read import BoundedRead
from sharequeue_pipeline.source.group_member import GroupMember, topics_of
from sharequeue_pipeline.source.range_reads import read_ranges
from sharequeue_pipeline.source.topic_bounds import log_of


class GroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `readStream` with a group. It lives in the driver's planning process; tasks get copies."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        if options.group is None:
            raise PipelineError(
                "the option group is missing: name the share group, or set mode=log to read without one"
            )
        self._options = options
        self._group = options.group
        self._schema = schema
        self._member: GroupMember | None = None
        self._bounded: BoundedRead | None = None
        self._admission = Admission(options.min_records_per_trigger, options.max_trigger_delay_ms)
        self._initial: dict[str, Any] | None = None

    # In the driver

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            numbers = {"batch": 0, "lost": 0, "isolating": 0}
            member_id = str(uuid.uuid4())
            self._initial = {"group": self._group, "member_id": member_id, **numbers, "raised": [], "ranges": {}}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records_per_trigger or DEFAULT_MAX_RECORDS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        with GroupClient(self._options.gateway) as gateway:
            bounds = log_of(gateway, topics_of(self._options, gateway, self._group)).bounds
            self._bounded = BoundedRead(bounds, gateway.redelivery_percent(self._group))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Accept the batch of `start`, which Spark has finished, and acquire the next. Returns: `start` if none."""
        member = self._member_of(start)
        member.look_for_group(start)
        member.settle(start)
        member.isolate()
        if self._admission.waits and self._bounded is None and not member.isolating:
            lags = member.lags(SPARK_LAG.pause_s / 2)
            waiting = sum(lags.values()) if lags else self._options.min_records_per_trigger  # a new group: unknown
            if not self._admission.admits(waiting, time.monotonic() * 1000):
                Tries(SPARK_LAG).rest()
                return start
        limited = limit.max_rows if isinstance(limit, ReadMaxRows) else MAX_INT32
        acquired = member.acquire(start["batch"] + 1, limited, self._bounded)
        if not acquired:
            return start
        removed = member.removed(start)
        return {
            "group": self._group,
            "member_id": member.member_id,
            "batch": start["batch"] + 1,
            "lost": start["lost"] + member.take_lost(),
            "removed": removed,
            "isolating": member.isolating,
            "raised": member.raised,
            "ranges": ranges.encode(acquired),
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The group's lag, for progress reports: records that it has not finished, by partition."""
        return None if self._member is None else {"lag": ranges.by_topic(self._member.lags())}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        member = self._member_of(end)
        held = member.held(end)
        member.note_given(held)
        return [InputPartition((member.member_id, share)) for share in ranges.split(held, self._options.parallelism)]

    def commit(self, end: dict[str, Any]) -> None:
        self._member_of(end).settle(end)

    def stop(self) -> None:
        """Stop renewing. The records stay locked, for a restart from the checkpoint, until their locks end."""
        if self._member is not None:
            self._member.close()

    def _member_of(self, offset: dict[str, Any]) -> GroupMember:
        if not isinstance(offset, dict) or not {"member_id", "batch", "raised"} <= offset.keys():
            raise PipelineError(
                "the checkpoint was written by another source (mode=log?): give this query a new checkpoint"
            )
        if self._member is None:
            self._member = GroupMember(self._options, self._group, offset)
        return self._member

    # In the tasks

    def read(self, partition: InputPartition) -> Any:
        return read_ranges(self._options, self._schema, partition)
