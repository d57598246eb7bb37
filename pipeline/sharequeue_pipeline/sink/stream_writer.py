"""The writer of `writeStream`. Spark has Arrow writers of streams since 4.1."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from sharequeue_pipeline import driver_notes
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.transactions import check_stream, given_by_groups, query_id_of
from sharequeue_pipeline.sink.writing import Writer


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """The writer of `writeStream`. A batch that is repeated after a crash writes nothing twice."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        if options.write_id is not None:
            raise PipelineError("leave out writeId: a stream names its writes by query and batch")
        if options.transactional:
            check_stream(options)
        super().__init__(options, schema)
        self._query: str | None = None
        """The query as its checkpoint names it. None: transactionalId names the transactions."""

    def prepare(self) -> None:
        self.learn_ends()
        super().prepare()

    def transactional_id(self) -> str | None:
        if self.options.transactional_id is None:
            assert self.options.checkpoint is not None
            self._query = query_id_of(self.options.checkpoint)
        return self.options.transactional_id or self._query

    def _remembered(self) -> str | None:
        """The transaction that this driver has begun for the micro-batch, as `transactional_id` names it."""
        with suppress(PipelineError):
            name = self.options.transactional_id or query_id_of(self.options.checkpoint or "")
            return driver_notes.find(name)
        return None

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.report_others(messages)
        if self.options.transactional:
            self.end(messages, self._remembered(), given_by_groups(self.options, batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self.options.transactional:
            self.give_up(messages, self._remembered())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if self._query is not None and query != self._query:
            raise PipelineError(
                f"the checkpoint {self.options.checkpoint} belongs to the query {self._query}, not {query}"
            )
        return self.send(iterator, f"{query}:{batch}", f"{query}:{batch}")
