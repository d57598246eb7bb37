"""Topics of a Kafka cluster. Kafka decides which there are; schema `groups` has a copy, which everything else reads.

    a call       ─▶ Kafka ─▶ the copy ─▶ the feed of changes, as for topics in PostgreSQL
    each 2 s     all topics of Kafka ─▶ what is new, has grown, was set elsewhere or is gone ─▶ the copy
    a new name   Kafka is asked for it at once

The copy of a topic's settings holds those of Kafka that the topic has itself or that this service knows, and its own
(`OWN`). A topic is gone when Kafka says so of its name, in two looks: its groups' progress goes with it.
"""

import asyncio
import fnmatch
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sharequeue.protocol.configs import TOPIC_CONFIGS, changed_config
from sharequeue.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages.topics import Topic
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look
from sharequeue.service.settings import SettingsError
from sharequeue_coordinator.metadata import store, topic_rules
from sharequeue_coordinator.metadata.store import TopicRow
from sharequeue_coordinator.metadata.topic_admin import TopicAdmin
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields
from sharequeue_kafka.cluster import Config, KafkaCluster, KafkaTopic
from sharequeue_kafka.errors import KafkaError

log = logging.getLogger(__name__)

OWN: Final = frozenset(TOPIC_CONFIGS) - {
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "message.timestamp.after.max.ms",
    "max.message.bytes",
}
"""Settings that are not Kafka's, or not those of each of its versions."""
REFUSED: Final[Mapping[int, type[ApiError]]] = {
    3: UnknownTopicOrPartition,
    17: InvalidTopic,
    36: TopicAlreadyExists,
    37: InvalidPartitions,
    38: InvalidConfig,
    40: InvalidConfig,
    42: InvalidConfig,
    44: InvalidConfig,
    100: UnknownTopicOrPartition,
}
LOOK_S: Final = 2.0
SHARE: Final = 20
"""A look takes at most one part in so many of the time."""
MOST_NEW: Final = 200
"""Topics that one look adds, and asks for the settings of."""


@contextmanager
def asking() -> Iterator[None]:
    """Raises: ApiError: Kafka's error in our form."""
    try:
        yield
    except KafkaError as error:
        kind = REFUSED.get(error.code)
        if kind is None:
            raise StorageError(f"Kafka cannot do it now: {error}") from error
        raise kind(f"Kafka refuses it: {error.message}") from error


def copied(config: Mapping[str, Config]) -> dict[str, str]:
    """The settings of Kafka that the copy of a topic holds."""
    return {
        name: each.value
        for name, each in config.items()
        if each.value is not None and name not in OWN and (name in TOPIC_CONFIGS or not each.is_default)
    }


class KafkaTopics(TopicAdmin):
    """Changes topics in Kafka, and notes what others change. `shown`: patterns of names, separated by commas."""

    def __init__(self, *arguments: Any, kafka: KafkaCluster, shown: str, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._kafka = kafka
        self._shown = [pattern.strip() for pattern in shown.split(",")]
        self._missed: set[str] = set()
        """Topics that the look before did not find."""
        self._leaving: set[str] = set()
        """Topics that were deleted here, while a broker may still list them."""
        self._turn = 0
        self._full = False
        self._looks_s = deque((0.0, 0.0), maxlen=2)
        """How long the last two took."""
        self.loops = (self.follow,)
        self._metadata.ask_for = self.notice

    def shows(self, topic: KafkaTopic) -> bool:
        return not topic.internal and any(fnmatch.fnmatchcase(topic.name, pattern) for pattern in self._shown)

    async def bind(self) -> None:
        """Take the database for this cluster. Raises: SettingsError: it has the topics of another log."""
        bound = await self._query(store.bind_record_log, self._kafka.cluster_id)
        if bound != self._kafka.cluster_id:
            has = f"the Kafka cluster {bound}" if bound else "PostgreSQL"
            raise SettingsError(
                f"the database has the topics of {has}, and those of Kafka cluster {self._kafka.cluster_id} are asked"
                " for: their groups would lose their progress. Take an empty database"
            )

    # Calls

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Raises: InvalidTopic, InvalidPartitions, InvalidConfig, Throttled, TopicAlreadyExists, StorageError."""
        own = topic_rules.check_new(name, partitions, _part(config, own=True), self._max_partitions)
        async with self._lock:
            fence = await self._metadata.lead()
            self._check_room(name)
            with asking():
                made = await self._kafka.create_topic(name, partitions, configs=_part(config, own=False))
                theirs = await self._settings(name, _part(config, own=False))
            topic = TopicRow(made.id, name, len(made.partitions), {**theirs, **own})
            await self._change(name, topic, store.insert_topic, fence, topic)
        return self._metadata.described(topic)

    async def _configure(
        self, topic: TopicRow, partitions: int, config: Mapping[str, str], reset: Sequence[str]
    ) -> dict[str, str]:
        """Change what Kafka has first. If the copy then fails, the next look has the rest. Raises: as `create`."""
        reset_here = [*OWN.intersection(reset)]
        own = changed_config(TOPIC_CONFIGS, _part(topic.config, own=True), _part(config, own=True), reset_here)
        theirs = {**_part(config, own=False), **dict.fromkeys(set(reset) - OWN)}
        with asking():
            await self._check_names(topic.name, theirs)
            if theirs:
                await self._kafka.incremental_alter_configs(topic.name, theirs)
            if partitions > topic.partitions:
                await self._kafka.add_partitions(topic.name, partitions)
            return {**await self._settings(topic.name, theirs), **own}

    async def delete(self, name: str) -> None:
        """Delete it in Kafka, then as every topic. Raises: UnknownTopicOrPartition, InvalidTopic, StorageError."""
        await self._metadata.lead()
        topic = self._metadata.topic(name)
        with asking():
            await self._kafka.delete_topic(topic.topic_id)
        self._leaving.add(topic.topic_id)
        async with self._lock:
            if topic.topic_id in self._metadata.by_id:
                await super()._mark_deleting(topic)
        self._metadata.look()

    async def _check_names(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Raises: InvalidConfig: Kafka has no such setting, but would take it back to its default."""
        reset = {name for name, value in changes.items() if value is None and name not in TOPIC_CONFIGS}
        if reset:
            unknown = reset - (await self._kafka.describe_configs([topic])).get(topic, {}).keys()
            if unknown:
                raise InvalidConfig(f"Kafka has no setting of topics with the name {min(unknown)!r}")

    async def _settings(self, name: str, given: Mapping[str, str | None]) -> dict[str, str]:
        """Ask for Kafka's settings of a topic. The broker that answers may not know yet what was `given`."""
        found = copied((await self._kafka.describe_configs([name])).get(name, {}))
        return {**found, **{key: value for key, value in given.items() if value is not None}}

    # Topics that other programs make, change and delete

    async def follow(self) -> None:
        """Look at all topics of Kafka again and again, while this instance owns the cluster's shard. Never returns.

        A look that waited for a broker says nothing about the work: the shorter one of two counts.
        """
        loop = asyncio.get_running_loop()
        async for _ in Every(lambda: max(LOOK_S, SHARE * min(self._looks_s)), at_once=True):
            if not self._leads():
                continue
            try:
                began = loop.time()
                await self._copy(await self._kafka.topics())
                self._looks_s.append(loop.time() - began)
            except (KafkaError, ApiError) as error:
                count_failed_look("topics")
                log.warning("the topics of Kafka cannot be read now", extra=fields(cause=str(error)))

    async def notice(self, names: Sequence[str]) -> None:
        """Ask Kafka for topics whose names are not known. Raises: ApiError."""
        if not self._leads():
            return
        with asking():
            found = [topic for topic in await self._kafka.topics(names) if self.shows(topic)]
            if found:
                async with self._lock:
                    await self._add(await self._metadata.lead(), found)
                    await self._metadata.catch_up()

    async def _copy(self, topics: Sequence[KafkaTopic]) -> None:
        """Bring the copy in line with what Kafka lists."""
        async with self._lock:
            fence = await self._metadata.lead()
            listed = {topic.id: topic for topic in topics}
            self._leaving &= listed.keys()
            names = {topic.name for topic in topics}
            known = {**self._metadata.by_id}
            missing = known.keys() - listed.keys()
            again = {topic_id for topic_id in missing if known[topic_id].name in names}
            for topic_id in again | (missing & self._missed):
                if topic_id in again or not await self._kafka.topics([known[topic_id].name]):
                    await self._query(store.mark_topic_deleting, fence, topic_id)
                    log.info("topic is gone from Kafka", extra=fields(topic_id=topic_id, topic=known[topic_id].name))
            self._missed = missing
            if again:
                await self._metadata.catch_up()
            await self._add(fence, [topic for topic in topics if topic.id not in known and self.shows(topic)])
            rows = {topic_id: known[topic_id] for topic_id in known.keys() & listed.keys()}
            for topic_id, row in rows.items():
                count = len(listed[topic_id].partitions)
                if count > row.partitions:
                    rows[topic_id] = row._replace(partitions=count)
                    await self._query(store.update_topic, fence, rows[topic_id])
            await self._look_at_settings(fence, rows.values())
            await self._metadata.catch_up()
        if missing:
            self._metadata.look()  # for `finish_deletions`

    async def _add(self, fence: Any, topics: Sequence[KafkaTopic]) -> None:
        room = self._max_topics - len(self._metadata.by_id)
        new = [topic for topic in topics if topic.id not in self._metadata.by_id and topic.id not in self._leaving]
        if len(new) > room and not self._full:
            log.warning("Kafka has more topics than max_topics allows", extra=fields(left_out=len(new) - room))
        self._full = len(new) > room
        some = new[: max(0, min(room, MOST_NEW))]  # the next look has the others
        configs = await self._kafka.describe_configs([topic.name for topic in some]) if some else {}
        for topic in some:
            row = TopicRow(topic.id, topic.name, len(topic.partitions), copied(configs.get(topic.name, {})))
            await self._query(store.insert_topic, fence, row)

    async def _look_at_settings(self, fence: Any, known: Iterable[TopicRow]) -> None:
        """Copy the settings of some topics, and of others in the next look."""
        rows = sorted(known, key=lambda row: row.name)
        some = rows[self._turn : self._turn + MOST_NEW]
        self._turn = self._turn + MOST_NEW if self._turn + MOST_NEW < len(rows) else 0
        configs = await self._kafka.describe_configs([row.name for row in some]) if some else {}
        for row in some:
            if row.name in configs:
                config = {**copied(configs[row.name]), **_part(row.config, own=True)}
                if config != row.config:
                    await self._query(store.update_topic, fence, row._replace(config=config))


def _part(config: Mapping[str, str], *, own: bool) -> dict[str, str]:
    return {name: value for name, value in config.items() if (name in OWN) == own}
