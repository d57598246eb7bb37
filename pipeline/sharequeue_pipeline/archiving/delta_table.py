"""A topic as a Delta table: its columns, how far each partition is in it, and the commits that change it.

The table's own log says how far the archive is. A commit adds files and, as an application transaction of Delta, the
next offset of their partitions: both or neither. So there is nothing to keep beside the table, and VACUUM and OPTIMIZE
need to know nothing of us: a file that no commit names is a leftover, and offsets name records wherever they lie.

There are two kinds. An archive has every record, and commits add files. A table of the latest records has the last
record of each key, and commits merge rows. Both say how far they are in the same way, under names of their own.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark

from sharequeue_pipeline.arrow_schema import arrow_schema
from sharequeue_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from deltalake import DeltaTable

DATE: Final = "date"
"""The column that the table is partitioned by: the date of the timestamp in UTC."""

TOMBSTONE: Final = "tombstone"
"""A column of the rows of a merge: whether the record deletes its key."""

_FORGETS: Final = "delta.setTransactionRetentionDuration"


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


class Progress(NamedTuple):
    """What one commit says of a partition: offsets below `next_offset` are archived or gone."""

    partition: int
    next_offset: int


def table_schema(key: str, value: str) -> spark.StructType:
    """The columns without `date`, given the types of keys and values as DDL. It needs a SparkSession."""
    verbatim = "value_is_json boolean, " if value == "binary" else ""
    made = spark.DataType.fromDDL(
        f"struct<partition int, offset bigint, timestamp timestamp, key {key}, value {value}, {verbatim}"
        "headers map<string,string>>"
    )
    assert isinstance(made, spark.StructType)
    return made


class TopicTable:
    """The Delta table of one topic. Methods raise PipelineError if the table cannot be read or written."""

    def __init__(self, root: str, topic: str, topic_id: str, *, latest: bool = False) -> None:
        """`latest`: a table of the last record of each key."""
        self._latest = latest
        self.uri = root if "://" in root else os.path.abspath(root)
        self._topic = topic
        self._topic_id = topic_id
        self._delta = _library()

    def open(self, schema: spark.StructType, partitions: Iterable[int]) -> "DeltaTable":
        """The table; it is created if there is none.

        Raises: PipelineError: it has other columns, or it is not an archive of this topic.
        """
        wanted = arrow_schema(schema)
        if not self._latest:
            wanted = wanted.append(pa.field(DATE, pa.date32()))
        columns = self._delta.Schema.from_arrow(wanted)
        try:
            if not self._delta.DeltaTable.is_deltatable(self.uri):
                return self._create(columns, partitions)
            table: DeltaTable = self._delta.DeltaTable(self.uri)
        except (self._delta.exceptions.DeltaError, OSError, ValueError) as fault:
            raise PipelineError(f"the table at {self.uri} cannot be opened: {fault}") from None
        if all(table.transaction_version(self._transaction(each)) is None for each in partitions):
            raise PipelineError(
                f"the table at {self.uri} is not {'a table of the latest records' if self._latest else 'an archive'} of "
                f"the topic {self._topic!r} with the id {self._topic_id}: give another directory"
            )
        if _FORGETS in table.metadata().configuration:
            raise PipelineError(
                f"the table at {self.uri} has the property {_FORGETS}, with which it forgets how far it is archived: "
                "take it away, or give another directory"
            )
        if table.schema() != columns:
            raise PipelineError(
                f"the table at {self.uri} has other columns: give the same --key-format, --value-format and "
                "--value-schema as for the first run, or another directory"
            )
        return table

    def _create(self, columns: Any, partitions: Iterable[int]) -> "DeltaTable":
        begun = [self._delta.Transaction(self._transaction(each), 0) for each in partitions]
        table: DeltaTable = self._delta.DeltaTable.create(
            self.uri,
            schema=columns,
            mode="error",
            partition_by=["partition" if self._latest else DATE],
            description=f"{'last record of each key' if self._latest else 'records'} of the topic {self._topic}",
            commit_properties=self._delta.CommitProperties(app_transactions=begun),
        )
        return table

    def _transaction(self, partition: int) -> str:
        return f"sharequeue{'-latest' if self._latest else ''}/{self._topic_id}/{partition}"

    def next_offset(self, table: "DeltaTable", partition: int) -> int:
        """Where the archive of a partition goes on."""
        return table.transaction_version(self._transaction(partition)) or 0

    def commit(self, table: "DeltaTable", files: Iterable[TableFile], reached: Iterable[Progress], note: Any) -> None:
        """Add files, and say how far their partitions are archived, at once.

        Args:
            note: JSON for the history of the table.
        Raises: PipelineError: another run has archived the same partitions since the table was opened.
        """
        now_ms = int(time.time() * 1000)
        actions = [
            self._delta.transaction.AddAction(
                path=file.path,
                size=file.size,
                partition_values={DATE: file.date},
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps(_stats(file)),
            )
            for file in files
        ]
        with self._committing():
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=self._properties(reached, note),
            )
        table.update_incremental()

    def merge(self, table: "DeltaTable", rows: pa.Table, reached: Progress, note: Any) -> None:
        """Merge the last records of some keys, and say how far their partition is, at once.

        Args:
            rows: the columns of the table and `TOMBSTONE`, of one partition; each key once.
            A row without a key is added.
            note: JSON for the history of the table.
        Raises: PipelineError: another run has changed the table since it was opened.
        """
        columns = {name: f's."{name}"' for name in rows.column_names if name != TOMBSTONE}
        with self._committing():
            (
                table.merge(
                    rows,
                    predicate=f't."partition" = {reached.partition} AND t."key" = s."key"',
                    source_alias="s",
                    target_alias="t",
                    commit_properties=self._properties([reached], note),
                )
                .when_matched_delete(predicate=f"s.{TOMBSTONE}")
                .when_matched_update(updates=columns)
                .when_not_matched_insert(updates=columns, predicate=f"NOT s.{TOMBSTONE}")
                .execute()
            )
        table.update_incremental()
        if self.next_offset(table, reached.partition) != reached.next_offset:  # nothing to change: no commit
            self.commit(table, [], [reached], note)

    def _properties(self, reached: Iterable[Progress], note: Any) -> Any:
        return self._delta.CommitProperties(
            custom_metadata={"sharequeue": json.dumps(note)},
            app_transactions=[
                self._delta.Transaction(self._transaction(each.partition), each.next_offset) for each in reached
            ],
        )

    @contextlib.contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except self._delta.exceptions.CommitFailedError as fault:
            if "oncurrent" in str(fault):
                raise PipelineError(f"another run writes {self._topic} to {self.uri}") from None
            raise PipelineError(f"the table at {self.uri} took no commit: {fault}") from None
        except (self._delta.exceptions.DeltaError, OSError) as fault:
            raise PipelineError(f"the table at {self.uri} took no commit: {fault}") from None


def _library() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - tasks import this module, and need no table
        import deltalake.exceptions  # noqa: PLC0415
        import deltalake.transaction  # noqa: PLC0415
    except ImportError:
        raise PipelineError("a Delta table needs the package deltalake: pip install 'sharequeue[spark]'") from None
    return deltalake


def _stats(file: TableFile) -> Mapping[str, Any]:
    """The statistics by which readers of the table leave files out."""
    return {
        "numRecords": file.records,
        "minValues": {"partition": file.partition, "offset": file.first_offset, "timestamp": _time(file.first_ms)},
        "maxValues": {"partition": file.partition, "offset": file.last_offset, "timestamp": _time(file.last_ms)},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }


def _time(ms: int) -> str:
    return str(pa.scalar(ms, pa.timestamp("ms")).cast(pa.string()).as_py()).replace(" ", "T") + "Z"
