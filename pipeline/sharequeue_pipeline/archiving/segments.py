"""The work of tasks: read a segment of the log, write it as Parquet by date, read it back and compare."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sharequeue_pipeline.archiving.checksum import Checksum
from sharequeue_pipeline.archiving.manifest import Archive, ArchivedFile, Segment
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import GatewayOptions
from sharequeue_pipeline.ranges import Range

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("value_is_json", pa.bool_(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True)
class SegmentTask:
    """One task: a range of one partition. `staging`: the directory it writes to; empty for a task that verifies."""

    gateway: GatewayOptions
    root: str
    entry: Range
    staging: str = ""

    @property
    def archive(self) -> Archive:
        return Archive(self.root, self.entry.topic)


def log_batches(gateway: GatewayClient, entry: Range) -> Iterator[Any]:
    """The records of a range in the log, as record batches of the archive's schema."""
    for batch in gateway.read(entry, "read_committed"):
        yield _archived(batch)


def _archived(batch: Any) -> Any:
    timestamp = batch.column("timestamp_ms").view(SCHEMA.field("timestamp").type)
    columns = [timestamp if field.name == "timestamp" else batch.column(field.name) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


class _File:
    """A Parquet file while it is being written."""

    def __init__(self, archive: Archive, staging: str, path: str) -> None:
        self._archive = archive
        self._staged = f"{staging}/{path}"
        archive.fs.create_dir(self._staged.rpartition("/")[0])
        self._writer = pq.ParquetWriter(self._staged, SCHEMA, filesystem=archive.fs, compression="zstd")
        self.path = path
        self.checksum = Checksum()

    def add(self, batch: Any) -> None:
        self.checksum.add(batch)
        self._writer.write_batch(batch)

    def close(self) -> ArchivedFile:
        """Close the file, and read it back. Raises: PipelineError: it does not hold what was written."""
        self._writer.close()
        wanted = self.checksum.hexdigest()
        found = checksum_of(self._archive, self._staged)
        if found.hexdigest() != wanted:
            raise PipelineError(
                f"{self._staged} has {found.rows} records, which are not the {self.checksum.rows} that were written"
            )
        size = self._archive.fs.get_file_info(self._staged).size
        return ArchivedFile(path=self.path, records=self.checksum.rows, bytes=size, checksum=wanted)

    def abandon(self) -> None:
        self._writer.close()


def checksum_of(archive: Archive, path: str) -> Checksum:
    """The checksum of a file, read a row group at a time. Raises: PipelineError: the file is missing or broken."""
    checksum = Checksum()
    try:
        with archive.fs.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).cast(SCHEMA).to_batches():
                    checksum.add(batch)
    except (OSError, pa.ArrowException, ValueError) as fault:
        raise PipelineError(f"{path} cannot be read: {fault}") from None
    return checksum


def archive_segment(task: SegmentTask) -> tuple[str, Segment]:
    """Write the records of a segment to staging. Returns: the directory, and the segment with its files."""
    entry, archive = task.entry, task.archive
    staging = f"{task.staging}/{uuid.uuid4().hex}"  # one for each attempt
    files: dict[str, _File] = {}
    with GatewayClient(task.gateway) as gateway:
        try:
            for batch in log_batches(gateway, entry):
                for date, part in by_date(batch):
                    if date not in files:
                        files[date] = _File(archive, staging, path_of(entry, date))
                    files[date].add(part)
            log_start = gateway.describe(entry.topic).partitions[entry.partition].log_start_offset
        except BaseException:
            for file in files.values():
                file.abandon()
            raise
    closed = [files[date].close() for date in sorted(files)]
    return staging, Segment(
        first_offset=entry.first_offset,
        last_offset=entry.last_offset,
        records=sum(file.records for file in closed),
        files=closed,
        deleted_before=log_start if log_start > entry.first_offset else None,
    )


def path_of(entry: Range, date: str) -> str:
    """The path for the records of a segment that have one date."""
    place = f"topic={entry.topic}/partition={entry.partition}/date={date}"
    return f"{place}/{entry.first_offset:020d}-{entry.last_offset:020d}.parquet"


def by_date(batch: Any) -> Iterator[tuple[str, Any]]:
    """(date in UTC, the records of that date), in the order of the records."""
    dates = batch.column("timestamp").cast(pa.date32())
    different = dates.unique()
    for date in different:
        yield str(date.as_py()), batch if len(different) == 1 else batch.filter(pc.equal(dates, date))


def verify_segment(task: SegmentTask, segment: Segment, against_log: bool) -> int:
    """Compare a segment's files with the manifest. Returns: the number of records compared.

    Args:
        against_log: compare them with the log as well, which still holds the whole segment.
    Raises: PipelineError: a file differs; the text names it.
    """
    archive, entry = task.archive, task.entry
    for file in segment.files:
        found = checksum_of(archive, f"{archive.root}/{file.path}")
        if (found.rows, found.hexdigest()) != (file.records, file.checksum):
            raise PipelineError(
                f"{file.path} is not what was archived: it has {found.rows} records and the manifest {file.records}, "
                "or the contents differ"
            )
    if not against_log:
        return segment.records
    checksums: dict[str, Checksum] = {}
    with GatewayClient(task.gateway) as gateway:
        for batch in log_batches(gateway, entry):
            for date, part in by_date(batch):
                checksums.setdefault(path_of(entry, date), Checksum()).add(part)
    logged = {path: (checksum.rows, checksum.hexdigest()) for path, checksum in checksums.items()}
    archived = {file.path: (file.records, file.checksum) for file in segment.files}
    for path in sorted(logged.keys() | archived.keys()):
        if logged.get(path) != archived.get(path):
            raise PipelineError(
                f"{path} differs from the log: the archive has {archived.get(path, (0,))[0]} records and the log "
                f"{logged.get(path, (0,))[0]} between the offsets {entry.first_offset} and {entry.last_offset}"
            )
    return segment.records
