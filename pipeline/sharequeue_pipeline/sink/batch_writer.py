"""The writer of `write`, and its report to the program that asked for the write."""

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.writing import Writer, Written


class BatchWriter(Writer, DataSourceArrowWriter):
    """The writer of `write`. A repeated task writes nothing twice; a repeated job needs `writeId` for that."""

    def __init__(
        self, options: SinkOptions, schema: spark.StructType, overwrite: bool, report_to: str | None = None
    ) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        self.learn_ends()
        self._write_id = options.write_id or str(uuid.uuid4())
        self._report_to = report_to

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
        if self._report_to is not None and self.options.write_id is not None:
            records, known = sum(each.records for each in written), sum(each.known for each in written)
            note = json.dumps({"records": records, "known": known})
            (Path(self._report_to) / f"{_file_name(self.options.write_id)}.write").write_text(note)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.send(iterator, self._write_id, self.options.write_id)


class WriteReport(NamedTuple):
    """The records of a write with a `writeId`: how many were sent, and how many of them were known before."""

    records: int
    known: int


def written(directory: str, write_id: str) -> WriteReport | None:
    """The report of a write that this driver has made. None: the write has not ended."""
    try:
        return WriteReport(**json.loads((Path(directory) / f"{_file_name(write_id)}.write").read_text()))
    except FileNotFoundError:
        return None


def _file_name(write_id: str) -> str:
    """A name for a file."""
    return hashlib.sha256(write_id.encode()).hexdigest()
