"""A topic as a Delta table: its columns, how far each partition is in it, and the commits that change it.

The table's own log says how far the archive is. A commit adds files and, as an application transaction of Delta, the
next offset of their partitions: both or neither. So there is nothing to keep beside the table, and VACUUM and OPTIMIZE
need to know nothing of us: a file that no commit names is a leftover, and offsets name records wherever they lie.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import types as spark

from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.archiving.table_files import DATE, TableFile, TableTask
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import REGISTRY_FORMATS, SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.schema import RESCUED, arrow_schema, value_type

_FORGETS: Final = "delta.setTransactionRetentionDuration"


def table_schema(key: str, value: str, *, typed: bool = False) -> spark.StructType:
    """The columns without `date`, given the types of keys and values as DDL. It needs a SparkSession.

    `typed`: values have a schema of a registry, so the table has a column for what does not fit it.
    """
    verbatim = "value_is_json boolean, " if value == "binary" and not typed else ""
    rescued = f", {RESCUED} string" if typed else ""
    made = spark.DataType.fromDDL(
        f"struct<partition int, offset bigint, timestamp timestamp, key {key}, value {value}, {verbatim}"
        f"headers map<string,string>{rescued}>"
    )
    assert isinstance(made, spark.StructType)
    return made


def _merged(old: spark.DataType, new: spark.DataType) -> spark.DataType:
    """A type with the fields of both. A field that both have keeps the type that it has in `old`."""
    if isinstance(old, spark.StructType) and isinstance(new, spark.StructType):
        fields = [
            spark.StructField(each.name, _merged(each.dataType, new[each.name].dataType))
            if each.name in new.names
            else each
            for each in old
        ]
        return spark.StructType([*fields, *(each for each in new if each.name not in old.names)])
    if isinstance(old, spark.ArrayType) and isinstance(new, spark.ArrayType):
        return spark.ArrayType(_merged(old.elementType, new.elementType))
    return old


class TopicTable:
    """The Delta table of one topic. Methods raise PipelineError if the table cannot be read or written."""

    def __init__(self, root: str, topic: TopicDescription, options: SourceOptions, *, merge: bool = False) -> None:
        """Open the table, or create it.

        Args:
            options: how keys and values become columns.
            merge: whether the table gets the columns of values that it lacks.
        Raises: PipelineError: the table has other columns, or it is not an archive of this topic.
        """
        self.uri = root if "://" in root else os.path.abspath(root)
        self._topic = topic
        self._options = options
        typed = options.value_format in REGISTRY_FORMATS
        self._schema = table_schema(options.key_format, value_type(options), typed=typed)
        self._table = self._opened()
        self._take_columns(merge)

    def _opened(self) -> DeltaTable:
        columns = Schema.from_arrow(arrow_schema(self._schema).append(pa.field(DATE, pa.date32())))
        try:
            if not DeltaTable.is_deltatable(self.uri):
                return self._create(columns)
            table = DeltaTable(self.uri)
        except (DeltaError, OSError, ValueError) as fault:
            raise PipelineError(f"the table at {self.uri} cannot be opened: {fault}") from None
        if all(table.transaction_version(self._transaction(each.partition)) is None for each in self._topic.partitions):
            raise PipelineError(
                f"the table at {self.uri} is not an archive of the topic {self._topic.name!r} with the id "
                f"{self._topic.topic_id}: give another directory"
            )
        if _FORGETS in table.metadata().configuration:
            raise PipelineError(
                f"the table at {self.uri} has the property {_FORGETS}, with which it forgets how far it is archived: "
                "take it away, or give another directory"
            )
        return table

    def _take_columns(self, merge: bool) -> None:
        """Take the columns of the table for those of the run, after the table got those that it lacks, if it may.

        Raises: PipelineError: it may not, or a column that is not of values is another one.
        """
        there = spark.StructType.fromJson(json.loads(self._table.schema().to_json()))
        there = spark.StructType([each for each in there if each.name != DATE])
        wanted, merged = self._schema, _merged(there, self._schema)
        assert isinstance(merged, spark.StructType)
        if _fixed(there) != _fixed(wanted):
            raise PipelineError(
                f"the table at {self.uri} has other columns: give the same --key-format and --value-format as for the first "
                "run, or another directory"
            )
        if merged.simpleString() != there.simpleString():
            if not merge:
                raise PipelineError(
                    f"the table at {self.uri} lacks columns for values of this --value-schema: add them with "
                    "--merge-schema, or give the --value-schema of the run before"
                )
            self._widen(spark.StructType([each for each in merged if each.name in ("value", RESCUED)]))
        self._schema = merged

    def _widen(self, columns: spark.StructType) -> None:
        """Add what the columns have and the table lacks, and note from which offsets on it has it."""
        noted = [
            Transaction(self._columns(each.partition), self.next_offset(each.partition))
            for each in self._topic.partitions
        ]
        with self._committing():
            self._table.alter.add_columns(
                Schema.from_arrow(arrow_schema(columns)).fields,
                commit_properties=CommitProperties(app_transactions=noted),
            )

    def _create(self, columns: Any) -> DeltaTable:
        begun = [Transaction(self._transaction(each.partition), 0) for each in self._topic.partitions]
        return DeltaTable.create(
            self.uri,
            schema=columns,
            mode="error",
            partition_by=[DATE],
            description=f"records of the topic {self._topic.name}",
            commit_properties=CommitProperties(app_transactions=begun),
        )

    def _transaction(self, partition: int) -> str:
        return f"sharequeue/{self._topic.topic_id}/{partition}"

    def _columns(self, partition: int) -> str:
        """The transaction that says from which offset on a partition has values in all columns."""
        return f"{self._transaction(partition)}/columns"

    @property
    def version(self) -> int:
        return self._table.version()

    def next_offset(self, partition: int) -> int:
        """Return where the table goes on with a partition."""
        return self._table.transaction_version(self._transaction(partition)) or 0

    def gaps(self) -> dict[int, dict[str, int]]:
        """By partition: the first and last offset that left the log before they came into the table."""
        return {
            entry.partition: {"first_offset": begin, "last_offset": entry.log_start_offset - 1}
            for entry in self._topic.partitions
            if 0 < (begin := self.next_offset(entry.partition)) < entry.log_start_offset
        }

    def missing(self, segment_records: int) -> list[TableTask]:
        """Tasks for the segments of the log that the table lacks, up to the last stable offset, in order."""
        return [
            task
            for entry in self._topic.partitions
            for task in self.tasks(
                entry.partition,
                max(self.next_offset(entry.partition), entry.log_start_offset),
                entry.last_stable_offset,
                segment_records,
            )
        ]

    def tasks(self, partition: int, begin: int, end: int, segment_records: int) -> Iterator[TableTask]:
        """Tasks for the offsets from `begin` on, below `end`."""
        widened = self._table.transaction_version(self._columns(partition)) or 0
        while begin < end:
            last = min(begin + segment_records, end, widened if begin < widened else end) - 1
            entry = Range(self._topic.name, partition, begin, last, topic_id=self._topic.topic_id)
            yield TableTask(self._options, self._schema, self.uri, entry, older=begin < widened)
            begin = last + 1

    def commit(self, files: Iterable[TableFile], reached: Mapping[int, int], note: Any) -> None:
        """Add files, and say how far their partitions are archived, at once.

        Args:
            reached: by partition: offsets below this one are archived or gone.
            note: JSON for the history of the table.
        Raises: PipelineError: another run has archived the same partitions since the table was opened.
        """
        now_ms = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(
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
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata={"sharequeue": json.dumps(note)},
                    app_transactions=[
                        Transaction(self._transaction(partition), next_offset)
                        for partition, next_offset in reached.items()
                    ],
                ),
            )
        self._table.update_incremental()

    @contextlib.contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as fault:
            if isinstance(fault, CommitFailedError) and "oncurrent" in str(fault):
                raise PipelineError(f"another run writes {self._topic.name} to {self.uri}") from None
            raise PipelineError(f"the table at {self.uri} took no commit: {fault}") from None


def _fixed(columns: spark.StructType) -> dict[str, str]:
    """The columns that never change, with their types. A struct of values may get fields."""
    texts = {each.name: each.dataType.simpleString() for each in columns if each.name != RESCUED}
    return {**texts, "value": texts["value"].partition("<")[0]}


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
