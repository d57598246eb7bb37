"""The groups in memory by id: load, lock, decide and persist, drop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.protocol.configs import Configs, share_group_config
from sharequeue.protocol.errors import NotCoordinator, StorageError
from sharequeue_coordinator import metrics
from sharequeue_coordinator.database import Database, Fence
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.groups.owned_group import OwnedGroup
from sharequeue_coordinator.groups.totals import Totals
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.settings import Settings
from sharequeue_coordinator.share_group.changes import Changes, GroupSettings
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

C = TypeVar("C", bound=Changes)

KEEP_UNUSED_S: Final = 60.0
"""How long a group without members stays in memory after its last use."""


@dataclass(eq=False)
class GroupRegistry:
    """All groups that were asked for since their shard came to this instance."""

    _database: Database
    _metadata: Metadata
    _clock: Clock
    configs: Configs
    """The settings of groups, with the defaults and bounds of the service."""
    service: Settings
    totals: Totals
    _groups: dict[str, OwnedGroup] = field(init=False, default_factory=dict)
    _with_members: dict[str, OwnedGroup] = field(init=False, default_factory=dict)
    """Every group in memory that has members, and perhaps some that have none any more."""
    _loading: WeakValueDictionary[str, asyncio.Lock] = field(init=False, default_factory=WeakValueDictionary)
    _tasks: set[asyncio.Task[Any]] = field(init=False, default_factory=set)

    # Loading

    async def find(self, group_id: str) -> OwnedGroup:
        """The group as it is stored, also if it does not exist (`machine.exists`).

        Raises: NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable: its shard is not owned here.
        """
        return await self._find(group_id, self._database.fence(group_id))

    async def _find(self, group_id: str, fence: Fence) -> OwnedGroup:
        known = self._groups.get(group_id)
        if known is not None:
            known.used_s = time.monotonic()
            return known
        async with self._loading.setdefault(group_id, asyncio.Lock()):
            known = self._groups.get(group_id)
            if known is None:
                known = await self._load(group_id, fence)
                if self._database.fence(group_id) == fence and known.machine.exists:
                    self._groups[group_id] = known
                    self._note_members(known)
            return known

    async def get(self, group_id: str, fence: Fence, *, create: bool) -> OwnedGroup:
        """The group; with `create`, one that does not exist is kept in memory too. Raises: GroupIdNotFound."""
        group = await self._find(group_id, fence)
        if not create:
            group.machine.check_exists()
        elif not group.machine.exists:
            group = self._groups.setdefault(group_id, group)
        return group

    async def _load(self, group_id: str, fence: Fence) -> OwnedGroup:
        settings = self._settings(group_id, await self._database.query(store.group_config, group_id))
        stored: store.StoredGroup | None = await self._database.query(store.load, group_id)
        if stored is None:
            return OwnedGroup(group_id, fence, store.NO_REVISION, ShareGroup(group_id), settings)
        machine = ShareGroup.restore(group_id, stored.changes, settings, self._clock.now_ms())
        return OwnedGroup(group_id, fence, stored.revision, machine, settings)

    def _settings(self, group_id: str, config: Mapping[str, str]) -> GroupSettings:
        values = share_group_config(group_id, config, self.service.kafka_defaults, self.configs)
        return GroupSettings(
            max_size=self.service.group_max_size,
            session_timeout_ms=values.session_timeout_ms,
            heartbeat_interval_ms=values.heartbeat_interval_ms,
            assignment_interval_ms=values.assignment_interval_ms,
            initialize_retry_interval_ms=self.service.initialize_retry_interval_ms,
        )

    async def configure(self, group_id: str, config: Mapping[str, str]) -> None:
        """Apply changed settings. A load that is under way may have read the old ones, so wait for it."""
        async with self._loading.setdefault(group_id, asyncio.Lock()):
            if (group := self._groups.get(group_id)) is not None:
                group.settings = self._settings(group_id, config)

    def is_current(self, group: OwnedGroup) -> bool:
        """Return whether this object is still the group's; if not, the group was dropped, or its shard was lost."""
        return self._groups.get(group.group_id) is group

    def drop(self, group: OwnedGroup) -> None:
        """Have the group's next use load it again."""
        if self.is_current(group):
            del self._groups[group.group_id]

    def forget(self, shards: frozenset[int]) -> None:
        """Drop the groups of shards that another instance owns now."""
        self._groups = {group_id: group for group_id, group in self._groups.items() if group.fence.shard not in shards}

    def _note_members(self, group: OwnedGroup) -> None:
        if group.machine.members and self.is_current(group):
            self._with_members[group.group_id] = group

    def with_members(self) -> list[OwnedGroup]:
        """The groups in memory that have members. The cost grows with these alone."""
        self._with_members = {
            group_id: group
            for group_id, group in self._with_members.items()
            if group.machine.members and self.is_current(group)
        }
        return list(self._with_members.values())

    @asynccontextmanager
    async def locked(self, group_id: str, *, create: bool = False) -> AsyncIterator[OwnedGroup]:
        """Hold the group's `lock`, and its shard.

        Raises: GroupIdNotFound: it does not exist, and `create` is not given. Also as `find`.
        """
        with self._database.fenced(group_id):
            while True:
                group = await self.get(group_id, self._database.fence(group_id), create=create)
                async with group.lock:
                    if self.is_current(group):
                        try:
                            yield group
                        finally:
                            if not group.machine.exists:
                                self.drop(group)
                        return

    def forget_unused(self) -> None:
        """Drop the groups without members that nobody has asked for lately."""
        unused_s = time.monotonic() - KEEP_UNUSED_S
        for group in list(self._groups.values()):
            busy = group.machine.members or group.lock.locked() or group.deciding.locked()
            if group.used_s < unused_s and not busy:
                self.drop(group)

    # Events

    async def decide(self, group: OwnedGroup, event: Callable[[ShareGroup], C]) -> C:
        """Have the machine decide, persist the changes, apply them. If a topic is deleted just now, decide again.

        Raises: the errors of `event`. StorageError, NotCoordinator: the changes may be stored; the group is dropped.
            CoordinatorNotAvailable: the group was deleted or dropped before the event was decided.
        """
        async with group.deciding:
            if not self.is_current(group):
                raise CoordinatorNotAvailable(f"group {group.group_id!r} is being changed; try again")
            try:
                while (changes := self._allowed(group, event)).durable and not await self._persist(group, changes):
                    continue
            except (StorageError, NotCoordinator, asyncio.CancelledError):
                self.drop(group)
                raise
            except store.Outdated:
                self.drop(group)
                raise CoordinatorNotAvailable(f"group {group.group_id!r} is being loaded again; try again") from None
            except ApiError:
                if not group.machine.exists:
                    self.drop(group)
                raise
            if changes.epochs is not None and changes.epochs.group_epoch > group.machine.epochs.group_epoch:
                metrics.REBALANCES.inc()
            group.machine.apply(changes, self._clock.now_ms())
            self._note_members(group)
            return changes

    def _allowed(self, group: OwnedGroup, event: Callable[[ShareGroup], C]) -> C:
        """Return what the machine decides. Raises: as the event; Throttled: too many groups or share-partitions."""
        changes = event(group.machine)
        begun = sum(len(each.partitions) for each in changes.initializations) if changes.topics else 0
        if begun or (changes.epochs is not None and not group.machine.exists):
            self.totals.begin(not group.machine.exists, begun)
        return changes

    async def _persist(self, group: OwnedGroup, changes: Changes) -> bool:
        """Returns: False if a topic is being deleted. Nothing is stored then, and the group has forgotten the topic."""
        if await self._database.query(store.save, group.fence, group.group_id, group.revision, changes):
            group.revision += 1
            return True
        await self._metadata.catch_up()
        gone = [topic_id for topic_id in changes.topics if topic_id not in self._metadata.by_id]
        if not gone:
            raise CoordinatorNotAvailable("a topic is being deleted; try again")
        group.machine.apply(group.machine.topics_deleted(gone), self._clock.now_ms())
        return False

    def forget_topic(self, topic_id: str) -> None:
        """A topic is deleted. Its rows are removed with it, so nothing is persisted here."""
        for group in list(self._groups.values()):
            if topic_id in group.machine.topics or topic_id in group.machine.deleting:
                background.start(self._tasks, self._forget_topic(group, topic_id))

    async def _forget_topic(self, group: OwnedGroup, topic_id: str) -> None:
        async with group.deciding:
            group.machine.apply(group.machine.topics_deleted([topic_id]), self._clock.now_ms())
