"""The calls about settings and offsets of a group. The group coordinator answers them; log ends come from the record
log."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import hold_ms
from sharequeue.protocol.errors import checked_group_id
from sharequeue.protocol.messages.cluster import (
    GroupPartitionSummary,
    GroupSummaryQuery,
    GroupSummaryResponse,
    GroupTopicSummary,
)
from sharequeue.protocol.messages.groups import GroupPartitionOffset, GroupTopicOffsets, Holding, ShareGroupOffsets
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.answers.page_tokens import PLACE, PageTokens
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import Offsets, RecordLog
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.retention_rule import rule_of
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError

HOLD: Final = b"retention.hold"
"""In a change of the settings that say how long a group holds the log: it is to be in force when it is answered."""
_config: Final = msgspec.json.Decoder(dict[str, str])


@dataclass(eq=False)
class GroupsApi:
    """The handlers of the calls of settings, and of listShareGroupOffsets."""

    _coordinator: CoordinatorClient
    _metadata: Metadata
    _record_log: RecordLog
    _readers: Readers
    _dead_letters: DeadLetterLog
    _share_coordinators: ShareStateClient
    _tokens: PageTokens
    _commits: SettledCommits

    async def get_share_group_config(self, call: Call) -> Answer:
        return await self._passed_on(apis.GET_SHARE_GROUP_CONFIG, call)

    async def get_share_group_service_config(self, call: Call) -> Answer:
        return await self._passed_on(apis.GET_SHARE_GROUP_SERVICE_CONFIG, call)

    async def _passed_on(self, api: Api, call: Call) -> Answer:
        group_id = checked_group_id(call.path["group"])
        return Answer(await self._coordinator.exchange(api, key=group_id, path=call.path))

    async def update_share_group_config(self, call: Call) -> Answer:
        group_id = checked_group_id(call.path["group"])
        body = await self._coordinator.exchange(
            apis.UPDATE_SHARE_GROUP_CONFIG, call.raw, key=group_id, path={"group": group_id}
        )
        try:
            await self._readers.set_hold(group_id, hold_ms(_config.decode(body)))
        except ApiError as error:  # the change is stored; the group's next load writes the hold too
            if HOLD in call.raw:
                error.definite = False
                raise
        if self._metadata.config(group_id) is not None:
            with contextlib.suppress(ApiError):  # the change is stored, and the feed brings it too
                await self._metadata.group_changed(group_id)
        return Answer(body)

    async def list_share_group_offsets(self, call: Call) -> ShareGroupOffsets:
        """Start offsets come from the share coordinator; ends, holds and open dead letters from the log."""
        group_id, query = checked_group_id(call.path["group"]), call.request
        name, partition = self._tokens.place(query.page_token, PLACE, "listShareGroupOffsets", ("", -1))
        limited = GroupSummaryQuery(after_topic=name, after_partition=partition, limit=query.page_size)
        await self._commits.applied()
        summary: GroupSummaryResponse = await self._coordinator.of_group(apis.GROUP_SUMMARY, group_id, limited)
        holds = await self._readers.holds_of(group_id)
        open_dead_letters = await self._dead_letters.open_counts(group_id)
        topics = []
        for topic in summary.topics:
            ends = await self._record_log.offsets(topic.topic_id, [p.partition for p in topic.partitions])
            trimmed = await self._trimmed(group_id, topic, ends)
            known = self._metadata.known_topic_id(topic.topic_id)
            spared = known is not None and rule_of(known.config).by_readers
            partitions = []
            for state in topic.partitions:
                hold = holds.get((topic.topic_id, state.partition))
                holding = spared and hold is not None and hold.holds
                trimmed_state, end = trimmed.get(state.partition, state), ends[state.partition]
                partitions.append(
                    GroupPartitionOffset(
                        partition=state.partition,
                        start_offset=state.start_offset,
                        log_end_offset=end.log_end_offset,
                        last_stable_offset=end.last_stable_offset,
                        leader_epoch=state.leader_epoch,
                        lag=_lag(trimmed_state, end.log_start_offset, end.log_end_offset),
                        stable_lag=_lag(trimmed_state, end.log_start_offset, end.last_stable_offset),
                        holding=Holding(expires_at_ms=hold.expires_at_ms) if holding and hold else None,
                        removed_unfinished=0 if hold is None else hold.removed_unfinished,
                        open_dead_letters=open_dead_letters.get((topic.topic_id, state.partition), 0),
                    )
                )
            topics.append(GroupTopicOffsets(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        answer = ShareGroupOffsets(topics=topics)
        if summary.more and topics:
            last = max(entry.partition for entry in topics[-1].partitions)
            answer.next_page_token = self._tokens.token((topics[-1].topic, last))
        return answer

    async def _trimmed(
        self, group_id: str, topic: GroupTopicSummary, ends: Mapping[int, Offsets]
    ) -> dict[int, GroupPartitionSummary]:
        """The states of partitions whose log starts above the start offset, from there on. Few are: retention spares
        what the group has not finished."""
        above = {
            state.partition: ends[state.partition].log_start_offset
            for state in topic.partitions
            if 0 <= state.start_offset < ends[state.partition].log_start_offset and state.delivery_complete_count
        }
        if not above:
            return {}
        asked = [PartitionState(partition=partition, start_offset=start) for partition, start in above.items()]
        results = await self._share_coordinators.state(apis.READ_STATE_SUMMARY, group_id, {topic.topic_id: asked})
        return {
            key.partition: GroupPartitionSummary(
                partition=key.partition,
                start_offset=result.unfinished_offset,
                leader_epoch=0,
                delivery_complete_count=result.delivery_complete_count
                - (result.unfinished_offset - above[key.partition]),
            )
            for key, result in results.items()
            if not result.error_code
            and result.unfinished_offset is not None
            and result.delivery_complete_count is not None
            and result.start_offset == above[key.partition]
        }


def _lag(state: GroupPartitionSummary, log_start_offset: int, end_offset: int) -> int:
    """The records below an end, from the start offset or the log start on, without finished ones; −1: unknown."""
    if state.start_offset < 0 or state.delivery_complete_count < 0:
        return -1
    first = max(state.start_offset, log_start_offset)
    return max(end_offset - first - state.delivery_complete_count, 0)
