"""The writer of `write`, and its note to the program that asked for the write."""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sharequeue_pipeline import driver_notes
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.writing import Writer, Written


class BatchWriter(Writer, DataSourceArrowWriter):
    """The writer of `write`. A repeated task writes nothing twice; a repeated job needs `writeId` for that."""

    def __init__(self, options: SinkOptions, schema: spark.StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        self.learn_ends()
        self._write_id = options.write_id or str(uuid.uuid4())

    def transactional_id(self) -> str | None:
        return self.options.transactional_id or self.options.write_id

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.give_up(messages, None if self.transaction is None else self.transaction.transaction_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the transaction if there is one. Say how many records were written and how many were known, to the
        program that asked for it."""
        if self.transaction is not None:
            self.end(messages, self.transaction.transaction_id)
        self.report_others(messages)
        written = [message for message in messages if isinstance(message, Written)]
        if self.options.write_id is not None:
            counts = sum(each.records for each in written), sum(each.known for each in written)
            driver_notes.leave(_note(self.options.write_id), json.dumps(counts))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.send(iterator, self._write_id, self.options.write_id)


def written(write_id: str) -> tuple[int, int]:
    """The records of a write that this driver has made: how many were sent, and how many of them were known before."""
    records, known = json.loads(driver_notes.find(_note(write_id)) or "[0, 0]")
    return records, known


def _note(write_id: str) -> str:
    return f"write {write_id}"
