"""The groups: each a pure machine, with what it decided persisted before anybody is told. What it answers is durable.

The owner of a group's shard is the only writer of its rows, so what it has read once it keeps in memory. A failure of
the database leaves open what is stored: then the group is forgotten, and read again with its next use.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import share_group_config
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    NotCoordinator,
    StorageError,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.internal import (
    GroupSummaryQuery,
    GroupSummaryResponse,
    GroupTopicSummary,
    InitializedTopic,
)
from sharequeue_coordinator import metrics as group_metrics
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups import store as groups_store
from sharequeue_coordinator.groups.owned_group import Group
from sharequeue_coordinator.groups.share_states import ShareStates, outcomes
from sharequeue_coordinator.metadata import store
from sharequeue_coordinator.metadata.store import Fence, TopicRow
from sharequeue_coordinator.share_group import initialization as share_group
from sharequeue_coordinator.share_group.changes import JOIN_EPOCH, Changes, GroupSettings, Heartbeat, HeartbeatAnswer
from sharequeue_coordinator.share_group.machine import ShareGroupMembership
from sharequeue_coordinator.share_group.subscribed_topics import Topics

log = logging.getLogger(__name__)


class Groups:
    """All groups that were asked for, by id.

    Args:
        topics: all that are known, by name. topic: the topic of an id, if there is one as far as is known.
        catch_up: makes that what is known everywhere.
    """

    def __init__(
        self,
        database: Database,
        topics: Topics,
        topic: Callable[[str], TopicRow | None],
        catch_up: Callable[[], Awaitable[None]],
        share_coordinator: ShareStateClient,
        clock: Clock,
        *,
        kafka_defaults: bool,
        max_size: int,
        initialize_retry_interval_ms: int,
    ) -> None:
        self._database = database
        self._query = database.query
        self._topics = topics
        self._topic = topic
        self._catch_up = catch_up
        self.states = ShareStates(share_coordinator)
        self._clock = clock
        self._kafka_defaults = kafka_defaults
        self._max_size = max_size
        self._initialize_retry_interval_ms = initialize_retry_interval_ms
        self._groups: dict[str, Group] = {}
        self._with_members: dict[str, Group] = {}
        """Those that may have members."""
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Which groups there are

    async def find(self, group_id: str) -> Group:
        """The group as it is stored; one that nobody made yet does not exist (`machine.exists`).

        Raises: NotCoordinator and the like: its shard is another's.
        """
        fence = self._database.fence(group_id)
        known = self._groups.get(group_id)
        if known is not None:
            return known
        async with self._reading.setdefault(group_id, asyncio.Lock()):
            known = self._groups.get(group_id)
            if known is None:
                known = await self._read(group_id, fence)
                if self._database.fence(group_id) == fence and known.machine.exists:
                    self._groups[group_id] = known
                    self._note_members(known)
            return known

    async def _read(self, group_id: str, fence: Fence) -> Group:
        settings = self._settings(group_id, await self._query(store.group_config, group_id))
        stored: groups_store.StoredGroup | None = await self._query(groups_store.load, group_id)
        if stored is None:
            return Group(group_id, fence, groups_store.NO_REVISION, ShareGroupMembership(group_id), settings)
        if stored.exists:
            machine = ShareGroupMembership.restore(
                group_id,
                stored.epochs,
                stored.members,
                stored.target,
                stored.topics,
                stored.deleting,
                settings,
                self._clock.now_ms(),
            )
        else:
            machine = ShareGroupMembership(group_id, stored.epochs)
        return Group(group_id, fence, stored.revision, machine, settings)

    def _settings(self, group_id: str, config: Mapping[str, str]) -> GroupSettings:
        values = share_group_config(group_id, config, self._kafka_defaults)
        return GroupSettings(
            max_size=self._max_size,
            session_timeout_ms=values.session_timeout_ms,
            heartbeat_interval_ms=values.heartbeat_interval_ms,
            assignment_interval_ms=values.assignment_interval_ms,
            initialize_retry_interval_ms=self._initialize_retry_interval_ms,
        )

    async def configure(self, group_id: str, config: Mapping[str, str]) -> None:
        """A group's stored settings changed. A read that is under way may have read them before."""
        async with self._reading.setdefault(group_id, asyncio.Lock()):
            if (group := self._groups.get(group_id)) is not None:
                group.settings = self._settings(group_id, config)

    def _note_members(self, group: Group) -> None:
        if group.machine.members and self._current(group):
            self._with_members[group.group_id] = group

    def with_members(self) -> list[Group]:
        """The groups in memory that have members. Cost follows these alone."""
        self._with_members = {
            group_id: group
            for group_id, group in self._with_members.items()
            if group.machine.members and self._current(group)
        }
        return list(self._with_members.values())

    def _current(self, group: Group) -> bool:
        return self._groups.get(group.group_id) is group

    async def _found(self, group_id: str, *, create: bool) -> Group:
        """The group, with `create` kept from now on also if it does not exist. Raises: GroupIdNotFound."""
        group = await self.find(group_id)
        if not group.machine.exists:
            if not create:
                raise GroupIdNotFound(f"there is no group {group_id!r}")
            group = self._groups.setdefault(group_id, group)
        return group

    @asynccontextmanager
    async def locked(self, group_id: str, *, create: bool = False) -> AsyncIterator[Group]:
        """The group, its shard kept and nothing else initialised or administered in it meanwhile.

        Raises: GroupIdNotFound: there is none, and `create` is not given; NotCoordinator and the like.
        """
        with self._database.fenced(group_id):
            while True:
                group = await self._found(group_id, create=create)
                async with group.lock:
                    if self._current(group):
                        try:
                            yield group
                        finally:
                            if not group.machine.exists:
                                self.drop(group)
                        return

    def forget(self, shards: frozenset[int]) -> None:
        """These shards are another's now."""
        self._groups = {group_id: group for group_id, group in self._groups.items() if group.fence.shard not in shards}

    def drop(self, group: Group) -> None:
        """Read a group again with its next use."""
        if self._current(group):
            del self._groups[group.group_id]

    def forget_topic(self, topic_id: str) -> None:
        """A topic is gone for good; its rows go by themselves."""
        for group in list(self._groups.values()):
            if topic_id in group.machine.topics or topic_id in group.machine.deleting:
                background.start(self._tasks, self._forget_topic(group, topic_id))

    async def _forget_topic(self, group: Group, topic_id: str) -> None:
        async with group.deciding:
            group.machine.apply(group.machine.topics_deleted([topic_id]), self._clock.now_ms())

    # Events

    async def decide(self, group: Group, event: Callable[[ShareGroupMembership], Changes]) -> Changes:
        """Have the machine decide, persist what changes, then apply it; decide once more where a topic goes just now.

        Raises: what `event` does; StorageError, NotCoordinator: it may be stored, and the group is read again;
            CoordinatorNotAvailable: the group was deleted, or read again, meanwhile.
        """
        async with group.deciding:
            if not self._current(group):
                raise CoordinatorNotAvailable(f"group {group.group_id!r} changes just now; try again")
            try:
                while (changes := event(group.machine)).durable and not await self._persist(group, changes):
                    continue
            except (StorageError, NotCoordinator, asyncio.CancelledError):
                self.drop(group)
                raise
            except groups_store.Outdated:
                self.drop(group)
                raise CoordinatorNotAvailable(f"group {group.group_id!r} is read again; try again") from None
            except ApiError:
                if not group.machine.exists:
                    self.drop(group)
                raise
            if changes.epochs is not None and changes.epochs.group_epoch > group.machine.epochs.group_epoch:
                group_metrics.REBALANCES.inc()
            group.machine.apply(changes, self._clock.now_ms())
            self._note_members(group)
            return changes

    async def _persist(self, group: Group, changes: Changes) -> bool:
        """Returns: False, and nothing is stored, if topics go just now: the group has forgotten them."""
        if await self._query(groups_store.save, group.fence, group.group_id, group.revision, changes):
            group.revision += 1
            return True
        await self._catch_up()
        gone = [topic_id for topic_id in changes.topics if self._topic(topic_id) is None]
        if not gone:
            raise CoordinatorNotAvailable("a topic is deleted just now; try again")
        group.machine.apply(group.machine.topics_deleted(gone), self._clock.now_ms())
        return False

    async def heartbeat(self, group_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """A member joins, goes on or leaves. What is not initialised yet of its topics will be, behind the answer.

        Raises: as ShareGroupMembership.heartbeat; CoordinatorNotAvailable: nobody may join just now.
        """
        if not all(name in self._topics for name in request.subscribed_topic_names or ()):
            await self._catch_up()
        answers: list[HeartbeatAnswer] = []

        def event(machine: ShareGroupMembership) -> Changes:
            if group.closed and request.member_epoch == JOIN_EPOCH:
                raise CoordinatorNotAvailable(f"group {group_id!r} is set anew just now; join in a moment")
            decision = machine.heartbeat(request, self._topics, group.settings, self._clock.now_ms())
            answers.append(decision.answer)
            return decision.changes

        with self._database.fenced(group_id):
            group = await self._found(group_id, create=True)
            changes = await self.decide(group, event)
            if changes.initializations:
                background.start(
                    self._tasks, self._initialize_for_members(group, changes, locked=await _taken_if_free(group.lock))
                )
        return answers[-1]

    async def leave(self, group_id: str, member_id: str) -> None:
        """A member is taken out. Raises: GroupIdNotFound, UnknownMemberId."""
        with self._database.fenced(group_id):
            group = await self._found(group_id, create=False)
            await self.decide(group, lambda machine: machine.leave(member_id, self._topics))

    async def has(self, group_id: str) -> dict[str, list[int]]:
        """What a group has initialised: partitions by topic id; nothing of a group that is not there."""
        machine = (await self.find(group_id)).machine
        return {topic_id: sorted(topic.initialized) for topic_id, topic in machine.topics.items() if topic.initialized}

    # Initialisation

    async def initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> list[InitializedTopic]:
        """Make sure that share-partitions are initialised; the group comes to be with the first."""
        machine = (await self.find(group_id)).machine
        existed, stood = machine.exists, machine.stands(asked)
        await self.hear_of(asked)
        valid = {id_: there for id_, some in asked.items() if (there := [p for p in some if self.there(id_, p)])}
        machine = (await self.find(group_id)).machine
        failure = None
        if share_group.missing(machine.topics, valid):
            failure = await self._initialize(group_id, valid, existed=existed, stood=stood & valid.keys())
        faults: dict[tuple[str, int], ApiError] = {}
        for topic_id, partitions in asked.items():
            for partition in partitions:
                if not self.there(topic_id, partition):
                    detail = f"there is no partition {partition} of topic id {topic_id}"
                    faults[topic_id, partition] = UnknownTopicOrPartition(detail)
                elif failure is not None:
                    faults[topic_id, partition] = failure
        return outcomes(asked, faults)

    async def hear_of(self, asked: Mapping[str, Sequence[int]]) -> None:
        """Learn what other instances know by now, if one of these partitions is not known here."""
        if not all(self.there(topic_id, max(partitions, default=0)) for topic_id, partitions in asked.items()):
            await self._catch_up()

    def there(self, topic_id: str, partition: int) -> bool:
        """Whether there is such a partition, as far as is known."""
        topic = self._topic(topic_id)
        return topic is not None and 0 <= partition < topic.partitions

    def _of_topics_there(self, asked: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
        return {topic_id: partitions for topic_id, partitions in asked.items() if self._topic(topic_id) is not None}

    async def _initialize(
        self, group_id: str, asked: Mapping[str, Sequence[int]], *, existed: bool, stood: Collection[str]
    ) -> ApiError | None:
        """`existed`, `stood`: whether there was the group, and in which of the topics it stood, when this was asked.

        What was deleted since then is not begun again by who asked before.
        """
        async with self.locked(group_id, create=True) as group:
            if (existed and not group.machine.exists) or not group.machine.stands(asked).issuperset(stood):
                return CoordinatorNotAvailable(f"group {group_id!r}, or what it had there, was just deleted; try again")
            changes = await self.decide(group, lambda machine: machine.initialize(self._of_topics_there(asked)))
            if not changes.initializations:
                return None
            return await self._initialize_begun(group, changes)

    async def _initialize_begun(self, group: Group, changes: Changes) -> ApiError | None:
        """The second stage, under the group's lock. Returns: why it failed, or may have."""
        begun = changes.initializations
        wanted: dict[str, dict[int, int]] = {}
        for topic_id, partitions, start_offset in begun:
            wanted.setdefault(topic_id, {}).update(dict.fromkeys(sorted(partitions), start_offset))
        try:
            faults = await self.states.initialize(group.group_id, changes.state_epoch, wanted)
        except ApiError as error:
            return error  # whether it happened is not known: a later call asks again, from offset 0
        failure = next(iter(faults.values()), None)
        if failure is None:
            await self.decide(group, lambda machine: machine.initialized(begun))
        else:
            await self.decide(group, lambda machine: machine.initialization_refused(begun))
        return failure

    async def _initialize_for_members(self, group: Group, changes: Changes, *, locked: bool) -> None:
        """What a heartbeat began. `locked`: the group's lock was taken for this."""
        try:
            with self._database.fenced(group.group_id):
                if not locked:
                    await group.lock.acquire()
                    locked = True
                failure = await self._initialize_begun(group, changes) if self._current(group) else None
        except ApiError as error:
            failure = error
        finally:
            if locked:
                group.lock.release()
        if failure is not None:
            log.warning(
                "share-partitions are initialised later", extra=fields(group_id=group.group_id, cause=failure.detail)
            )

    # Summaries

    async def summary(self, group_id: str, query: GroupSummaryQuery) -> GroupSummaryResponse:
        """Start offset, leader epoch and count of a group's initialised share-partitions, by topic and partition.

        Raises: GroupIdNotFound.
        """
        group = await self.find(group_id)
        if not group.machine.exists:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        by_name = {
            row.name: (topic_id, topic.initialized)
            for topic_id, topic in group.machine.topics.items()
            if topic.initialized and (row := self._topic(topic_id)) is not None and query.topic in (None, row.name)
        }
        wanted: dict[str, list[int]] = {}
        more = False
        room = query.limit
        for name in sorted(name for name in by_name if name >= query.after_topic):
            topic_id, initialized = by_name[name]
            after = query.after_partition if name == query.after_topic else -1
            behind = sorted(partition for partition in initialized if partition > after)
            taken = behind if room is None else behind[:room]
            if taken:
                wanted[topic_id] = taken
            more = more or len(taken) < len(behind)
            if room is not None:
                room -= len(taken)
        summaries = []
        for topic_id, partitions in (await self.states.summaries(group_id, wanted)).items():
            row = self._topic(topic_id)
            if row is not None:
                summaries.append(GroupTopicSummary(topic=row.name, topic_id=topic_id, partitions=partitions))
        return GroupSummaryResponse(topics=sorted(summaries, key=lambda summary: summary.topic), more=more)


async def _taken_if_free(lock: asyncio.Lock) -> bool:
    """Take the lock unless somebody has it; nobody else comes in between."""
    if lock.locked():
        return False
    await lock.acquire()
    return True
