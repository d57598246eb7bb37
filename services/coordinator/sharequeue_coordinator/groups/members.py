"""Heartbeats: members join, stay, change their subscriptions and leave."""

from dataclasses import dataclass

from sharequeue.clock import Clock
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups.initializer import Initializer
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.share_group.heartbeat import JOIN_EPOCH, Heartbeat, HeartbeatAnswer, HeartbeatDecision
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_http.forms.errors import CoordinatorNotAvailable


@dataclass(eq=False)
class Members:
    _database: Database
    _metadata: Metadata
    _groups: GroupRegistry
    _initializer: Initializer
    _clock: Clock

    async def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """Answer a heartbeat. Partitions of its topics that are not initialised yet are initialised after the answer.

        Raises: as `ShareGroup.heartbeat`. CoordinatorNotAvailable: an administrator changes the group just now.
        """
        if request.subscribed_topic_names:
            begun = (await self._groups.find(group_id)).machine.topics
            known = map(self._metadata.by_name.get, request.subscribed_topic_names)
            if not all(topic is not None and topic.topic_id in begun for topic in known):
                await self._metadata.catch_up()

        def event(machine: ShareGroup) -> HeartbeatDecision:
            if group.closed and request.member_epoch == JOIN_EPOCH:
                raise CoordinatorNotAvailable(
                    f"an administrator is changing group {group_id!r}, so no member can join; try again"
                )
            return machine.heartbeat(request, self._metadata.by_name, group.settings, self._clock.now_ms())

        with self._database.fenced(group_id) as fence:
            group = await self._groups.get(group_id, fence, create=True)
            decision = await self._groups.decide(group, event)
            if decision.initializations:
                self._initializer.begin_behind(group, decision)
        return decision.answer

    async def leave(self, group_id: str, member_id: str) -> None:
        """Remove a member. Raises: GroupIdNotFound, UnknownMemberId."""
        with self._database.fenced(group_id) as fence:
            group = await self._groups.get(group_id, fence, create=False)
            await self._groups.decide(group, lambda machine: machine.leave(member_id, self._metadata.by_name))
