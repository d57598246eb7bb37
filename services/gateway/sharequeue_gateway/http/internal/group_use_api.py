"""The calls of the group coordinator: ask whether a group is in use, unload it, change the log's readers, release a
member. The readers change before and after a group's state is set or deleted:

reset    reserve ─▶ the state is set ─▶ raise         a crash in between leaves a floor that is too low
delete   the state is deleted ─▶ every gateway unloads ─▶ remove
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sharequeue.protocol.messages.cluster import PartitionNumbers, StartOffsets
from sharequeue.protocol.messages.leaders import (
    ChangeReadersRequest,
    ChangeReadersResponse,
    GroupPartitionsRequest,
    GroupUsageResponse,
    ReleaseMemberResponse,
    UnloadGroupRequest,
)
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.waiting import Event, WaitingFetches
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.routing.streams import Streams
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError


@dataclass(eq=False)
class GroupUse:
    """The handlers of the group coordinator's calls. `leads`: whether this gateway leads a share-partition."""

    _metadata: Metadata
    _leader: Leader
    _fetches: WaitingFetches
    _members: FetchingMembers
    _sessions: Sessions
    _streams: Streams
    _lock_timers: LockStore
    _readers: Readers
    _leads: Callable[[SharePartitionKey], bool]

    async def group_usage(self, call: Call) -> GroupUsageResponse:
        request: GroupPartitionsRequest = call.request
        group_id = call.path["group"]
        held = sum(
            run.size
            for led in await self._with_locks(group_id, request.partitions)
            for run in led.machine.runs
            if run.member_id is not None
        )
        unused_ms = await self._readers.unused_ms(group_id)
        sessions, waiting = self._sessions.count(group_id), len(self._fetches.by_group(group_id))
        return GroupUsageResponse(
            share_sessions=sessions,
            waiting_fetches=waiting,
            held_records=held,
            unused_ms=-1 if sessions or waiting or held or self._members.of_groups([group_id])[group_id] else unused_ms,
        )

    async def unload_group(self, call: Call) -> Empty:
        request: UnloadGroupRequest = call.request
        group_id = call.path["group"]
        if request.end:
            self._sessions.end(group_id)
            self._streams.end(Event.GROUP_RESET, group_id)
            self._fetches.end(group_id)
        self._leader.group_reset(group_id, request.topic_ids, end=request.end)
        if request.topic_ids is None:  # the group is deleted
            metrics.forget_group(group_id)
            self._leader.activity.forget_group(group_id)
            self._members.forget_group(group_id)
        return Empty()

    async def change_readers(self, call: Call) -> ChangeReadersResponse:
        request: ChangeReadersRequest = call.request
        group_id = call.path["group"]
        floors = [
            Floor(SharePartitionKey(group_id, topic_id, partition), request.state_epoch, start_offset)
            for topic_id, partitions in request.offsets.items()
            for partition, start_offset in partitions.items()
        ]
        if request.step == "reserve":
            config = self._metadata.config(group_id) or await self._metadata.learn_config(group_id)
            floors = await self._readers.reserve(floors, config.hold_ms)
        elif request.step == "raise":
            await self._readers.raise_floors(floors)
        else:
            await self._readers.remove(floors)
        offsets: StartOffsets = {}
        for key, _, start_offset, *_ in floors:
            offsets.setdefault(key.topic_id, {})[key.partition] = start_offset
        return ChangeReadersResponse(offsets=offsets)

    async def release_member(self, call: Call) -> ReleaseMemberResponse:
        request: GroupPartitionsRequest = call.request
        return await self.release(call.path["group"], call.path["member_id"], request.partitions)

    async def release(self, group_id: str, member_id: str, partitions: PartitionNumbers) -> ReleaseMemberResponse:
        """End the member's waiting fetches, close its share session and release what it holds of these; durable when
        this returns."""
        self._fetches.end_of_member(group_id, member_id)
        had_session = self._sessions.drop(group_id, member_id)
        leds = await self._with_locks(group_id, partitions)
        held = 0
        slices = Slices()
        for led in leds:
            if slices.over():
                await slices.pause()
            held += sum(run.size for run in led.machine.runs if run.member_id == member_id)
        outcomes = await asyncio.gather(*await self._leader.release_member(leds, member_id))
        refused = [error for error in outcomes if error is not None]
        if refused:
            raise refused[0]
        return ReleaseMemberResponse(share_session=had_session, released_records=held)

    async def _with_locks(self, group_id: str, partitions: PartitionNumbers) -> list[LedSharePartition]:
        """The loaded share-partitions, and those led here for which Redis has locks, which this loads."""
        keys = [
            SharePartitionKey(group_id, topic_id, partition)
            for topic_id, numbers in partitions.items()
            for partition in numbers
        ]
        away = [key for key in keys if self._leader.loaded(key) is None and self._leads(key)]
        locked = await self._lock_timers.with_locks(away)
        await self._metadata.topics_by_id(list({key.topic_id for key in locked}))
        wanted: list[tuple[KnownTopic, int]] = []
        for key in locked:
            topic = self._metadata.known_topic_id(key.topic_id)
            if topic is not None:
                wanted.append((topic, key.partition))
        loaded = await self._leader.get(group_id, wanted, initialize=False) if wanted else []
        for outcome in loaded:
            if isinstance(outcome, ApiError) and outcome.error.retriable:
                raise outcome
        return [led for key in keys if (led := self._leader.loaded(key)) is not None]
