"""The calls about topics and groups: forwarded to the group coordinator, completed with what the log knows."""

import asyncio
import contextlib
from typing import Final

import msgspec

from sharequeue.http.serving import Answer, Call
from sharequeue.protocol import apis, messages
from sharequeue.protocol.errors import ApiError, InvalidRequest
from sharequeue.protocol.internal import DeleteTopicRecordsRequest, GroupSummaryQuery, GroupSummaryResponse
from sharequeue.protocol.messages import (
    Empty,
    GroupPartitionOffset,
    GroupTopicOffsets,
)
from sharequeue.protocol.types import MAX_INT32, whole_number
from sharequeue_gateway.cluster.metadata import Metadata, Topic
from sharequeue_gateway.http.arrow_answer import CONTENT_TYPE, arrow_stream, arrow_wanted
from sharequeue_gateway.http.records_api import group_of
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog

_summary: Final = msgspec.json.Decoder(GroupSummaryResponse)


class TopicsApi:
    """The handlers of the topic calls."""

    def __init__(self, metadata: Metadata, record_log: RecordLog) -> None:
        self._metadata = metadata
        self._record_log = record_log

    async def create_topic(self, call: Call) -> Answer:
        return Answer(await self._metadata.change_topic(apis.CREATE_TOPIC, call.raw))

    async def list_topics(self, call: Call) -> Answer:
        return Answer(await self._metadata.forward(apis.LIST_TOPICS, call.request))

    async def describe_topic(self, call: Call) -> messages.DescribeTopicResponse:
        topic = await self._metadata.topic(call.path["topic"])
        offsets = await self._record_log.offsets(topic.topic_id, range(topic.partitions))
        return messages.DescribeTopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            config=dict(topic.config),
            partitions=[
                messages.PartitionOffsets(
                    partition=partition,
                    log_start_offset=found.log_start_offset,
                    last_stable_offset=found.last_stable_offset,
                    log_end_offset=found.log_end_offset,
                )
                for partition, found in sorted(offsets.items())
            ],
        )

    async def update_topic(self, call: Call) -> Answer:
        return Answer(await self._metadata.change_topic(apis.UPDATE_TOPIC, call.raw, topic=call.path["topic"]))

    async def delete_topic(self, call: Call) -> Empty:
        topic = await self._metadata.topic(call.path["topic"])
        await self._metadata.forward(apis.DELETE_TOPIC, topic=topic.name)
        self._metadata.forget(topic.topic_id)
        return Empty()

    async def delete_records(self, call: Call) -> messages.DeleteRecordsResponse:
        request: messages.DeleteRecordsRequest = call.request
        topic = await self._metadata.topic(call.path["topic"])
        wanted = {partition.partition: partition.before_offset for partition in request.partitions}
        if len(wanted) != len(request.partitions):
            raise InvalidRequest("a partition is named twice")
        topic = await self._metadata.topic_with(topic.name, max(wanted))
        offsets = await self._record_log.offsets(topic.topic_id, list(wanted))
        for partition, before_offset in wanted.items():
            end = offsets[partition].log_end_offset
            if before_offset > end:
                raise OffsetOutOfRange(f"before_offset {before_offset} is behind the log end {end}", 0)
        return messages.DeleteRecordsResponse(
            partitions=[
                messages.DeletedRecordsPartition(
                    partition=partition,
                    log_start_offset=await self._record_log.delete_records(topic.topic_id, partition, before_offset),
                )
                for partition, before_offset in wanted.items()
            ]
        )

    async def read_records(self, call: Call) -> Answer:
        query: messages.ReadRecordsQuery = call.request
        topic, partition = await partition_of(call, self._metadata)
        as_arrow = arrow_wanted(call.header("accept"))
        read = await self._record_log.read(topic.topic_id, partition, query.offset, query.max_bytes, query.max_records)
        if query.offset > read.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {query.offset} is behind the log end {read.log_end_offset}", read.log_start_offset
            )
        slices: list[bytes] = []
        next_offset = query.offset
        records_left, bytes_left = query.max_records, query.max_bytes
        for batch in read.batches:
            first = max(next_offset, batch.base_offset)
            last = min(batch.last_offset, first + records_left - 1)
            while last > first and batch.size_of(first, last) > bytes_left:
                last = first + (last - first) // 2
            if slices and batch.size_of(first, last) > bytes_left:
                break
            slices.append(batch.slice(first, last))
            records_left -= last - first + 1
            bytes_left -= batch.size_of(first, last)
            next_offset = last + 1
            if records_left <= 0 or bytes_left <= 0 or last < batch.last_offset:
                break
        records = b"[%b]" % b",".join(part for part in slices if part)
        offsets = (next_offset, read.log_start_offset, read.log_end_offset)
        if as_arrow:
            return Answer(await asyncio.to_thread(arrow_stream, records, *offsets), headers=(CONTENT_TYPE,))
        return Answer(
            b'{"records":%b,"next_offset":%d,"log_start_offset":%d,"log_end_offset":%d}' % (records, *offsets)
        )

    async def delete_topic_records(self, call: Call) -> Empty:
        """For the group coordinator: a stage of a topic's deletion."""
        request: DeleteTopicRecordsRequest = call.request
        await self._record_log.delete_topic(request.topic_id, request.partitions)
        self._metadata.forget(request.topic_id)
        return Empty()


async def partition_of(call: Call, metadata: Metadata) -> tuple[Topic, int]:
    """The topic and partition that a path names. Raises: InvalidRequest: no number; UnknownTopicOrPartition."""
    text = call.path["partition"]
    partition = whole_number(text, MAX_INT32)
    if partition is None:
        raise InvalidRequest(f"a partition is a number from 0 to {MAX_INT32}, not {text!r}")
    return await metadata.topic_with(call.path["topic"], partition), partition


class GroupsApi:
    """The handlers of the group calls."""

    def __init__(self, metadata: Metadata, record_log: RecordLog) -> None:
        self._metadata = metadata
        self._record_log = record_log

    async def get_config(self, call: Call) -> Answer:
        return Answer(await self._metadata.forward(apis.GET_SHARE_GROUP_CONFIG, group=group_of(call)))

    async def update_config(self, call: Call) -> Answer:
        group_id = group_of(call)
        body = await self._metadata.forward(apis.UPDATE_SHARE_GROUP_CONFIG, call.raw, group=group_id)
        if self._metadata.config(group_id) is not None:
            with contextlib.suppress(ApiError):  # they are changed, and the feed tells of it too
                await self._metadata.group_changed(group_id)
        return Answer(body)

    async def offsets(self, call: Call) -> messages.ListShareGroupOffsetsResponse:
        """Start offsets from the share coordinator, ends from the log; lag = end − start − delivery-complete count."""
        summary = _summary.decode(
            await self._metadata.forward(apis.GROUP_SUMMARY, GroupSummaryQuery(), group=group_of(call))
        )
        topics = []
        for topic in summary.topics:
            ends = await self._record_log.offsets(topic.topic_id, [p.partition for p in topic.partitions])
            partitions = []
            for state in topic.partitions:
                end = ends[state.partition].log_end_offset
                known = state.start_offset >= 0 and state.delivery_complete_count >= 0
                partitions.append(
                    GroupPartitionOffset(
                        partition=state.partition,
                        start_offset=state.start_offset,
                        log_end_offset=end,
                        leader_epoch=state.leader_epoch,
                        lag=end - state.start_offset - state.delivery_complete_count if known else -1,
                    )
                )
            topics.append(GroupTopicOffsets(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return messages.ListShareGroupOffsetsResponse(topics=topics)
