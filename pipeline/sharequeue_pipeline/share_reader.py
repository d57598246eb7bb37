"""Batch reads from a share group: `read` with `accept=read`.

Spark tells a batch source nothing once it has been read, so each task is a member of its own and accepts what it has
handed over. Should the job fail later, what it accepted is not delivered again.
"""

import logging
import uuid
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharequeue.protocol.messages import FetchRequest
from sharequeue.protocol.types import AcquireMode
from sharequeue_pipeline.columns import Columns
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway import Gateway
from sharequeue_pipeline.log_reader import bounds_of
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.renewing import Renewal

log = logging.getLogger(__name__)

FETCH_RECORDS: Final = 5000

Targets = dict[tuple[str, int], int]


class ShareReader(DataSourceReader):
    """The reader of `read` with a group. Takes what the group may have of the records that are there at the start."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        if options.accept is None:
            raise PipelineError(
                "spark.read cannot tell a group when the job is done: set accept=read (each task accepts what it has "
                "handed over), or leave out group to read the log by offsets, or use readStream with availableNow"
            )
        if options.group is None:
            raise PipelineError("accept=read needs the option group")
        self._options = options
        self._group = options.group
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with Gateway(self._options.connection) as gateway:
            targets = {place: end for place, (_, end) in bounds_of(gateway, self._options).items()}
        return [InputPartition(targets) for _ in range(self._options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        targets: Targets = partition.value
        options, member_id = self._options, str(uuid.uuid4())
        columns = Columns(options, self._schema)
        renewal = Renewal(options.connection, self._group, member_id) if options.lock_renew else None
        number = 0
        with Gateway(options.connection) as gateway:
            while True:
                request = FetchRequest(
                    topics=list(options.topics),
                    member_id=member_id,
                    max_records=FETCH_RECORDS,
                    max_wait_ms=0,
                    acquire_mode=AcquireMode(options.acquire_mode),
                    fetch_id=str(number),
                    with_records=False,
                )
                number += 1
                found, lock_ms = gateway.fetch(self._group, request)
                wanted, later = _parted(found, targets)
                gateway.acknowledge(self._group, member_id, later, "release")
                if not wanted:
                    return
                if renewal is not None:
                    renewal.hold(number, wanted, lock_ms)
                for entry in wanted:
                    for arrow in gateway.read(entry, options.isolation):
                        yield from columns.batches(entry, arrow)
                if renewal is not None:
                    renewal.drop(number)
                lost = gateway.acknowledge(self._group, member_id, wanted, "accept")
                if lost:
                    log.warning("%d ranges were read, but their locks had ended: they are delivered again", len(lost))


def _parted(found: list[Range], targets: Targets) -> tuple[list[Range], list[Range]]:
    """The ranges that were there at the start, and what came later."""
    wanted, later = [], []
    for entry in found:
        end = targets.get((entry.topic, entry.partition), 0)
        if entry.first_offset < end:
            wanted.append(entry._replace(last_offset=min(entry.last_offset, end - 1)))
        if entry.last_offset >= end:
            later.append(entry._replace(first_offset=max(entry.first_offset, end)))
    return wanted, later
