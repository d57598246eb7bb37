"""Writing to topics: tasks send their rows in requests bounded by bytes, each with an idempotency key.

A key names the write, the task's partition, the request's number in it and what it holds: a task that is run again
sends the same requests under the same keys, and nothing is appended twice. Rows are sorted first, for a shuffle may
bring them in another order; where they differ all the same, more is written rather than less.
"""

import hashlib
import uuid
from collections.abc import Iterator
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

_OPEN, _CLOSE = b'{"records":[', b"]}"


class Written(WriterCommitMessage):
    """What one task wrote: requests and records."""

    def __init__(self, requests: int, records: int) -> None:
        self.requests = requests
        self.records = records


class _Writing:
    """What both writers share; a copy travels to each task."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        Rows(options, schema)  # the columns are checked before anything runs
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
    """Cut (topic, record) pairs into requests of one topic each. Sorted, they are the same for any order of the pairs."""
    gathered: dict[str, _Chunk] = {}
    if not options.sort:
        for topic, record in records:
            chunk = gathered.setdefault(topic, _Chunk(options))
            yield from ((topic, full) for full in chunk.add(record))
        yield from ((topic, chunk.records) for topic, chunk in gathered.items())
        return
    by_topic: dict[str, list[bytes]] = {}
    for topic, record in records:
        by_topic.setdefault(topic, []).append(record)
    for topic in sorted(by_topic):
        chunk = _Chunk(options)
        for record in sorted(by_topic.pop(topic)):
            yield from ((topic, full) for full in chunk.add(record))
        yield topic, chunk.records


class _Chunk:
    """The records of one request as they gather."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self.records: list[bytes] = []
        self._bytes = 0

    def add(self, record: bytes) -> list[list[bytes]]:
        """Returns: the records gathered so far, if there is no room for this one beside them."""
        full = []
        too_long = self._bytes + len(record) + 1 > self._options.max_request_bytes
        if self.records and (too_long or len(self.records) >= self._options.max_request_records):
            full.append(self.records)
            self.records, self._bytes = [], 0
        self.records.append(record)
        self._bytes += len(record) + 1
        return full


class BatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of `write`. Without `writeId` only tasks that Spark repeats within the job write nothing twice."""

    def __init__(self, options: SinkOptions, schema: spark.StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._send(iterator, self._write_id)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of `writeStream`: a batch that is run again after a crash writes nothing twice."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        if options.write_id is not None:
            raise PipelineError("writeId is for df.write: a stream names its writes by query and batch")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._send(iterator, f"{query}:{batch}")
