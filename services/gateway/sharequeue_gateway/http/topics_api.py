"""The calls about topics. Topics come from the group coordinator, the bounds of their partitions from the record
log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.leaders import DeleteTopicRecordsRequest
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import ReadRecordsQuery
from sharequeue.protocol.messages.topics import (
    DeletedRecords,
    DeletedRecordsPartition,
    DeleteRecordsRequest,
    PartitionOffsets,
    TopicDescription,
    TopicList,
)
from sharequeue.protocol.record_runs import Bounds
from sharequeue.protocol.shards import CLUSTER
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.access.shown import page_of
from sharequeue_gateway.http.answers import arrow_answer, runs_answer
from sharequeue_gateway.http.answers.media_types import prefers
from sharequeue_gateway.http.named_partitions import partition_of
from sharequeue_gateway.record_log.log import Batch, Cut, OffsetOutOfRange, ReadResult, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest

JSON: Final = "application/json"


@dataclass(eq=False)
class TopicsApi:
    """The handlers of the topic calls."""

    _coordinator: CoordinatorClient
    _metadata: Metadata
    _record_log: RecordLog

    async def create_topic(self, call: Call) -> Answer:
        return Answer(await self._metadata.change_topic(apis.CREATE_TOPIC, call.raw))

    async def list_topics(self, call: Call) -> Answer | TopicList:
        ask = partial(self._coordinator.exchange, apis.LIST_TOPICS, key=CLUSTER)
        return await page_of(call, "topics", "name", TopicList, ask)  # type: ignore[no-any-return]

    async def describe_topic(self, call: Call) -> TopicDescription:
        topic = await self._metadata.topic(call.path["topic"])
        offsets = await self._record_log.offsets(topic.topic_id, range(topic.partitions))
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            config=dict(topic.config),
            partitions=[
                PartitionOffsets(partition=partition, **found._asdict()) for partition, found in sorted(offsets.items())
            ],
        )

    async def update_topic(self, call: Call) -> Answer:
        return Answer(await self._metadata.change_topic(apis.UPDATE_TOPIC, call.raw, topic=call.path["topic"]))

    async def delete_topic(self, call: Call) -> Empty:
        topic = await self._metadata.topic(call.path["topic"])
        await self._coordinator.exchange(apis.DELETE_TOPIC, key=CLUSTER, path={"topic": topic.name})
        self._metadata.forget(topic.topic_id)
        return Empty()

    async def delete_records(self, call: Call) -> DeletedRecords:
        request: DeleteRecordsRequest = call.request
        topic = await self._metadata.topic(call.path["topic"])
        wanted = {partition.partition: partition.before_offset for partition in request.partitions}
        if len(wanted) != len(request.partitions):
            raise InvalidRequest("a partition is named twice")
        topic = await self._metadata.topic_with(topic.name, max(wanted), request.topic_id)
        offsets = await self._record_log.offsets(topic.topic_id, list(wanted))
        for partition, before_offset in wanted.items():
            end = offsets[partition].log_end_offset
            if before_offset > end:
                raise OffsetOutOfRange(f"before_offset {before_offset} is behind the log end {end}", 0)
        log_starts = await self._record_log.delete_records(topic.topic_id, wanted)
        return DeletedRecords(
            partitions=[
                DeletedRecordsPartition(partition=partition, log_start_offset=log_starts[partition])
                for partition in wanted
            ]
        )

    async def read_records(self, call: Call) -> Answer:
        query: ReadRecordsQuery = call.request
        topic, partition = await partition_of(call, self._metadata, query.topic_id)
        accept = call.header("accept")
        as_runs = prefers(accept, apis.RECORD_RUNS, apis.ARROW_STREAM, JSON)
        as_arrow = arrow_answer.AVAILABLE and not as_runs and prefers(accept, apis.ARROW_STREAM, JSON)
        committed = query.isolation_level == "read_committed"
        wanted = (topic.topic_id, partition, query.offset, query.max_bytes, query.max_records, committed)
        if as_runs:
            return runs_answer.record_runs(*_cut(await self._record_log.read_packed(*wanted), query, committed))
        cuts, bounds = _cut(await self._record_log.read(*wanted), query, committed)
        slices = [part for batch, first, last in cuts if (part := batch.view(first, last))]
        if as_arrow:
            records = _between(b"[", slices, b"]")
            body = await asyncio.to_thread(arrow_answer.arrow_stream, records, bounds)
            return Answer(body, headers=(arrow_answer.CONTENT_TYPE,))
        end = b'],"next_offset":%d,"log_start_offset":%d,"log_end_offset":%d}' % bounds
        return Answer(_between(b'{"records":[', slices, end))

    async def delete_topic_records(self, call: Call) -> Empty:
        """Delete the records of a topic: a stage of its deletion, called by the group coordinator."""
        request: DeleteTopicRecordsRequest = call.request
        await self._record_log.delete_topic(request.topic_id, request.partitions)
        self._metadata.forget(request.topic_id)
        return Empty()


def _between(begin: bytes, slices: Sequence[memoryview], end: bytes) -> bytes:
    """Slices with commas, between two texts. They may have megabytes: `join` copies them once, `%` again and slowly."""
    parts: list[bytes | memoryview] = [begin]
    for part in slices:
        parts += (part, b",")
    if slices:
        parts.pop()
    return b"".join((*parts, end))


def _cut(read: ReadResult[Batch], query: ReadRecordsQuery, committed: bool) -> tuple[list[Cut[Batch]], Bounds]:
    """The records from the query's offset on, as parts of batches, within its limits; at least the first one.

    `committed`: without records of aborted transactions.
    Returns: batches, each with the first and the last offset of its part, and the bounds of the answer.
    Raises: OffsetOutOfRange.
    """
    if query.offset > read.log_end_offset:
        raise OffsetOutOfRange(
            f"offset {query.offset} is behind the log end {read.log_end_offset}", read.log_start_offset
        )
    cuts: list[Cut[Batch]] = []
    offset, max_bytes, max_records = query.offset, query.max_bytes, query.max_records
    for batch in read.batches:
        if committed and batch.aborted:
            offset = batch.last_offset + 1
            continue
        first = max(offset, batch.base_offset)
        last = min(batch.last_offset, first + max_records - 1)
        size = batch.size_of(first, last)
        while size > max_bytes and last > first and isinstance(batch, RecordBatch):
            last = first + (last - first) // 2
            size = batch.size_of(first, last)
        if cuts and size > max_bytes:
            break
        cuts.append((batch, first, last))
        max_records -= last - first + 1
        max_bytes -= size
        offset = last + 1
        if max_records <= 0 or max_bytes <= 0 or last < batch.last_offset:
            break
    return cuts, Bounds(offset, read.log_start_offset, read.log_end_offset)
