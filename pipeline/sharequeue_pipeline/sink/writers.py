"""The writers of `write` and `writeStream`: each task cuts its records into requests and sends them, with keys.

The folder's docstring says what a key names, and why the rows are sorted.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.rows import Rows, pinned
from sharequeue_pipeline.sink.sorting import SortedRecords

_OPEN, _CLOSE = b'{"records":[', b"]}"


_FIRST: Final = re.compile(rb'\{"records":\[\{"partition":(\d+),"offset":(\d+)')


class Written(WriterCommitMessage):
    """The number of requests and of records that one task has sent.

    `known`: how many of the records were in the log when the write began, under the same keys.
    """

    def __init__(self, requests: int, records: int, known: int) -> None:
        self.requests = requests
        self.records = records
        self.known = known


class _Writer:
    """The common part of both writers. Spark pickles a copy for each task."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        options = pinned(options)
        Rows(options, schema)  # checks the columns before any task runs
        self._options = options
        self._schema = schema
        self._begun: dict[int, int] = {}
        """The log ends of the topic before the write."""
        if options.topic is not None:
            with GatewayClient(options.gateway) as gateway:
                described = gateway.describe(options.topic, first_try=True)
            self._begun = {entry.partition: entry.log_end_offset for entry in described.partitions}

    def _send(self, batches: Iterator[Any], write_id: str) -> Written:
        rows = Rows(self._options, self._schema)
        context = TaskContext.get()
        assert context is not None
        prefix = f"{write_id}:{context.partitionId()}"
        sent = records = known = 0
        with GatewayClient(self._options.gateway) as gateway:
            pairs = (pair for batch in batches for pair in rows.records(batch))
            for topic, chunk in chunks(pairs, self._options):
                body = _OPEN + b",".join(chunk) + _CLOSE
                digest = hashlib.sha256(body).hexdigest()[:24]
                answer = gateway.produce(topic, body, f"{prefix}:{sent}:{digest}")
                sent += 1
                records += len(chunk)
                known += len(chunk) if topic == self._options.topic and self._was_there(answer) else 0
        return Written(sent, records, known)

    def _was_there(self, answer: bytes) -> bool:
        """Whether the records of a request were in the log before: a known key is answered with their old offsets."""
        first = _FIRST.match(answer)
        return first is not None and int(first[2]) < self._begun.get(int(first[1]), 0)


def chunks(records: Iterator[tuple[str, bytes]], options: SinkOptions) -> Iterator[tuple[str, list[bytes]]]:
    """Cut (topic, record) pairs into requests of one topic each. With `sort`, their order does not matter."""
    gathered: dict[str, _Chunk] = {}
    if not options.sort:
        for topic, record in records:
            chunk = gathered.setdefault(topic, _Chunk(options))
            yield from ((topic, full) for full in chunk.add(record))
        yield from ((topic, chunk.records) for topic, chunk in gathered.items())
        return
    with SortedRecords() as in_order:
        in_order.extend(records)
        for topic, of_topic in groupby(in_order, key=itemgetter(0)):
            chunk = _Chunk(options)
            for _, record in of_topic:
                yield from ((topic, full) for full in chunk.add(record))
            yield topic, chunk.records


class _Chunk:
    """Gathers the records of one request."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self.records: list[bytes] = []
        self._bytes = 0

    def add(self, record: bytes) -> list[list[bytes]]:
        """Add a record. Returns: nothing, or the records of a full request, which it did not fit into."""
        full = []
        too_long = self._bytes + len(record) + 1 > self._options.max_request_bytes
        if self.records and (too_long or len(self.records) >= self._options.max_request_records):
            full.append(self.records)
            self.records, self._bytes = [], 0
        self.records.append(record)
        self._bytes += len(record) + 1
        return full


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of `write`. A repeated task writes nothing twice; a repeated job needs `writeId` for that."""

    def __init__(
        self, options: SinkOptions, schema: spark.StructType, overwrite: bool, report_to: str | None = None
    ) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        self._write_id = options.write_id or str(uuid.uuid4())
        self._report_to = report_to

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say how many records were written and how many were known, to the program that asked for it."""
        written = [message for message in messages if isinstance(message, Written)]
        if self._report_to is not None and self._options.write_id is not None:
            records, known = sum(each.records for each in written), sum(each.known for each in written)
            note = json.dumps({"records": records, "known": known})
            (Path(self._report_to) / f"{digest_of(self._options.write_id)}.write").write_text(note)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._send(iterator, self._write_id)


class WriteReport(NamedTuple):
    """The records of a write with a `writeId`: how many were sent, and how many of them were known before."""

    records: int
    known: int


def written(directory: str, write_id: str) -> WriteReport | None:
    """What a write of this driver has reported. None: nothing."""
    try:
        return WriteReport(**json.loads((Path(directory) / f"{digest_of(write_id)}.write").read_text()))
    except FileNotFoundError:
        return None


def digest_of(write_id: str) -> str:
    """A name for a file."""
    return hashlib.sha256(write_id.encode()).hexdigest()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of `writeStream`. A batch that is repeated after a crash writes nothing twice."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        if options.write_id is not None:
            raise PipelineError("leave out writeId: a stream names its writes by query and batch")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._send(iterator, f"{query}:{batch}")
