"""Members that send no heartbeats are taken out; those of groups whose shard comes to this instance begin anew."""

import asyncio
import logging
from typing import Final

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError
from sharequeue_coordinator import metrics as group_metrics
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups import store as groups_store
from sharequeue_coordinator.groups.registry import Groups
from sharequeue_coordinator.share_group.subscribed_topics import Topics

log = logging.getLogger(__name__)

LOOKED_AT_S: Final = 0.25
GROUPS_LOOKED_FOR_S: Final = 5.0
"""How often groups with members are looked for that this instance owns and has not read: it took over their shards."""


class MemberSessions:
    """The sessions of all members in groups that this instance owns."""

    def __init__(self, groups: Groups, database: Database, topics: Topics, clock: Clock) -> None:
        self._groups = groups
        self._database = database
        self._topics = topics
        self._clock = clock

    async def watch(self) -> None:
        """Take out members whose session ended; read groups with members when their shards come. For ever."""
        loop = asyncio.get_running_loop()
        look_at = 0.0
        while True:
            try:
                if loop.time() >= look_at:
                    look_at = loop.time() + GROUPS_LOOKED_FOR_S
                    group_metrics.show(*await self._database.query(groups_store.counts))
                    await self._read_groups()
                await self._expire_members()
            except ApiError as error:
                log.warning("sessions of members are looked at later", extra=fields(cause=error.detail))
            await asyncio.sleep(LOOKED_AT_S)

    async def _read_groups(self) -> None:
        for group_id in await self._database.query(groups_store.with_members):
            if self._database.owns(group_id):
                await self._groups.find(group_id)

    async def _expire_members(self) -> None:
        now_ms = self._clock.now_ms()
        for group in self._groups.with_members():
            deadline_ms = group.machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms or not self._database.owns(group.group_id):
                continue
            try:
                changes = await self._groups.decide(group, lambda machine: machine.expire_members(self._topics, now_ms))
            except ApiError as error:
                log.warning("members are taken out later", extra=fields(group_id=group.group_id, cause=error.detail))
            else:
                gone = sorted(member_id for member_id, member in changes.members.items() if member is None)
                log.info("members sent no heartbeats", extra=fields(group_id=group.group_id, members=gone[:10]))
