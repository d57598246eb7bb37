"""The group coordinator: topics, group settings, and through `groups` what groups have. Everything it answers is durable.

It is the only writer of its schema, so what it has read once it keeps in memory.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from sharequeue.log import fields
from sharequeue.protocol import apis
from sharequeue.protocol.configs import group_config_values
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidTopic,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.internal import (
    DeleteTopicRecordsRequest,
    TopicDeletedRequest,
)
from sharequeue.protocol.messages import ConfigValue, Topic
from sharequeue.protocol.types import topic_name_fault
from sharequeue.service import Clock
from sharequeue.wire import Client
from sharequeue_coordinator import group_configs, store, topics
from sharequeue_coordinator.changes import Changes
from sharequeue_coordinator.gateways import Gateways
from sharequeue_coordinator.groups import Groups
from sharequeue_coordinator.store import TopicRow

log = logging.getLogger(__name__)


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
        self._topic_lock = asyncio.Lock()
        self._config_lock = asyncio.Lock()
        self._unfinished = asyncio.Event()
        self.changes = Changes()
        self.groups = Groups(self.query, self._by_id.get, share_coordinator)
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
        self.groups.forget_topic(topic_id)
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
