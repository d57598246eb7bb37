"""Removes members that send no heartbeats. When a shard comes to this instance,
the sessions of its members start again."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from sharequeue.clock import Clock
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_coordinator import metrics
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.groups.totals import Totals
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

CHECK_S: Final = 0.25
LOAD_S: Final = 5.0
"""How often this instance loads the groups with members whose shards came to it."""


@dataclass(eq=False)
class MemberSessions:
    """The sessions of all members in groups that this instance owns."""

    _database: Database
    _metadata: Metadata
    _groups: GroupRegistry
    _totals: Totals
    _clock: Clock

    async def watch(self) -> None:
        """Remove members whose session has ended, for as long as this service runs."""
        loop = asyncio.get_running_loop()
        load_at = 0.0
        async for _ in Every(CHECK_S, at_once=True):
            with looking("members", "the sessions of members cannot be checked now"):
                if loop.time() >= load_at:
                    load_at = loop.time() + LOAD_S
                    groups, with_members, begun, initialized = await self._database.query(store.counts)
                    metrics.show(groups, with_members, initialized)
                    self._totals.counted(groups, begun)
                    self._groups.forget_unused()
                    await self._load_groups()
                await self._expire_members()

    async def _load_groups(self) -> None:
        for group_id in await self._database.query(store.with_members):
            if self._database.owns(group_id):
                await self._groups.find(group_id)

    async def _expire_members(self) -> None:
        now_ms = self._clock.now_ms()
        for group in self._groups.with_members():
            deadline_ms = group.machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms or not self._database.owns(group.group_id):
                continue
            with looking("members", "members cannot be removed now", group_id=group.group_id):
                changes = await self._groups.decide(
                    group, lambda machine: machine.expire_members(self._metadata.by_name, now_ms)
                )
                gone = sorted(member_id for member_id, member in changes.members.items() if member is None)
                log.info(
                    "removed members that sent no heartbeats", extra=fields(group_id=group.group_id, members=gone[:10])
                )
