"""The groups: which share-partitions each has, initialised in two stages. What it answers is durable.

The owner of a group's shard is the only writer of its rows, so what it has read once it keeps in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from sharequeue.coordinators import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    UnknownTopicOrPartition,
    error_of,
)
from sharequeue.protocol.internal import (
    GroupPartitionSummary,
    GroupTopicSummary,
    InitializedPartition,
    InitializedTopic,
    PartitionState,
    ShareStateRequest,
    ShareStateResponse,
    TopicState,
)
from sharequeue_coordinator import share_group, store
from sharequeue_coordinator.share_group import GroupTopic, Initialization
from sharequeue_coordinator.store import Fence, GroupTopicRow, TopicRow
from sharequeue_coordinator.writing import Database

STATE_DEADLINE_S: Final = 8.0


class Group:
    """One group: its share-partitions by topic id. `fence`: what it was read under. `lock`: one initialisation at a time."""

    __slots__ = ("epoch", "fence", "lock", "topics")

    def __init__(self, fence: Fence, epoch: int, known: dict[str, GroupTopic]) -> None:
        self.fence = fence
        self.epoch = epoch
        self.topics = known
        self.lock = asyncio.Lock()


class Groups:
    """All groups that were asked for, by id.

    Args:
        topic: the topic of an id, if there is one as far as is known. catch_up: makes that what is known everywhere.
    """

    def __init__(
        self,
        database: Database,
        topic: Callable[[str], TopicRow | None],
        catch_up: Callable[[], Awaitable[None]],
        share_coordinator: CoordinatorClient,
    ) -> None:
        self._database = database
        self._query = database.query
        self._topic = topic
        self._catch_up = catch_up
        self._share_coordinator = share_coordinator
        self._groups: dict[str, Group] = {}
        self._loading: dict[str, asyncio.Lock] = {}

    def forget_topic(self, topic_id: str) -> None:
        """A topic is gone for good."""
        for group in self._groups.values():
            group.topics.pop(topic_id, None)

    def forget(self, shards: frozenset[int]) -> None:
        """These shards are another's now."""
        self._groups = {group_id: group for group_id, group in self._groups.items() if group.fence.shard not in shards}

    # Initialisation

    async def _group(self, group_id: str) -> Group | None:
        fence = self._database.fence(group_id)
        known = self._groups.get(group_id)
        if known is not None:
            return known
        async with self._loading.setdefault(group_id, asyncio.Lock()):
            known = self._groups.get(group_id)
            if known is None:
                found = await self._query(store.group, group_id)
                if found is not None:
                    epoch, rows = found
                    of_topics = {row.topic_id: GroupTopic(row.initializing, row.initialized) for row in rows}
                    known = Group(fence, epoch, of_topics)
                    if self._database.fence(group_id) == fence:  # or else what was read may be out of date
                        self._groups[group_id] = known
        self._loading.pop(group_id, None)
        return known

    async def initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> list[InitializedTopic]:
        """Make sure that share-partitions are initialised; the group comes to be with the first."""
        faults: dict[tuple[str, int], ApiError] = {}
        valid: dict[str, list[int]] = {}
        if not all(self._there(topic_id, max(partitions, default=0)) for topic_id, partitions in asked.items()):
            await self._catch_up()
        for topic_id, partitions in asked.items():
            for partition in partitions:
                if self._there(topic_id, partition):
                    valid.setdefault(topic_id, []).append(partition)
                else:
                    detail = f"there is no partition {partition} of topic id {topic_id}"
                    faults[topic_id, partition] = UnknownTopicOrPartition(detail)
        group = await self._group(group_id)
        if valid and (group is None or share_group.missing(group.topics, valid)):
            try:
                with self._database.fenced(group_id):
                    failure = await self._initialize(group_id, valid)
            except UnknownTopicOrPartition as error:
                failure = error
            if failure is not None:
                faults.update({(topic_id, p): failure for topic_id, partitions in valid.items() for p in partitions})
        return [
            InitializedTopic(
                topic_id=topic_id,
                partitions=[
                    InitializedPartition(
                        partition=partition,
                        error_code=fault.error.kafka_code if fault else 0,
                        error_message=fault.detail if fault else None,
                    )
                    for partition in partitions
                    for fault in (faults.get((topic_id, partition)),)
                ],
            )
            for topic_id, partitions in asked.items()
        ]

    def _there(self, topic_id: str, partition: int) -> bool:
        topic = self._topic(topic_id)
        return topic is not None and 0 <= partition < topic.partitions

    async def _initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> ApiError | None:
        group = await self._group(group_id)
        if group is None:
            group = self._groups.setdefault(group_id, Group(self._database.fence(group_id), 0, {}))
        async with group.lock:
            initializations = share_group.missing(group.topics, asked)
            if not initializations:
                return None
            group.epoch = await self._query(store.bump_group, group.fence, group_id)
            await self._save(group_id, group, share_group.begin(group.topics, initializations))
            try:
                failure = await self._initialize_state(group_id, group.epoch, initializations)
            except ApiError as error:
                return error  # whether it happened is not known: the next call asks again, from offset 0
            if failure is None:
                await self._save(group_id, group, share_group.succeed(group.topics, initializations))
                return None
            changed, forgotten = share_group.fail(group.topics, initializations)
            await self._save(group_id, group, changed)
            await self._query(store.remove_group_topics, group.fence, group_id, forgotten)
            for topic_id in forgotten:
                del group.topics[topic_id]
            return failure

    async def _save(self, group_id: str, group: Group, changed: Mapping[str, GroupTopic]) -> None:
        """Raises: UnknownTopicOrPartition: a topic went meanwhile."""
        rows = [GroupTopicRow(topic_id, *topic) for topic_id, topic in changed.items()]
        if not await self._query(store.save_group_topics, group.fence, group_id, rows):
            await self._catch_up()
            raise UnknownTopicOrPartition("a topic was deleted just now")
        group.topics.update(changed)

    async def _initialize_state(
        self, group_id: str, state_epoch: int, initializations: Sequence[Initialization]
    ) -> ApiError | None:
        request = ShareStateRequest(
            group_id=group_id,
            topics=[
                TopicState(
                    topic_id=topic_id,
                    partitions=[
                        PartitionState(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
                        for partition in sorted(partitions)
                    ],
                )
                for topic_id, partitions, start_offset in initializations
            ],
        )
        response: ShareStateResponse = await self._share_coordinator.state(
            apis.INITIALIZE_STATE, request, deadline_s=STATE_DEADLINE_S
        )
        for topic in response.results:
            for partition in topic.partitions:
                if partition.error_code in (14, 15, 16):
                    raise CoordinatorNotAvailable(partition.error_message or "", definite=False)
                if partition.error_code:
                    return error_of(partition.error_code, partition.error_message)
        return None

    # Summaries

    async def summary(self, group_id: str) -> list[GroupTopicSummary]:
        """Start offset, leader epoch and count of a group's initialised share-partitions. Raises: GroupIdNotFound."""
        group = await self._group(group_id)
        if group is None or not group.epoch:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        wanted = {
            topic_id: sorted(topic.initialized)
            for topic_id, topic in group.topics.items()
            if topic.initialized and self._topic(topic_id) is not None
        }
        request = ShareStateRequest(
            group_id=group_id,
            topics=[
                TopicState(topic_id=topic_id, partitions=[PartitionState(partition=p) for p in partitions])
                for topic_id, partitions in wanted.items()
            ],
        )
        response: ShareStateResponse = await self._share_coordinator.state(apis.READ_STATE_SUMMARY, request)
        summaries = []
        for topic in response.results:
            row = self._topic(topic.topic_id or "")
            if row is None:
                continue
            partitions = [
                GroupPartitionSummary(
                    partition=partition.partition,
                    start_offset=_known(partition.start_offset, partition.error_code),
                    leader_epoch=0 if partition.error_code else partition.leader_epoch or 0,
                    delivery_complete_count=_known(partition.delivery_complete_count, partition.error_code),
                )
                for partition in topic.partitions
            ]
            summaries.append(GroupTopicSummary(topic=row.name, topic_id=row.topic_id, partitions=partitions))
        return sorted(summaries, key=lambda summary: summary.topic)


def _known(value: int | None, error_code: int) -> int:
    return -1 if error_code or value is None else value
