"""The calls about settings and offsets of a group. The group coordinator answers them; log ends come from the record
log."""

import contextlib
from typing import Final

import msgspec

from sharequeue.http.answer import Answer
from sharequeue.http.endpoint import Call
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import hold_ms
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.cluster import GroupSummaryQuery, GroupSummaryResponse
from sharequeue.protocol.messages.groups import GroupPartitionOffset, GroupTopicOffsets, ShareGroupOffsets
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.record_log.readers import Readers

_config: Final = msgspec.json.Decoder(dict[str, str])
_summary: Final = msgspec.json.Decoder(GroupSummaryResponse)


class GroupsApi:
    """The handlers of getShareGroupConfig, updateShareGroupConfig and listShareGroupOffsets."""

    def __init__(
        self, coordinator: CoordinatorClient, metadata: Metadata, record_log: RecordLog, readers: Readers
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._record_log = record_log
        self._readers = readers

    async def get_config(self, call: Call) -> Answer:
        group_id = call.group_id()
        return Answer(
            await self._coordinator.exchange(apis.GET_SHARE_GROUP_CONFIG, key=group_id, path={"group": group_id})
        )

    async def update_config(self, call: Call) -> Answer:
        group_id = call.group_id()
        body = await self._coordinator.exchange(
            apis.UPDATE_SHARE_GROUP_CONFIG, call.raw, key=group_id, path={"group": group_id}
        )
        await self._readers.set_hold(group_id, hold_ms(_config.decode(body)))
        if self._metadata.config(group_id) is not None:
            with contextlib.suppress(ApiError):  # the change is stored, and the feed brings it too
                await self._metadata.group_changed(group_id)
        return Answer(body)

    async def offsets(self, call: Call) -> ShareGroupOffsets:
        """Start offsets come from the share coordinator, ends from the log. Lag = end - start - delivery-complete
        count."""
        group_id = call.group_id()
        summary = _summary.decode(
            await self._coordinator.exchange(
                apis.GROUP_SUMMARY, GroupSummaryQuery(), key=group_id, path={"group": group_id}
            )
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
        return ShareGroupOffsets(topics=topics)
