"""The work of tasks for a Delta table: write a segment of the log as typed columns, or compare it with the table.

Writing needs no library for Delta: the driver commits the files.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.record_columns import RecordColumns
from sharequeue_pipeline.source.schema import RESCUED

DATE: Final = "date"
"""The column that the table is partitioned by: the date of the timestamp in UTC."""

_MS: Final = pa.timestamp("ms", "UTC")


@dataclass(frozen=True)
class TableTask:
    """One task: a range of one partition. `options`: the gateway, and how keys and values are read.

    `older`: the table had fewer columns of values when it got the range.
    """

    options: SourceOptions
    schema: spark.StructType
    uri: str
    entry: Range
    older: bool = False


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A Parquet file that a task has written below the table's root, with the records of one partition and date."""

    path: str
    size: int
    date: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True)
class WrittenSegment:
    """`malformed`: how many values could not be read. `rescued`: how many have a part that no column took."""

    entry: Range
    files: list[TableFile]
    malformed: int
    rescued: int

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


class _File:
    """A Parquet file while it is being written. The name is new for each attempt: attempts never meet."""

    def __init__(self, files: Any, root: str, entry: Range, date: str, schema: Any) -> None:
        self._files, self._entry, self._date = files, entry, date
        self._name = f"{DATE}={date}/{entry.partition}-{entry.first_offset:020d}-{uuid.uuid4().hex}.parquet"
        self._path = f"{root}/{self._name}"
        files.create_dir(self._path.rpartition("/")[0])
        self._writer = pq.ParquetWriter(self._path, schema, filesystem=files, compression="zstd")
        self._records = 0
        self._offsets: list[int] = []
        self._times: list[int] = []

    def add(self, batch: Any) -> None:
        self._writer.write_batch(batch)
        times = batch.column("timestamp").cast(_MS, safe=False).view(pa.int64())
        self._records += batch.num_rows
        for column, found in ((batch.column("offset"), self._offsets), (times, self._times)):
            ends = pc.min_max(column)
            found[:] = [min([ends["min"].as_py(), *found[:1]]), max([ends["max"].as_py(), *found[1:]])]

    def close(self) -> TableFile:
        """Close the file. Raises: PipelineError: its footer does not tell what was written."""
        self._writer.close()
        with self._files.open_input_file(self._path) as opened, pq.ParquetFile(opened) as file:
            found = file.metadata.num_rows
        if found != self._records:
            raise PipelineError(f"{self._path} has {found} records, and {self._records} were written")
        return TableFile(
            path=self._name,
            size=self._files.get_file_info(self._path).size,
            date=self._date,
            partition=self._entry.partition,
            records=self._records,
            first_offset=self._offsets[0],
            last_offset=self._offsets[1],
            first_ms=self._times[0],
            last_ms=self._times[1],
        )

    def abandon(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            self._files.delete_file(self._path)


def file_system(uri: str) -> tuple[Any, str]:
    """pyarrow's file system, and the path there. Raises: PipelineError: it knows no such place."""
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
    except (OSError, ValueError) as fault:
        raise PipelineError(f"{uri!r} cannot hold a table: {fault}") from None
    return found


def by_date(batch: Any) -> Iterator[tuple[str, Any]]:
    """(date in UTC, the records of that date), in the order of the records."""
    dates = batch.column("timestamp").cast(pa.date32())
    different = dates.unique()
    for date in different:
        yield str(date.as_py()), batch if len(different) == 1 else batch.filter(pc.equal(dates, date))


def _batches(columns: RecordColumns, task: TableTask) -> Iterator[Any]:
    with GatewayClient(task.options.gateway) as gateway:
        for records in gateway.read(task.entry, "read_committed"):
            yield columns.batch(task.entry, records)


def write_segment(task: TableTask) -> WrittenSegment:
    """Write the records of a segment below the table's root. No reader sees them until a commit names the files."""
    columns = RecordColumns(task.options, task.schema)
    files, root = file_system(task.uri)
    open_files: dict[str, _File] = {}
    try:
        for batch in _batches(columns, task):
            for date, part in by_date(batch):
                if date not in open_files:
                    open_files[date] = _File(files, root, task.entry, date, columns.arrow_schema)
                open_files[date].add(part)
        closed = [open_files[date].close() for date in sorted(open_files)]
    except BaseException:
        for file in open_files.values():
            file.abandon()
        raise
    return WrittenSegment(task.entry, closed, columns.malformed, columns.rescued)


def verify_range(task: TableTask, version: int, whole: bool) -> int:
    """Compare the records of a range in the table with those in the log. Returns: how many the log has.

    Args:
        version: of the table.
        whole: the log has all records of the range, so the table may not have more.
    Raises: PipelineError: they differ.
    """
    from deltalake import DeltaTable  # noqa: PLC0415 - not needed for writing

    columns = RecordColumns(task.options, task.schema)
    logged = pa.Table.from_batches(_batches(columns, task), schema=columns.arrow_schema)
    if task.older:
        logged = logged.drop_columns(["value", RESCUED])
    entry = task.entry
    try:
        found = (
            DeltaTable(task.uri, version=version)
            .to_pyarrow_dataset()
            .to_table(
                columns=logged.column_names,
                filter=(pc.field("partition") == entry.partition)
                & (pc.field("offset") >= entry.first_offset)
                & (pc.field("offset") <= entry.last_offset),
            )
        )
    except (OSError, pa.ArrowException, ValueError) as fault:
        raise PipelineError(f"the table at {task.uri} cannot be read: {fault}") from None
    found = found.sort_by("offset").cast(logged.schema)
    if not whole:
        found = found.filter(pc.is_in(found["offset"], logged["offset"].combine_chunks()))
    if not found.equals(logged) and repr(found.to_pylist()) != repr(logged.to_pylist()):  # NaN equals NaN here
        raise PipelineError(
            f"the table at {task.uri} differs from the log: it has {found.num_rows} records and the log "
            f"{logged.num_rows} of partition {entry.partition} between the offsets {entry.first_offset} and "
            f"{entry.last_offset}, or the contents differ"
        )
    return int(logged.num_rows)
