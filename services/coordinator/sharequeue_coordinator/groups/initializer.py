"""Initialises share-partitions in two stages: persist the intent, ask the share coordinator, persist the outcome."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from sharequeue import background
from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups.owned_group import OwnedGroup
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.groups.share_states import AT_ONCE, ShareStates
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.share_group import initialization
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


class Initializer:
    """Initialises the share-partitions that fetches and heartbeats need."""

    def __init__(self, database: Database, metadata: Metadata, groups: GroupRegistry, states: ShareStates) -> None:
        self._database = database
        self._metadata = metadata
        self._groups = groups
        self._states = states
        self._in_turn = asyncio.Lock()
        self._waiting: set[str] = set()
        """Groups that wait for `_in_turn`, or have it."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], ApiError]:
        """Make sure that share-partitions are initialised. The first ones create the group. `asked`: by topic id.

        Returns: those that are not.
        """
        machine = (await self._groups.find(group_id)).machine
        existed, had_state = machine.exists, machine.topics_with_state(asked)
        await self.learn_of(machine, asked)
        has = self._metadata.has_partition
        valid = {id_: there for id_, some in asked.items() if (there := [p for p in some if has(id_, p)])}
        machine = (await self._groups.find(group_id)).machine
        failure = None
        if initialization.missing(machine.topics, valid, 0):
            failure = await self._initialize(group_id, valid, existed=existed, had_state=had_state & valid.keys())
        faults: dict[tuple[str, int], ApiError] = {}
        for topic_id, partitions in asked.items():
            for partition in partitions:
                if not has(topic_id, partition):
                    faults[topic_id, partition] = no_partition(topic_id, partition)
                elif failure is not None:
                    faults[topic_id, partition] = failure
        return faults

    async def learn_of(self, machine: ShareGroup, asked: Mapping[str, Collection[int]]) -> None:
        """Catch up with other instances if this one does not know one of these partitions. Also if the group begins in
        one of the topics now: it begins in all partitions that there are."""
        has = self._metadata.has_partition
        if not all(id_ in machine.topics and has(id_, max(some, default=0)) for id_, some in asked.items()):
            await self._metadata.catch_up()

    async def _initialize(
        self, group_id: str, asked: Mapping[str, Sequence[int]], *, existed: bool, had_state: Collection[str]
    ) -> ApiError | None:
        """Returns: why it failed, or may have failed; None: all are initialised.

        Args:
            existed, had_state: whether the group existed when the request arrived, and in which topics it had state
                then. A request that came before a deletion must not initialise what was deleted.
        """
        async with self._groups.locked(group_id, create=True) as group:
            if (existed and not group.machine.exists) or not group.machine.topics_with_state(asked).issuperset(
                had_state
            ):
                return CoordinatorNotAvailable(
                    f"group {group_id!r}, or its state of a topic, was just deleted; try again"
                )
            by_id = self._metadata.by_id

            def event(machine: ShareGroup) -> Changes:
                there = {topic_id: partitions for topic_id, partitions in asked.items() if topic_id in by_id}
                return machine.initialize(there, [by_id[topic_id] for topic_id in there])

            changes = await self._groups.decide(group, event)
            return await self._ask(group, changes) if changes.initializations else None

    async def _ask(self, group: OwnedGroup, changes: Changes) -> ApiError | None:
        """The second stage, under the group's `lock`. Returns: why it failed, or may have failed."""
        begun = group.machine.still_asked(changes.initializations)
        if not begun:
            return None
        try:
            faults = await self._states.initialize(group.group_id, begun, partial(self._groups.is_current, group))
        except ApiError as error:
            return error  # the outcome is unknown: a later request repeats it
        failure = next(iter(faults.values()), None)
        if failure is None:
            await self._groups.decide(group, lambda machine: machine.initialized(begun))
        else:
            await self._groups.decide(group, lambda machine: machine.initialization_refused(begun))
        return failure

    # For heartbeats

    def begin_behind(self, group: OwnedGroup, changes: Changes) -> None:
        """Start the second stage after a heartbeat.

        One group at a time asks for many share-partitions. A group that waits for that leaves its `lock` to others.
        """
        if sum(len(each.partitions) for each in changes.initializations) <= AT_ONCE:
            background.start(self._tasks, self._ask_behind(group, changes))
        elif group.group_id not in self._waiting:
            self._waiting.add(group.group_id)
            background.start(self._tasks, self._ask_in_turn(group, changes))

    async def _ask_in_turn(self, group: OwnedGroup, changes: Changes) -> None:
        try:
            async with self._in_turn:
                if not group.lock.locked():  # otherwise a later heartbeat tries again
                    await self._ask_behind(group, changes)
        finally:
            self._waiting.discard(group.group_id)

    async def _ask_behind(self, group: OwnedGroup, changes: Changes) -> None:
        try:
            with self._database.fenced(group.group_id):
                async with group.lock:
                    failure = await self._ask(group, changes) if self._groups.is_current(group) else None
        except ApiError as error:
            failure = error
        if failure is not None:
            log.warning(
                "share-partitions could not be initialised; a later heartbeat tries again",
                extra=fields(group_id=group.group_id, cause=failure.detail),
            )


def no_partition(topic_id: str, partition: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"there is no partition {partition} of topic id {topic_id}")
