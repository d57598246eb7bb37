"""Topics and group settings: a cache, kept up to date by the change feed of the group coordinator.

The feed names each change once. An answer that arrives after a change may be older than the change. So a topic or group
that the feed named in the meantime is asked for again. While the group coordinator is away, the cache still serves.
"""

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import DEAD_LETTER_PREFIX, LOCK_DURATION, ShareGroupConfig, share_group_config
from sharequeue.protocol.errors import InvalidTopic, TopicAlreadyExists, UnknownTopicId, UnknownTopicOrPartition
from sharequeue.protocol.messages import topics as topic_messages
from sharequeue.protocol.messages.cluster import (
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    InitializeSharePartitionsRequest,
    InitializeSharePartitionsResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    PartitionNumbers,
)
from sharequeue.protocol.messages.topics import CreateTopicRequest, ListTopicsQuery, TopicList
from sharequeue.protocol.service_configs import group_configs, service_config
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, topic_name_fault
from sharequeue.repeats import FEED
from sharequeue.service.failed_looks import count_failed_look
from sharequeue_gateway import metrics
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import Tally

log = logging.getLogger(__name__)

FEED_WAIT_MS = 20_000
AWAY_DEADLINE_S = 1.0

ANEW: Final = MAX_INT32
"""A partition that no topic has: `ask_for` asks although the name is known."""

_decode_topic: Final = msgspec.json.Decoder(topic_messages.Topic).decode


class KnownTopic:
    """A topic as the gateway uses it."""

    __slots__ = ("config", "max_ahead_ms", "max_message_bytes", "name", "partitions", "topic_id")

    def __init__(self, topic: topic_messages.Topic) -> None:
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.partitions = topic.partitions
        self.config: Mapping[str, str] = topic.config
        self.max_message_bytes = int(topic.config["max.message.bytes"])
        self.max_ahead_ms = int(topic.config.get("message.timestamp.after.max.ms", MAX_INT64))


def no_longer(topic_id: str) -> UnknownTopicId:
    """The error for a request that names a topic by this id and by a name that another one has."""
    return UnknownTopicId(f"the topic of id {topic_id[:36]} was deleted; another one has its name")


class Changed:
    """The topic ids and group ids that the feed has named since this object was made."""

    __slots__ = ("_all", "_ids")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._all = False

    def __contains__(self, topic_or_group_id: str) -> bool:
        return self._all or topic_or_group_id in self._ids

    def note(self, changes: MetadataChangesResponse) -> None:
        self._all |= changes.reset
        self._ids.update((topic.topic_id for topic in changes.topics), changes.deleted_topic_ids, changes.group_ids)


Partitions = Sequence[tuple[KnownTopic, int]]
"""Partitions of a request: topic and index."""


class MetadataEvents(Protocol):
    """Receives the changes of the feed."""

    def topic_deleted(self, topic_id: str) -> None: ...
    def group_changed(self, group_id: str, config: ShareGroupConfig) -> None: ...


class Metadata:
    """Topics by name and id, and group settings. Each is asked for once; the change feed brings its changes.

    `growing`: each is called with the name of a topic that is new or has got partitions. None: any of them may have.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        *,
        kafka_defaults: bool,
        auto_create_topics: bool,
        growing: Sequence[Callable[[str | None], None]] = (),
    ) -> None:
        self._coordinator = coordinator
        self._growing = growing
        self.kafka_defaults = kafka_defaults
        self._auto_create_topics = auto_create_topics
        self.how_to_make_topics = f"; make it with POST /v1/topics{' or produce to it' if auto_create_topics else ''}"
        """A hint for callers that produce or fetch. A new topic has no records, so it does not help other calls."""
        self._by_name: dict[str, KnownTopic] = {}
        self._by_id: dict[str, KnownTopic] = {}
        self._configs: dict[str, ShareGroupConfig] = {}
        self.by_name: Final[Mapping[str, KnownTopic]] = self._by_name
        self.configs: Final[Mapping[str, ShareGroupConfig]] = self._configs
        """Known topics by name, and known settings by group. Read them; only this class changes them."""
        self._sure: dict[str, KnownTopic] = {}
        self.sure: Final[Mapping[str, KnownTopic]] = self._sure
        """Known topics by name, without those that may be gone."""
        self._use_service({})
        self._version = -1
        self._heard_at = 0.0
        self._unheard = Tally(log, logging.WARNING, "cannot follow the group coordinator")
        self._awaiting: dict[Changed, None] = {}
        """One for each answer under way: the changes that the feed has named since the request."""
        self._changed_here: set[str] = set()
        """The topics that were changed here since this gateway asked the feed, whose answer may be older."""
        self._events: MetadataEvents | None = None
        """Given to `follow`."""

    # Topics

    def known_topic_id(self, topic_id: str) -> KnownTopic | None:
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: str) -> str | None:
        """The name of a topic, if it is known."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    def value_format(self, topic_id: str) -> str:
        """The setting `value.format` of a topic; `auto` if the topic is not known."""
        topic = self._by_id.get(topic_id)
        return "auto" if topic is None else topic.config.get("value.format", "auto")

    def knows(self, name: str, partition: int, topic_id: str | None = None) -> bool:
        """Return whether a topic is known with a partition, and with this id if one is given."""
        topic = self._by_name.get(name)
        return topic is not None and partition < topic.partitions and topic_id in (None, topic.topic_id)

    def topics(self) -> Iterable[KnownTopic]:
        return self._by_id.values()

    async def topic(self, name: str) -> KnownTopic:
        """The topic of that name. Raises: UnknownTopicOrPartition; InvalidTopic: no topic can have that name."""
        return self._sure.get(name) or await self.topic_with(name, 0)

    async def topic_with(self, name: str, partition: int, topic_id: str | None = None) -> KnownTopic:
        """As `topic`. Raises: UnknownTopicOrPartition: the group coordinator does not know the topic with that
        partition. UnknownTopicId: another topic than the one of this id has the name."""
        await self.ask_for({name: partition})
        if topic_id is not None and not self.knows(name, partition, topic_id):
            await self.ask_for({name: ANEW})
        return self.known_topic_with(name, partition, topic_id)

    async def ask_for(self, partitions: Mapping[str, int]) -> None:
        """Learn these topics, with one request for all. `partitions`: by name, a partition that the topic should have.

        Topics that are known with that partition are not asked for.
        """
        names = [
            name
            for name, partition in partitions.items()
            if ((known := self._sure.get(name)) is None and not topic_name_fault(name))
            or (known is not None and partition >= known.partitions)
        ]
        if names:
            await self._ask(DescribeTopicsRequest(names=names))

    def known_topic_with(self, name: str, partition: int, topic_id: str | None = None) -> KnownTopic:
        """As `topic_with`, from the cache alone."""
        topic = self._by_name.get(name)
        if topic is not None and topic_id is not None and topic_id != topic.topic_id:
            raise no_longer(topic_id)
        if topic is None or not 0 <= partition < topic.partitions:
            raise self.missing(name, partition)
        return topic

    def missing(self, name: str, partition: int, hint: str = "") -> ApiError:
        """The error for a request that names an unknown partition. `hint`: how to get the topic."""
        topic = self._by_name.get(name)
        if topic is not None:
            return UnknownTopicOrPartition(f"topic {name!r} has no partition {partition}; it has {topic.partitions}")
        fault = topic_name_fault(name)
        if fault:
            return InvalidTopic(fault)
        if name.startswith(DEAD_LETTER_PREFIX):
            hint = "; a group's dead-letter topic is made with its first dead letter"
        return UnknownTopicOrPartition(f"there is no topic {name!r}{hint}")

    async def topic_to_produce(self, name: str) -> KnownTopic:
        """As `topic`, but creates a missing topic if `auto_create_topics` is set."""
        try:
            return await self.topic(name)
        except UnknownTopicOrPartition:
            if not self._auto_create_topics:
                raise self.missing(name, 0, self.how_to_make_topics) from None
        return await self.create(name, {})

    async def would_create(self, name: str) -> bool:
        """Return whether a produce would create the topic. Raises: ApiError: the group coordinator is away."""
        if not self._auto_create_topics or topic_name_fault(name):
            return False
        try:
            await self.topic(name)
        except UnknownTopicOrPartition:
            return True
        return False

    async def create(self, name: str, config: Mapping[str, str]) -> KnownTopic:
        """Create a topic of one partition. If another call creates it at the same time, take that one."""
        request = CreateTopicRequest(name=name, config=dict(config))
        with contextlib.suppress(TopicAlreadyExists):
            await self.change_topic(apis.CREATE_TOPIC, request, deadline_s=self._deadline_s())
        return await self.topic(name)

    async def change_topic(self, api: Api, request: Any, *, deadline_s: float | None = None, **path: str) -> bytes:
        """Pass on a call that creates or changes a topic. Returns: the answer's body, which describes the topic."""
        with self._noting_changes() as changed:
            body = await self._coordinator.exchange(api, request, key=CLUSTER, path=path, deadline_s=deadline_s)
        topic = _decode_topic(body)
        if topic.topic_id not in changed:
            new = topic.topic_id not in self._by_id
            self._learn(topic)
            if new:
                self._note_growth(topic.name)
        elif topic.topic_id in self._by_id:  # the feed may have named an earlier change, and not this one
            with contextlib.suppress(ApiError):  # the change has happened: the feed will bring it
                await self._ask(DescribeTopicsRequest(topic_ids=[topic.topic_id]))
        self._changed_here.add(topic.topic_id)
        return body

    async def topics_by_id(self, topic_ids: list[str]) -> None:
        unknown = [topic_id for topic_id in topic_ids if topic_id not in self._by_id]
        if unknown:
            await self._ask(DescribeTopicsRequest(topic_ids=unknown))

    async def exist(self, topic_ids: Collection[str]) -> bool:
        """Return whether topics that were known exist, also if PostgreSQL went back."""
        unsure = [topic_id for topic_id in topic_ids if not self._is_sure(self._by_id.get(topic_id))]
        return not unsure or len(await self._ask(DescribeTopicsRequest(topic_ids=unsure))) == len(unsure)

    async def learn_all(self) -> None:
        query = ListTopicsQuery()
        while True:
            page: TopicList = await self._coordinator.call(apis.LIST_TOPICS, query, key=CLUSTER)
            await self.topics_by_id([topic.topic_id for topic in page.topics])
            if page.next_page_token is None:
                return
            query = ListTopicsQuery(page_token=page.next_page_token)

    async def _ask(self, request: DescribeTopicsRequest) -> set[str]:
        """Learn topics. Returns: the ids of those that exist."""
        found: set[str] = set()
        while request.names or request.topic_ids:
            with self._noting_changes() as changed:
                response: DescribeTopicsResponse = await self._call(apis.DESCRIBE_TOPICS, request)
            outdated = [topic.name for topic in response.topics if topic.topic_id in changed]
            for topic in response.topics:
                if topic.topic_id not in changed:
                    self._learn(topic)
                    found.add(topic.topic_id)
            there = {topic.topic_id for topic in response.topics}
            for asked in [self._by_name[name] for name in request.names if name in self._by_name]:
                if asked.topic_id not in there and not self._is_sure(asked):
                    self.forget(asked.topic_id)
            request = DescribeTopicsRequest(names=outdated)
        return found

    def _learn(self, described: topic_messages.Topic) -> None:
        topic = KnownTopic(described)
        before = self._by_id.get(topic.topic_id, topic)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = self._sure[topic.name] = topic
        if before.partitions < topic.partitions:
            self._note_growth(topic.name)

    def _note_growth(self, name: str | None) -> None:
        for each in self._growing:
            each(name)

    def forget(self, topic_id: str) -> None:
        """Drop a deleted topic."""
        topic = self._by_id.pop(topic_id, None)
        if topic is not None and self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
            self._sure.pop(topic.name, None)
            metrics.forget_topic(topic.name)
        if self._events is not None:
            self._events.topic_deleted(topic_id)

    def doubt(self) -> None:
        """PostgreSQL was started again, and may have come back older: ask for each topic before anything is produced to
        it. Nobody would ever read the records of a topic that is gone."""
        self._sure.clear()
        self._version = -1

    def _is_sure(self, topic: KnownTopic | None) -> bool:
        return topic is not None and self._sure.get(topic.name) is topic

    # Groups

    def config(self, group_id: str) -> ShareGroupConfig | None:
        return self._configs.get(group_id)

    def lock_duration_ms(self, group_id: str) -> int:
        """Return how long new locks of a group last. While its settings are not known, the default."""
        config = self._configs.get(group_id)
        return self._default_lock_ms if config is None else config.record_lock_duration_ms

    def paused(self, group_id: str) -> bool:
        """Return whether a group is paused. False while its settings are not known here."""
        config = self._configs.get(group_id)
        return config is not None and config.paused

    async def initialize(self, group_id: str, partitions: PartitionNumbers) -> InitializeSharePartitionsResponse:
        """Have the group coordinator initialise share-partitions, and learn the group's settings."""
        request = InitializeSharePartitionsRequest(group_id=group_id, partitions=partitions)
        with self._noting_changes() as changed:
            response: InitializeSharePartitionsResponse = await self._call(
                apis.INITIALIZE_SHARE_PARTITIONS, request, key=group_id
            )
        if group_id in changed:
            await self.learn_config(group_id)
        else:
            self._configs[group_id] = self._config_in(response, group_id)
        return response

    def _use_service(self, service: Mapping[str, int]) -> None:
        """Put service-wide settings in force: defaults and bounds. There are none before the first answer."""
        self._service = service
        self._group_configs = group_configs({**service_config({}, self.kafka_defaults), **service})
        lock = self._group_configs[LOCK_DURATION]
        self.lock_bounds = lock.range
        self._default_lock_ms = int(lock.default)

    def _config_in(self, response: InitializeSharePartitionsResponse, group_id: str) -> ShareGroupConfig:
        if not self._service:
            self._use_service(response.service)
        return share_group_config(group_id, response.config, self.kafka_defaults, self._group_configs)

    async def config_of(self, group_id: str) -> ShareGroupConfig:
        """The settings of a group that this gateway may never have met. Asks if it has not, and keeps nothing."""
        if (known := self._configs.get(group_id)) is not None:
            return known
        return await self._ask_for_config(group_id)

    async def learn_config(self, group_id: str) -> ShareGroupConfig:
        """Ask for a group's settings."""
        while True:
            with self._noting_changes() as changed:
                config = await self._ask_for_config(group_id)
            if group_id not in changed:
                self._configs[group_id] = config
                return config

    async def _ask_for_config(self, group_id: str) -> ShareGroupConfig:
        request = InitializeSharePartitionsRequest(group_id=group_id, partitions={})
        return self._config_in(await self._call(apis.INITIALIZE_SHARE_PARTITIONS, request, key=group_id), group_id)

    async def group_changed(self, group_id: str) -> None:
        """The settings of a group changed: ask for them, and report them."""
        config = await self.learn_config(group_id)
        if self._events is not None:
            self._events.group_changed(group_id, config)

    # Changes

    def reachable(self) -> bool:
        """Return whether the group coordinator has answered the change feed recently."""
        return time.monotonic() - self._heard_at < FEED_WAIT_MS / 1000 + 10

    async def _call(self, api: Api, request: Any, *, key: str = CLUSTER) -> Any:
        return await self._coordinator.call(api, request, key=key, deadline_s=self._deadline_s())

    def _deadline_s(self) -> float | None:
        """A short deadline while the group coordinator is away, because a client waits for the answer."""
        return AWAY_DEADLINE_S if self._version >= 0 and not self.reachable() else None

    @contextlib.contextmanager
    def _noting_changes(self) -> Iterator[Changed]:
        """Collect the changes that the feed names while an answer is under way."""
        changed = Changed()
        self._awaiting[changed] = None
        try:
            yield changed
        finally:
            del self._awaiting[changed]

    async def follow(
        self,
        events: MetadataEvents,
        hear_of: Callable[[int], None],
        hear_access: Callable[[int], Awaitable[None]] | None = None,
        wait_ms: int = FEED_WAIT_MS,
    ) -> None:
        """Follow the change feed, and report changes to `events`. Runs until it is cancelled.

        Args:
            hear_of: called with the number of the gateways' generation, which each answer of the feed names.
            hear_access: the same with the revision of keys and rights. wait_ms: the longest silence of the feed.
        """
        self._events = events
        while True:
            # else ask without waiting, to learn at once that it is back
            heard = self._version >= 0 and self._heard_at > 0
            query = MetadataChangesQuery(since=max(self._version, 0), max_wait_ms=wait_ms if heard else 0)
            self._changed_here.clear()
            try:
                changes: MetadataChangesResponse = await self._coordinator.call(
                    apis.METADATA_CHANGES, query, key=CLUSTER, deadline_s=FEED_WAIT_MS / 1000 + 5, retry=False
                )
                self._heard_at = time.monotonic()
                hear_of(changes.generation)
                await self._apply(changes)
                if hear_access is not None:
                    await hear_access(changes.access)
            except ApiError as error:
                self._heard_at = 0.0
                count_failed_look("feed")
                self._unheard.note("", cause=error.detail)
                await FEED.pause()

    async def _apply(self, changes: MetadataChangesResponse) -> None:
        """Apply changes. The version is set last, so changes whose application fails half-way are applied again."""
        if changes.service != self._service:  # a group coordinator was started with other settings
            self._use_service(changes.service)
            self._version = -1
        if self._version < 0:  # the feed did not report the changes before this answer
            changes = MetadataChangesResponse(version=changes.version, reset=True)
        for changed in self._awaiting:
            changed.note(changes)
        if changes.reset:
            await self._refresh()
            self._note_growth(None)
        for topic in changes.topics:
            if topic.topic_id not in self._by_id:
                self._note_growth(topic.name)
            elif topic.topic_id not in self._changed_here:
                self._learn(topic)
        await self._ask(
            DescribeTopicsRequest(
                topic_ids=[each.topic_id for each in changes.topics if each.topic_id in self._changed_here]
            )
        )
        for topic_id in changes.deleted_topic_ids:
            self.forget(topic_id)
        for group_id in list(self._configs) if changes.reset else changes.group_ids:
            if group_id in self._configs:
                await self.group_changed(group_id)
        self._version = changes.version

    async def _refresh(self) -> None:
        """Ask again for every known topic, and drop those that the group coordinator does not know."""
        topic_ids = list(self._by_id)
        if topic_ids:
            found = await self._ask(DescribeTopicsRequest(topic_ids=topic_ids))
            for topic_id in set(topic_ids) - found:
                self.forget(topic_id)
