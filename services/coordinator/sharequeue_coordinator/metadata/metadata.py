"""The topics and gateways as this instance knows them, and how it learns of changes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sharequeue import access_store
from sharequeue.clock import Clock
from sharequeue.protocol.configs import TOPIC_CONFIGS, effective
from sharequeue.protocol.errors import CoordinatorLoadInProgress, InvalidTopic, StorageError, UnknownTopicOrPartition
from sharequeue.protocol.messages.cluster import Gateway
from sharequeue.protocol.messages.topics import Topic
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import topic_name_fault
from sharequeue.repeats import heard
from sharequeue_coordinator.database import Database, Fence
from sharequeue_coordinator.metadata import store
from sharequeue_coordinator.metadata.change_feed import MOST_CHANGES, ChangeFeed
from sharequeue_coordinator.metadata.gateways import Gateways
from sharequeue_coordinator.metadata.store import TopicRow
from sharequeue_coordinator.settings import Settings


class Metadata:
    """Everything of schema `groups` that belongs to no group.

    Args:
        topic_gone: called with the id of each topic that is deleted or being deleted.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: Settings,
        topic_gone: Callable[[str], None],
    ) -> None:
        self._database = database
        self._query = database.query
        self._kafka_defaults = settings.kafka_defaults or settings.record_log == "kafka"
        self._topic_gone = topic_gone
        self._catching_up = asyncio.Lock()
        self._leading = asyncio.Lock()
        self._led: Fence | None = None
        self._loaded_at, self._led_at = 0, 0
        """The numbers of the time line at the last `load` and `lead`."""
        self._to_do = asyncio.Event()
        self.by_name: dict[str, TopicRow] = {}
        self.by_id: dict[str, TopicRow] = {}
        self.access = 0
        """The revision of keys and rights."""
        self.feed = ChangeFeed()
        self.ask_for: Callable[[Sequence[str]], Awaitable[None]] | None = None
        """Asks for topics by names that are not known, where topics are made by other means, too."""
        self.gateways = Gateways(database.query, self.lead, database.leads, clock, settings.gateway_lease_ms)

    # Learning

    async def load(self) -> None:
        """Read all topics and the generation of gateways. Called before anything is served."""
        version = await self._query(store.metadata_version)
        kept = await self._query(store.changes_after, version - MOST_CHANGES)
        stored = {topic.topic_id: topic for topic in await self._query(store.topics)}
        for topic_id in {*self.by_id, *stored}:
            self._learn(topic_id, stored.get(topic_id))
        await self._refresh()
        self.feed.begin(version, [change for change in kept if change.version <= version])
        self.look()

    async def catch_up(self) -> None:
        """Learn of every change that is committed by now, whichever instance made it."""
        async with self._catching_up:
            number = self._database.time_line.number
            if number != self._loaded_at:  # versions of before say nothing
                await self.load()
                self._loaded_at = number
                return
            if await self._query(store.metadata_version) == self.feed.version:
                return
            new = await self._query(store.changes_after, self.feed.version)
            if not new or new[0].version != self.feed.version + 1:
                await self.load()  # more has changed than the database keeps
                return
            topic_ids = {change.topic_id for change in new if change.topic_id is not None}
            if topic_ids:
                stored = {topic.topic_id: topic for topic in await self._query(store.topics_by_id, list(topic_ids))}
                for topic_id in topic_ids:
                    self._learn(topic_id, stored.get(topic_id))
            if any(change.topic_id is None and change.group_id is None for change in new):
                await self._refresh()
            self.feed.note(new)

    async def _refresh(self) -> None:
        await self.gateways.refresh()
        self.access = await self._query(access_store.revision)

    def _learn(self, topic_id: str, stored: TopicRow | None) -> None:
        """Keep a topic as it is stored. None: it is deleted, or being deleted."""
        known = self.by_id.pop(topic_id, None)
        if known is not None and self.by_name.get(known.name) is known:
            del self.by_name[known.name]
        if stored is None:
            self._topic_gone(topic_id)
        else:
            self.by_name[stored.name] = self.by_id[topic_id] = stored

    async def lead(self) -> Fence:
        """The fence to write topics and gateways under, once this instance knows all that an earlier owner wrote.

        Raises: NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable: it does not own the cluster's shard.
        """
        fence = self._database.fence(CLUSTER)
        if fence != self._led:
            number = self._database.time_line.number
            async with self._leading:
                if fence != self._led:
                    if number != self._led_at:
                        await self._query(store.begin_time_line, fence)
                    await self.catch_up()
                    await self.gateways.load()
                    if number != self._led_at:
                        await self.gateways.renumber(fence)
                        self._led_at = number
                    if number != self._database.time_line.number:
                        raise CoordinatorLoadInProgress("PostgreSQL was started again; try again in a moment")
                    self._led = fence
        return fence

    async def read(self, function: Any, *arguments: Any) -> Any:
        await self.lead()
        return await self._query(function, *arguments)

    async def change(self, function: Any, *arguments: Any) -> Any:
        """Run a function of a store in a transaction under the fence.

        Raises: the function's errors; StorageError: its outcome may be unknown.
        """
        changed = await self._query(store.fenced, await self.lead(), function, *arguments)
        self.look()
        return changed

    def forget(self) -> None:
        """PostgreSQL was started again, and may have come back older: the next use of anything reads it again."""
        self._led = None
        self.gateways.forget()
        self.look()

    def look(self) -> None:
        """Something changed, or a shard came: wake `wait`."""
        self._to_do.set()

    async def wait(self, seconds: float) -> None:
        """Return when `look` was called, or after this time."""
        await heard(self._to_do, seconds)
        self._to_do.clear()

    # Knowing

    def topic(self, name: str) -> TopicRow:
        """Raises: UnknownTopicOrPartition, InvalidTopic."""
        found = self.by_name.get(name)
        if found is None:
            fault = topic_name_fault(name)
            if fault:
                raise InvalidTopic(fault)
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    def has_partition(self, topic_id: str, partition: int) -> bool:
        """Return whether this instance knows such a partition."""
        topic = self.by_id.get(topic_id)
        return topic is not None and 0 <= partition < topic.partitions

    def known(self, names: Sequence[str], topic_ids: Sequence[str]) -> list[Topic]:
        """Topics by name or id, as this instance knows them."""
        found = {
            topic.topic_id: topic
            for topic in (*map(self.by_name.get, names), *map(self.by_id.get, topic_ids))
            if topic is not None
        }
        return [self.described(topic) for topic in found.values()]

    async def describe_topics(self, names: Sequence[str], topic_ids: Sequence[str]) -> list[Topic]:
        """Topics by name or id, with every committed change; without the database, as this instance knows them."""
        try:
            await self.catch_up()
            unknown = [name for name in names if name not in self.by_name]
            if unknown and self.ask_for is not None:
                await self.ask_for(unknown)
        except StorageError:
            if self._loaded_at != self._database.time_line.number:
                raise  # what it knows may be gone
            if not all(name in self.by_name for name in names) or not all(known in self.by_id for known in topic_ids):
                raise
        return self.known(names, topic_ids)

    def page(self, size: int, after: str | None) -> tuple[list[TopicRow], str | None]:
        """At most `size` topics with names after `after`, by name; and the next page's `after`."""
        names = sorted(name for name in self.by_name if after is None or name > after)
        page = [self.by_name[name] for name in names[:size]]
        return page, page[-1].name if len(names) > size else None

    async def live_gateways(self) -> Sequence[Gateway]:
        await self.gateways.refresh()
        return self.gateways.generation.gateways

    def described(self, topic: TopicRow) -> Topic:
        """A topic as answers have it, with all its settings in force."""
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            config={**topic.config, **effective(TOPIC_CONFIGS, topic.config, self._kafka_defaults)},
        )
