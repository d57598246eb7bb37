"""Batch reads from a share group: `read` with `accept=read`.

Spark does not tell a batch source that its job is done. So each task is a member of its own, and accepts the records
that it has handed over. If the job fails later, the accepted records are not delivered again.
"""

import logging
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharequeue.client.consuming.outcomes import ACCEPT
from sharequeue.protocol.messages.records import FetchRequest
from sharequeue.protocol.types import AcquireMode
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.source.bounded_read import BoundedRead, passed_over
from sharequeue_pipeline.source.group_member import check_level, topics_of
from sharequeue_pipeline.source.lock_renewal import LockRenewal
from sharequeue_pipeline.source.range_reads import reject
from sharequeue_pipeline.source.record_columns import RecordColumns
from sharequeue_pipeline.source.topic_bounds import log_of

log = logging.getLogger(__name__)

FETCH_RECORDS: Final = 5000


class GroupBatchReader(DataSourceReader):
    """The reader of `read` with a group. It reads the records that are there at the start and free for the group."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        if options.accept is None:
            raise PipelineError(
                "spark.read does not know when its job is done: set accept=read (each task accepts the records it has "
                "handed over), or leave out group to read the log by offsets, or use readStream with availableNow"
            )
        if options.group is None:
            raise PipelineError("accept=read needs the option group")
        self._options = options
        self._group = options.group
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with GroupClient(self._options.gateway) as gateway:
            check_level(self._options, self._group, gateway.group_config(self._group))
            bounds = log_of(gateway, topics_of(self._options, gateway, self._group)).bounds
            percent = gateway.redelivery_percent(self._group)
            if percent == 0:
                waiting = gateway.delivered(self._group, sorted({topic for topic, _ in bounds}), 0)
                if waiting:
                    raise passed_over(self._group, waiting)
        return [InputPartition((bounds, percent)) for _ in range(self._options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        options, member_id = self._options, str(uuid.uuid4())
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            log.warning(
                "task %d runs again: it does not read the records that its earlier attempt accepted",
                context.partitionId(),
            )
        columns = RecordColumns(options, self._schema)
        renewal = LockRenewal(options.gateway, self._group, member_id, enabled=options.lock_renew)
        with closing(renewal), GroupClient(options.gateway) as gateway:
            yield from self._read(gateway, BoundedRead(*partition.value), columns, member_id, renewal)

    def _read(
        self,
        gateway: GroupClient,
        bounded: BoundedRead,
        columns: RecordColumns,
        member_id: str,
        renewal: LockRenewal,
    ) -> Iterator[Any]:
        options = self._options
        topics = sorted({topic for topic, _ in bounded.places})
        number = 0
        while True:
            if not bounded.left:
                bounded.reopen(gateway.delivered(self._group, topics, 0))
                if not bounded.left:
                    return
            request = FetchRequest(
                topic_partitions=bounded.left,
                member_id=member_id,
                max_records=min(FETCH_RECORDS, bounded.most or FETCH_RECORDS),
                max_wait_ms=0,
                acquire_mode=AcquireMode(options.acquire_mode),
                fetch_id=str(number),
                with_records=False,
            )
            number += 1
            found, lock_ms = gateway.fetch(self._group, request)
            if not found:
                return
            bounded.note(found)
            renewal.hold(number, found, lock_ms)
            for entry in found:
                for records in gateway.read(entry, "read_uncommitted"):
                    batch = columns.batch(entry, records)
                    if columns.rejected:
                        reject(gateway, self._group, member_id, columns)
                    yield batch
            renewal.drop(number)
            lost = gateway.acknowledge_held(self._group, member_id, found, ACCEPT).lost
            if lost:
                log.warning(
                    "%d ranges were read, but not accepted, because their locks had ended: they are delivered again",
                    len(lost),
                )
