"""The group coordinator: topics, group settings, initialisation of share-partitions. Everything it answers is durable.

It is the only writer of its schema, so what it has read once it keeps in memory.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from sharequeue.log import fields
from sharequeue.protocol import apis
from sharequeue.protocol.configs import group_config_values
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidTopic,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    error_of,
)
from sharequeue.protocol.internal import (
    DeleteTopicRecordsRequest,
    GroupPartitionSummary,
    GroupTopicSummary,
    InitializedPartition,
    InitializedTopic,
    PartitionState,
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicState,
)
from sharequeue.protocol.messages import ConfigValue, Topic
from sharequeue.protocol.types import topic_name_fault
from sharequeue.service import Clock
from sharequeue.wire import Client
from sharequeue_coordinator import group_configs, share_group, store, topics
from sharequeue_coordinator.changes import Changes
from sharequeue_coordinator.gateways import Gateways
from sharequeue_coordinator.share_group import GroupTopic, Initialization
from sharequeue_coordinator.store import GroupTopicRow, TopicRow

log = logging.getLogger(__name__)

STATE_DEADLINE_S: Final = 8.0


class Group:
    """One group: its share-partitions by topic id. `lock`: one initialisation at a time."""

    __slots__ = ("epoch", "lock", "topics")

    def __init__(self, epoch: int, known: dict[str, GroupTopic]) -> None:
        self.epoch = epoch
        self.topics = known
        self.lock = asyncio.Lock()


class GroupCoordinator:
    """Owns schema `groups`."""

    def __init__(
        self,
        pool: Any,
        share_coordinator: Client,
        *,
        cluster_token: str,
        kafka_defaults: bool,
        max_partitions: int,
        deletion_retry_ms: int,
        clock: Clock,
        gateway_lease_ms: int,
    ) -> None:
        self._pool = pool
        self._share_coordinator = share_coordinator
        self._cluster_token = cluster_token
        self._kafka_defaults = kafka_defaults
        self._max_partitions = max_partitions
        self._deletion_retry_s = deletion_retry_ms / 1000
        self._by_name: dict[str, TopicRow] = {}
        self._by_id: dict[str, TopicRow] = {}
        self._in_doubt: set[str] = set()
        """Names of topics whose last change may or may not have been stored."""
        self._groups: dict[str, Group] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        self._topic_lock = asyncio.Lock()
        self._config_lock = asyncio.Lock()
        self._unfinished = asyncio.Event()
        self.changes = Changes()
        self.gateways = Gateways(self.query, self.changes, clock, lease_ms=gateway_lease_ms)

    async def load(self) -> None:
        """Read all topics and who leads. Called once, before anything is served."""
        await self.gateways.load()
        for topic in await self.query(store.topics):
            self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._unfinished.set()

    async def query(self, function: Any, *arguments: Any) -> Any:
        """Run a store function; every failure of the database is a StorageError."""
        try:
            async with self._pool.acquire(timeout=5) as connection:
                return await function(connection, *arguments)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
            raise StorageError(f"the group coordinator's database does not answer: {fault!r}") from fault

    # Topics

    def describe(self, topic: TopicRow) -> Topic:
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            config=topics.config_in_force(topic.config),
        )

    def known(self, names: Sequence[str], topic_ids: Sequence[str]) -> list[Topic]:
        found = {
            topic.topic_id: topic
            for topic in (*map(self._by_name.get, names), *map(self._by_id.get, topic_ids))
            if topic is not None
        }
        return [self.describe(topic) for topic in found.values()]

    def page(self, size: int, after: str | None) -> tuple[list[TopicRow], str | None]:
        """Topics by name, `size` of them behind the name `after`; and the next page's `after`."""
        names = sorted(name for name in self._by_name if after is None or name > after)
        page = [self._by_name[name] for name in names[:size]]
        return page, page[-1].name if len(names) > size else None

    @property
    def topic_count(self) -> int:
        return len(self._by_name)

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, ConfigValue]) -> Topic:
        stored = topics.check_new(name, partitions, config, self._max_partitions)
        topic = TopicRow(str(uuid.uuid4()), name, partitions, stored)
        async with self._topic_lock:
            await self._settle(name)
            if name in self._by_name or await self._change(name, topic, store.insert_topic, topic) != topic:
                raise TopicAlreadyExists(f"there is a topic {name!r} already")
        return self.describe(topic)

    async def update_topic(
        self, name: str, partitions: int | None, config: Mapping[str, ConfigValue | None], reset: Sequence[str]
    ) -> Topic:
        async with self._topic_lock:
            await self._settle(name)
            topic = self.topic(name)
            if partitions is not None:
                topics.check_growth(name, topic.partitions, partitions, self._max_partitions)
            changed = topic._replace(
                partitions=topic.partitions if partitions is None else partitions,
                config=topics.changed_config(topic.config, config, reset),
            )
            if changed != topic:
                await self._change(name, changed, store.update_topic, changed)
        return self.describe(changed)

    async def delete_topic(self, name: str) -> None:
        """Persist that the topic is being deleted; the rest is done behind the answer, and resumed after a crash."""
        async with self._topic_lock:
            await self._settle(name)
            topic = self.topic(name)
            await self._change(name, None, store.mark_topic_deleting, topic.topic_id)
        self._unfinished.set()

    def topic(self, name: str) -> TopicRow:
        """Raises: UnknownTopicOrPartition, InvalidTopic."""
        found = self._by_name.get(name)
        if found is None:
            fault = topic_name_fault(name)
            if fault:
                raise InvalidTopic(fault)
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    async def _change(self, name: str, wanted: TopicRow | None, function: Any, argument: Any) -> TopicRow | None:
        """Make a topic what is wanted (None: gone). Where the outcome was lost, find out what is stored before telling.

        Returns: the topic of that name now. Raises: StorageError: it was not changed, or that is still not known.
        """
        try:
            stored: TopicRow | None = await self.query(function, argument)
        except StorageError:
            self._in_doubt.add(name)
            self._unfinished.set()
            await self._settle(name)
            if self._by_name.get(name) != wanted:
                raise
            return wanted
        self._learn(name, stored)
        return stored

    async def _settle(self, name: str) -> None:
        """Have the topic of that name as it is stored, if its last change is in doubt. Raises: StorageError."""
        if name in self._in_doubt:
            self._learn(name, await self.query(store.topic, name))
            self._in_doubt.discard(name)

    def _learn(self, name: str, stored: TopicRow | None) -> None:
        known = self._by_name.get(name)
        if known == stored:
            return
        if known is not None and (stored is None or stored.topic_id != known.topic_id):
            del self._by_name[name], self._by_id[known.topic_id]
            self.changes.note(topic_id=known.topic_id)
        if stored is not None:
            self._by_name[name] = self._by_id[stored.topic_id] = stored
            self.changes.note(topic_id=stored.topic_id)

    async def finish(self) -> None:
        """Find out what became of changes in doubt, and finish deletions. For ever."""
        while True:
            await self._unfinished.wait()
            self._unfinished.clear()
            try:
                for name in list(self._in_doubt):
                    async with self._topic_lock:
                        await self._settle(name)
                for topic_id, partitions in await self.query(store.deleting_topics):
                    await self._finish_deletion(topic_id, partitions)
            except ApiError as error:
                log.warning("changes of topics are finished later", extra=fields(cause=error.detail))
                await asyncio.sleep(self._deletion_retry_s)
                self._unfinished.set()

    async def _finish_deletion(self, topic_id: str, partitions: int) -> None:
        """Remove a topic: records, then share state, then metadata."""
        known = self._by_id.get(topic_id)
        if known is not None:  # a deletion that was given up reached the database after all
            self._learn(known.name, None)
        await self._delete_records(topic_id, partitions)
        await self._share_coordinator.call(apis.TOPIC_STATE_DELETED, TopicDeletedRequest(topic_id=topic_id))
        await self.query(store.remove_topic, topic_id)
        for group in self._groups.values():
            group.topics.pop(topic_id, None)
        log.info("topic deleted", extra=fields(topic_id=topic_id))

    async def _delete_records(self, topic_id: str, partitions: int) -> None:
        failure: ApiError = CoordinatorNotAvailable("no gateway is there")
        for known in self.gateways.generation.gateways:
            gateway = Client(known.url, cluster_token=self._cluster_token)
            try:
                request = DeleteTopicRecordsRequest(topic_id=topic_id, partitions=partitions)
                await gateway.call(apis.DELETE_TOPIC_RECORDS, request, deadline_s=5)
            except ApiError as error:
                failure = error
            else:
                return
            finally:
                await gateway.close()
        raise failure

    # Group settings

    async def group_config(self, group_id: str) -> dict[str, str]:
        """A group's settings in force."""
        stored = await self.query(store.group_config, group_id)
        return group_config_values(group_id, stored, self._kafka_defaults)

    async def update_group_config(
        self, group_id: str, changes: Mapping[str, ConfigValue | list[str] | None]
    ) -> dict[str, str]:
        """Check all changes, store them, answer the settings in force. Raises: InvalidConfig."""
        async with self._config_lock:
            stored = await self.query(store.group_config, group_id)
            config = group_configs.changed_config(stored, changes, self._kafka_defaults)
            if config != stored:
                try:
                    await self.query(store.save_group_config, group_id, config)
                finally:
                    self.changes.note(group_id=group_id)  # after a lost outcome too: gateways ask what is stored
        return group_config_values(group_id, config, self._kafka_defaults)

    # Initialisation

    async def _group(self, group_id: str) -> Group | None:
        known = self._groups.get(group_id)
        if known is not None:
            return known
        async with self._loading.setdefault(group_id, asyncio.Lock()):
            known = self._groups.get(group_id)
            if known is None:
                found = await self.query(store.group, group_id)
                if found is not None:
                    epoch, rows = found
                    of_topics = {row.topic_id: GroupTopic(row.initializing, row.initialized) for row in rows}
                    known = self._groups[group_id] = Group(epoch, of_topics)
        self._loading.pop(group_id, None)
        return known

    async def initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> list[InitializedTopic]:
        """Make sure that share-partitions are initialised; the group comes to be with the first."""
        faults: dict[tuple[str, int], ApiError] = {}
        valid: dict[str, list[int]] = {}
        for topic_id, partitions in asked.items():
            topic = self._by_id.get(topic_id)
            for partition in partitions:
                if topic is None or not 0 <= partition < topic.partitions:
                    detail = f"there is no partition {partition} of topic id {topic_id}"
                    faults[topic_id, partition] = UnknownTopicOrPartition(detail)
                else:
                    valid.setdefault(topic_id, []).append(partition)
        group = await self._group(group_id)
        if valid and (group is None or share_group.missing(group.topics, valid)):
            failure = await self._initialize(group_id, valid)
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

    async def _initialize(self, group_id: str, asked: Mapping[str, Sequence[int]]) -> ApiError | None:
        group = await self._group(group_id)
        if group is None:
            group = self._groups.setdefault(group_id, Group(0, {}))
        async with group.lock:
            initializations = share_group.missing(group.topics, asked)
            if not initializations:
                return None
            group.epoch = await self.query(store.bump_group, group_id)
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
            await self.query(store.remove_group_topics, group_id, forgotten)
            for topic_id in forgotten:
                del group.topics[topic_id]
            return failure

    async def _save(self, group_id: str, group: Group, changed: Mapping[str, GroupTopic]) -> None:
        rows = [GroupTopicRow(topic_id, *topic) for topic_id, topic in changed.items()]
        await self.query(store.save_group_topics, group_id, rows)
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
        response: ShareStateResponse = await self._share_coordinator.call(
            apis.INITIALIZE_STATE, request, deadline_s=STATE_DEADLINE_S
        )
        for topic in response.results:
            for partition in topic.partitions:
                if partition.error_code == 15:
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
            if topic_id in self._by_id and topic.initialized
        }
        request = ShareStateRequest(
            group_id=group_id,
            topics=[
                TopicState(topic_id=topic_id, partitions=[PartitionState(partition=p) for p in partitions])
                for topic_id, partitions in wanted.items()
            ],
        )
        response: ShareStateResponse = await self._share_coordinator.call(apis.READ_STATE_SUMMARY, request)
        summaries = []
        for topic in response.results:
            row = self._by_id.get(topic.topic_id or "")
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
