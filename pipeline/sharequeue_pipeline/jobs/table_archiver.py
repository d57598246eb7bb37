"""One run of `archive --format delta`: plan, write in waves with a commit each, verify, delete from the log.

The driver asks the table how far it has each partition. Tasks write files that no reader sees, and one commit for a
wave adds them and says how far their partitions are archived now. A run that is killed loses one wave; its files are
leftovers that VACUUM removes. Two runs at once write both, and one of them fails at its commit.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.archiving.delta_table import Progress, TopicTable, table_schema
from sharequeue_pipeline.archiving.table_files import TableTask, WrittenSegment, verify_range, write_segment
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.schema import pinned, value_type

WAVE: Final = 2
"""Segments of one wave, per task slot: after a crash, this much work is repeated."""


class TableArchiver:
    """One run over one topic."""

    def __init__(
        self,
        spark: SparkSession,
        options: SourceOptions,
        root: str,
        topic: TopicDescription,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._options = options = pinned(options)
        self._topic = topic
        self._say = say
        self._target = TopicTable(root, topic.name, topic.topic_id)
        self._schema = table_schema(options.key_format, value_type(options))
        self._table = self._target.open(self._schema, [entry.partition for entry in topic.partitions])
        self._new = {entry.partition: [0, 0] for entry in topic.partitions}
        """[records, files] of this run, by partition."""
        self._gaps: dict[int, dict[str, int]] = {}
        self._malformed = 0
        self._verified = 0

    @property
    def _wave(self) -> int:
        return WAVE * self._spark.sparkContext.defaultParallelism

    def _task(self, entry: Range) -> TableTask:
        return TableTask(self._options, self._schema, self._target.uri, entry)

    def _reached(self, partition: int) -> int:
        return self._target.next_offset(self._table, partition)

    def run(self, segment_records: int) -> None:
        """Archive the records from the end of the last run to the last stable offset."""
        segments = list(self._plan(segment_records))
        for first in range(0, len(segments), self._wave):
            self._commit(self._written(segments[first : first + self._wave]))

    def _written(self, wave: Sequence[Range]) -> list[WrittenSegment]:
        tasks = [self._task(entry) for entry in wave]
        return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(write_segment).collect()

    def _commit(self, wave: Sequence[WrittenSegment]) -> None:
        reached = {each.entry.partition: each.entry.last_offset + 1 for each in wave}  # ascending
        ranges = [[each.entry.partition, each.entry.first_offset, each.entry.last_offset] for each in wave]
        gaps = [{"partition": place, **self._gaps[place]} for place in reached if place in self._gaps]
        self._target.commit(
            self._table,
            [file for each in wave for file in each.files],
            [Progress(*each) for each in reached.items()],
            {"topic": self._topic.name, "ranges": ranges, "gaps": gaps},
        )
        for each in wave:
            self._new[each.entry.partition][0] += each.records
            self._new[each.entry.partition][1] += len(each.files)
            self._malformed += each.malformed

    def _plan(self, segment_records: int) -> Iterator[Range]:
        for entry in self._topic.partitions:
            begin = self._reached(entry.partition)
            if entry.log_start_offset > begin:
                if begin:
                    self._gaps[entry.partition] = {"first_offset": begin, "last_offset": entry.log_start_offset - 1}
                    self._say(
                        f"sharequeue: {self._topic.name}-{entry.partition}: offsets {begin} to "
                        f"{entry.log_start_offset - 1} left the log before they were archived"
                    )
                begin = entry.log_start_offset
            for first in range(begin, entry.last_stable_offset, segment_records):
                last = min(first + segment_records, entry.last_stable_offset) - 1
                yield Range(self._topic.name, entry.partition, first, last)

    def verify(self, segment_records: int, before: dict[int, int] | None = None) -> None:
        """Compare the table with the records that the log still has; with `before`, those below these offsets."""
        whole = self._topic.config["cleanup.policy"] != "compact"
        work = []
        for entry in self._topic.partitions:
            end = self._reached(entry.partition) if before is None else before.get(entry.partition, 0)
            for first in range(entry.log_start_offset, end, segment_records):
                last = min(first + segment_records, end) - 1
                work.append((self._task(Range(self._topic.name, entry.partition, first, last)), whole))
        version = self._table.version()
        for first in range(0, len(work), 8 * self._wave):
            part = work[first : first + 8 * self._wave]
            tasks = self._spark.sparkContext.parallelize(part, len(part))
            self._verified += sum(tasks.map(lambda each: verify_range(each[0], version, each[1])).collect())

    def deletable(self, finished: dict[int, dict[str, int]]) -> dict[int, int]:
        """New log starts: what is archived, and below `finished` of every group, by partition and group."""
        before = {}
        for entry in self._topic.partitions:
            safe = min([self._reached(entry.partition), *finished.get(entry.partition, {}).values()])
            if safe > entry.log_start_offset:
                before[entry.partition] = safe
        return before

    def report(self, deleted: dict[int, int]) -> dict[str, Any]:
        return {
            "topic": self._topic.name,
            "records": sum(records for records, _ in self._new.values()),
            "malformed_values": self._malformed,
            "verified_records": self._verified,
            "table_version": self._table.version(),
            "partitions": [
                {
                    "partition": partition,
                    "records": records,
                    "files": files,
                    "next_offset": self._reached(partition),
                    "gaps": [self._gaps[partition]] if partition in self._gaps else [],
                    **({"deleted_before": deleted[partition]} if partition in deleted else {}),
                }
                for partition, (records, files) in sorted(self._new.items())
            ],
        }
