"""`compact --to`: bring a Delta table of the last record of each key up to date with a topic,
before the log is compacted.

Tasks reduce segments of the log, and the driver merges one segment after the other, in the order of offsets. Each merge
also says how far its partition is, in the same commit. So a run that is killed leaves a table of some earlier offset,
and the next run continues there.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.archiving.delta_table import Progress, TopicTable
from sharequeue_pipeline.archiving.latest_rows import latest_rows
from sharequeue_pipeline.jobs.command_line import say
from sharequeue_pipeline.options import SourceOptions


class LatestTable:
    """One run over one topic."""

    def __init__(self, spark: SparkSession, options: SourceOptions, root: str, topic: TopicDescription) -> None:
        self._spark = spark
        self._topic = topic
        self._table = TopicTable(root, topic, options, latest=True)
        self._records = 0
        self._malformed = 0

    def merges(self, segment_records: int) -> Iterator[Progress]:
        """Merge the records from the end of the last run to the last stable offset. Yields: each commit."""
        for partition, (first, last) in self._table.gaps().items():
            say(
                f"sharequeue: {self._topic.name}-{partition}: offsets {first} to {last} left the log before they came "
                "into the table"
            )
        tasks = self._table.missing(segment_records)
        if not tasks:
            return
        reduced = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(latest_rows)
        for each in reduced.toLocalIterator(prefetchPartitions=True):  # in order, two segments in memory
            with pa.ipc.open_stream(each.rows) as stream:
                rows = stream.read_all()
            entry = each.entry
            reached = Progress(entry.partition, entry.last_offset + 1)
            note = {"topic": self._topic.name, "ranges": [[entry.partition, entry.first_offset, entry.last_offset]]}
            self._table.merge(rows, reached, note)
            self._records += each.records
            self._malformed += each.malformed
            yield reached

    def run(self, segment_records: int) -> dict[str, Any]:
        """Make all merges. Returns: a report."""
        for _ in self.merges(segment_records):
            pass
        return {"records": self._records, "malformed_values": self._malformed, "table_version": self._table.version}
