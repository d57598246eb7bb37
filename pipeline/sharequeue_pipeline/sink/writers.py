"""The writers of `write` and `writeStream`: each task cuts its records into requests and sends them, with keys.

The folder's docstring says what a key names, and why the rows are sorted.
"""

import hashlib
import uuid
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

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
from sharequeue_pipeline.sink.rows import Rows
from sharequeue_pipeline.sink.sorting import SortedRecords

_OPEN, _CLOSE = b'{"records":[', b"]}"


class Written(WriterCommitMessage):
    """The number of requests and of records that one task has sent."""

    def __init__(self, requests: int, records: int) -> None:
        self.requests = requests
        self.records = records


class _Writer:
    """The common part of both writers. Spark pickles a copy for each task."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        Rows(options, schema)  # checks the columns before any task runs
        self._options = options
        self._schema = schema
        if options.topic is not None:
            with GatewayClient(options.gateway) as gateway:
                gateway.describe(options.topic, first_try=True)

    def _send(self, batches: Iterator[Any], write_id: str) -> Written:
        rows = Rows(self._options, self._schema)
        context = TaskContext.get()
        assert context is not None
        prefix = f"{write_id}:{context.partitionId()}"
        sent = records = 0
        with GatewayClient(self._options.gateway) as gateway:
            pairs = (pair for batch in batches for pair in rows.records(batch))
            for topic, chunk in chunks(pairs, self._options):
                body = _OPEN + b",".join(chunk) + _CLOSE
                digest = hashlib.sha256(body).hexdigest()[:24]
                gateway.produce(topic, body, f"{prefix}:{sent}:{digest}")
                sent += 1
                records += len(chunk)
        return Written(sent, records)


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

    def __init__(self, options: SinkOptions, schema: spark.StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._send(iterator, self._write_id)


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
