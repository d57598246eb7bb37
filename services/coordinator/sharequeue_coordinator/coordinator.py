"""The group coordinator: topics, group settings, and through `groups` what groups have. Everything it answers is durable.

Of several instances one owns a shard of groups, and one what belongs to no group: topics and gateways. The others follow
the changes of topics, which are noted with them in one statement: each instance learns of its own in the same way.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.http.caller import Client
from sharequeue.log import fields
from sharequeue.ownership.share_state_client import ShareStateClient
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
from sharequeue.protocol.internal import DeleteTopicRecordsRequest, Gateway
from sharequeue.protocol.messages import ConfigValue, Topic
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import topic_name_fault
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups.admin import GroupAdmin
from sharequeue_coordinator.groups.member_sessions import MemberSessions
from sharequeue_coordinator.groups.registry import Groups
from sharequeue_coordinator.metadata import store
from sharequeue_coordinator.metadata import topic_rules as topics
from sharequeue_coordinator.metadata.change_feed import KEPT, Changes
from sharequeue_coordinator.metadata.gateways import Gateways
from sharequeue_coordinator.metadata.store import Fence, TopicRow
from sharequeue_coordinator.share_group import configs as group_configs

log = logging.getLogger(__name__)

FOLLOW_S: Final = 1.0
"""How often changes are looked for when nobody told of one."""


class GroupCoordinator:
    """Owns schema `groups`, with the other instances."""

    def __init__(
        self,
        database: Database,
        share_coordinator: ShareStateClient,
        *,
        cluster_token: str,
        kafka_defaults: bool,
        max_partitions: int,
        deletion_retry_ms: int,
        clock: Clock,
        gateway_lease_ms: int,
        group_max_size: int,
        initialize_retry_interval_ms: int,
    ) -> None:
        self._database = database
        self._share_coordinator = share_coordinator
        self._cluster_token = cluster_token
        self._kafka_defaults = kafka_defaults
        self._max_partitions = max_partitions
        self._deletion_retry_s = deletion_retry_ms / 1000
        self._by_name: dict[str, TopicRow] = {}
        self._by_id: dict[str, TopicRow] = {}
        self._topic_lock = asyncio.Lock()
        self._config_lock = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._leading = asyncio.Lock()
        self._led: Fence | None = None
        self._to_do = asyncio.Event()
        self.query = database.query
        self.health = database.health
        self.changes = Changes()
        self.groups = Groups(
            database,
            self._by_name,
            self._by_id.get,
            self.catch_up,
            share_coordinator,
            clock,
            kafka_defaults=kafka_defaults,
            max_size=group_max_size,
            initialize_retry_interval_ms=initialize_retry_interval_ms,
        )
        self.sessions = MemberSessions(self.groups, database, self._by_name, clock)
        self.gateways = Gateways(self.query, self.lead, database.leads, clock, lease_ms=gateway_lease_ms)
        self.group_admin = GroupAdmin(
            self.groups, self._by_name, self._by_id.get, self._live_gateways, cluster_token=cluster_token
        )

    async def load(self) -> None:
        """Read all topics and which gateways lead. Called before anything is served."""
        version = await self.query(store.metadata_version)
        kept = await self.query(store.changes_after, version - KEPT)
        stored = {topic.topic_id: topic for topic in await self.query(store.topics)}
        for topic_id in {*self._by_id, *stored}:
            self._learn(topic_id, stored.get(topic_id))
        await self.gateways.refresh()
        self.changes.begin(version, [change for change in kept if change.version <= version])
        self._to_do.set()

    async def _live_gateways(self) -> Sequence[Gateway]:
        await self.gateways.refresh()
        return self.gateways.generation.gateways

    # Shards

    async def lead(self) -> Fence:
        """What to write of topics and gateways under, once all is known that an earlier owner wrote.

        Raises: NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable: this instance does not own that.
        """
        fence = self._database.fence(CLUSTER)
        if fence != self._led:
            async with self._leading:
                if fence != self._led:
                    await self.catch_up()
                    await self.gateways.load()
                    self._led = fence
        return fence

    def forget(self, shards: frozenset[int]) -> None:
        """These shards are another's now."""
        self.groups.forget(shards)
        self.changes.wake()

    def look(self) -> None:
        """Somebody changed something, or a shard came: see what there is to do."""
        self._to_do.set()

    async def catch_up(self) -> None:
        """Learn of every change that is committed by now, by whomever."""
        async with self._catching_up:
            if await self.query(store.metadata_version) == self.changes.version:
                return
            new = await self.query(store.changes_after, self.changes.version)
            if not new or new[0].version != self.changes.version + 1:
                await self.load()  # more has changed than is kept
                return
            topic_ids = {change.topic_id for change in new if change.topic_id is not None}
            if topic_ids:
                stored = {topic.topic_id: topic for topic in await self.query(store.topics_by_id, list(topic_ids))}
                for topic_id in topic_ids:
                    self._learn(topic_id, stored.get(topic_id))
            if any(change.topic_id is None and change.group_id is None for change in new):
                await self.gateways.refresh()
            self.changes.note(new)

    # Topics

    def describe(self, topic: TopicRow) -> Topic:
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            config=topics.config_in_force(topic.config),
        )

    async def describe_topics(self, names: Sequence[str], topic_ids: Sequence[str]) -> list[Topic]:
        """Topics by name or id, as they are at any instance by now; with the database away, as they were known here."""
        try:
            await self.catch_up()
        except StorageError:
            if not all(name in self._by_name for name in names) or not all(known in self._by_id for known in topic_ids):
                raise
        return self.known(names, topic_ids)

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
            fence = await self.lead()
            if name in self._by_name or await self._change(name, topic, store.insert_topic, fence, topic) != topic:
                raise TopicAlreadyExists(f"there is a topic {name!r} already")
        return self.describe(topic)

    async def update_topic(
        self, name: str, partitions: int | None, config: Mapping[str, ConfigValue | None], reset: Sequence[str]
    ) -> Topic:
        async with self._topic_lock:
            fence = await self.lead()
            topic = self.topic(name)
            if partitions is not None:
                topics.check_growth(name, topic.partitions, partitions, self._max_partitions)
            changed = topic._replace(
                partitions=topic.partitions if partitions is None else partitions,
                config=topics.changed_config(topic.config, config, reset),
            )
            if changed != topic:
                await self._change(name, changed, store.update_topic, fence, changed)
        return self.describe(changed)

    async def delete_topic(self, name: str) -> None:
        """Persist that the topic is being deleted; the rest is done behind the answer, and resumed after a crash."""
        async with self._topic_lock:
            fence = await self.lead()
            topic = self.topic(name)
            await self._change(name, None, store.mark_topic_deleting, fence, topic.topic_id)
        self._to_do.set()

    def topic_by_id(self, topic_id: str) -> TopicRow | None:
        return self._by_id.get(topic_id)

    def topic(self, name: str) -> TopicRow:
        """Raises: UnknownTopicOrPartition, InvalidTopic."""
        found = self._by_name.get(name)
        if found is None:
            fault = topic_name_fault(name)
            if fault:
                raise InvalidTopic(fault)
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    async def _change(
        self, name: str, wanted: TopicRow | None, function: Any, fence: Fence, argument: Any
    ) -> TopicRow | None:
        """Make a topic what is wanted (None: gone). Where the outcome was lost, find out what is stored before telling.

        Returns: the topic of that name now. Raises: StorageError: it was not changed, or that is still not known.
        """
        try:
            await self.query(function, fence, argument)
        except StorageError:
            await self.catch_up()
            if self._by_name.get(name) != wanted:
                raise
        else:
            await self.catch_up()
        return self._by_name.get(name)

    def _learn(self, topic_id: str, stored: TopicRow | None) -> None:
        """A topic as it is stored; None: it is gone, or goes."""
        known = self._by_id.pop(topic_id, None)
        if known is not None and self._by_name.get(known.name) is known:
            del self._by_name[known.name]
        if stored is None:
            self.groups.forget_topic(topic_id)
        else:
            self._by_name[stored.name] = self._by_id[topic_id] = stored

    async def finish(self) -> None:
        """Follow the changes, also those whose outcome was lost, and finish deletions. For ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._to_do.wait()
            self._to_do.clear()
            try:
                await self.catch_up()
                if self._database.leads():
                    fence = await self.lead()
                    for topic_id, partitions in await self.query(store.deleting_topics):
                        await self._finish_deletion(fence, topic_id, partitions)
            except ApiError as error:
                log.warning("changes of topics are finished later", extra=fields(cause=error.detail))
                await asyncio.sleep(self._deletion_retry_s)
                self._to_do.set()

    async def _finish_deletion(self, fence: Fence, topic_id: str, partitions: int) -> None:
        """Remove a topic: records, then share state, then metadata."""
        await self._delete_records(topic_id, partitions)
        await self._share_coordinator.delete_topic_state(topic_id)
        await self.query(store.remove_topic, fence, topic_id)
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
        self._database.fence(group_id)
        stored = await self.query(store.group_config, group_id)
        return group_config_values(group_id, stored, self._kafka_defaults)

    async def update_group_config(
        self, group_id: str, changes: Mapping[str, ConfigValue | list[str] | None]
    ) -> dict[str, str]:
        """Check all changes, store them, answer the settings in force. Raises: InvalidConfig."""
        async with self._config_lock:
            fence = self._database.fence(group_id)
            stored = await self.query(store.group_config, group_id)
            config = group_configs.changed_config(stored, changes, self._kafka_defaults)
            if config != stored:
                await self.query(store.save_group_config, fence, group_id, config)
                await self.groups.configure(group_id, config)
                await self.catch_up()
        return group_config_values(group_id, config, self._kafka_defaults)
