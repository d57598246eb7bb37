"""Creates, changes and deletes topics, at the owner of the cluster's shard. Each answer is durable."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from sharequeue import background
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import TOPIC_CONFIGS, changed_config
from sharequeue.protocol.errors import StorageError, TopicAlreadyExists
from sharequeue.protocol.messages.leaders import DeleteTopicRecordsRequest
from sharequeue.protocol.messages.topics import Topic
from sharequeue.service.settings import SettingsError
from sharequeue_coordinator.database import Database, Fence
from sharequeue_coordinator.metadata import store, topic_rules
from sharequeue_coordinator.metadata.gateway_calls import GatewayCalls
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.metadata.store import TopicRow
from sharequeue_coordinator.settings import Settings
from sharequeue_http.forms.errors import CoordinatorNotAvailable, Throttled
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""The longest look for the outcome of a write: another catch-up may be waiting for PostgreSQL."""
REMOVAL_S: Final = 5.0
"""For a gateway to remove the records of a topic."""
ROOM_S: Final = 60.0
"""When to try again: later than the deadline of any call, so that a gateway passes a refusal on and does not repeat."""


class TopicAdmin:
    """Changes topics one at a time."""

    def __init__(
        self,
        database: Database,
        metadata: Metadata,
        share_coordinators: ShareStateClient,
        gateways: GatewayCalls,
        settings: Settings,
    ) -> None:
        self._query = database.query
        self._metadata = metadata
        self._share_coordinators = share_coordinators
        self._gateways = gateways
        self._max_topics = settings.max_topics
        self._max_partitions = settings.max_partitions_per_topic
        self._leads = database.leads
        self._lock = asyncio.Lock()
        self._catching_up: set[asyncio.Task[None]] = set()
        self.loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()

    async def bind(self) -> None:
        """Take the database for this log. Raises: SettingsError: it has the topics of another one."""
        bound = await self._query(store.bind_record_log, None)
        if bound:
            raise SettingsError(f"the database has the topics of Kafka cluster {bound}: name it, or take an empty one")

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Raises: InvalidTopic, InvalidPartitions, InvalidConfig, Throttled, TopicAlreadyExists."""
        stored = topic_rules.check_new(name, partitions, config, self._max_partitions)
        topic = TopicRow(str(uuid.uuid4()), name, partitions, stored)
        async with self._lock:
            fence = await self._metadata.lead()
            self._check_room(name)
            exists = name in self._metadata.by_name
            if exists or await self._change(name, topic, store.insert_topic, fence, topic) != topic:
                raise TopicAlreadyExists(f"the topic {name!r} exists already")
        return self._metadata.described(topic)

    def _check_room(self, name: str) -> None:
        """Raises: Throttled: there are as many topics as are allowed."""
        if name not in self._metadata.by_name and len(self._metadata.by_name) >= self._max_topics:
            raise Throttled(
                f"there are {self._max_topics} topics, and max_topics of the group coordinator allows no more:"
                " delete some, or raise it",
                limit=self._max_topics,
                retry_after_s=ROOM_S,
            )

    async def update(self, name: str, partitions: int | None, config: Mapping[str, str], reset: Sequence[str]) -> Topic:
        """Raises: UnknownTopicOrPartition, InvalidTopic, InvalidPartitions, InvalidConfig."""
        async with self._lock:
            fence = await self._metadata.lead()
            topic = self._metadata.topic(name)
            if partitions is not None:
                topic_rules.check_growth(name, topic.partitions, partitions, self._max_partitions)
            wanted = topic.partitions if partitions is None else partitions
            changed = topic._replace(partitions=wanted, config=await self._configure(topic, wanted, config, reset))
            if changed != topic:
                await self._change(name, changed, store.update_topic, fence, changed)
                log.info("topic changed", extra=fields(before=topic._asdict(), after=changed._asdict()))
        return self._metadata.described(changed)

    async def _configure(
        self, topic: TopicRow, partitions: int, config: Mapping[str, str], reset: Sequence[str]
    ) -> dict[str, str]:
        """Return the settings after a change. Raises: InvalidConfig."""
        return changed_config(TOPIC_CONFIGS, topic.config, config, reset)

    async def delete(self, name: str) -> None:
        """Persist that the topic is being deleted. `finish_deletions` does the rest, also after a crash.

        Raises: UnknownTopicOrPartition, InvalidTopic.
        """
        async with self._lock:
            await self._metadata.lead()
            await self._mark_deleting(self._metadata.topic(name))
        self._metadata.look()

    async def _mark_deleting(self, topic: TopicRow) -> None:
        fence = await self._metadata.lead()
        await self._change(topic.name, None, store.mark_topic_deleting, fence, topic.topic_id)

    async def _change(
        self, name: str, wanted: TopicRow | None, function: Any, fence: Fence, argument: Any
    ) -> TopicRow | None:
        """Make a topic the wanted one (None: deleted). If the outcome is unknown, read what is stored before answering.

        Returns: the topic of that name now. Raises: StorageError: it was not changed, or the outcome is still unknown.
        """
        try:
            await self._query(function, fence, argument)
        except StorageError:
            catching_up = background.start(self._catching_up, self._metadata.catch_up())
            if not (await asyncio.wait([catching_up], timeout=LOOK_S))[0]:
                catching_up.add_done_callback(
                    lambda task: task.cancelled() or task.exception()
                )  # it is logged otherwise
                raise
            catching_up.result()
            if self._metadata.by_name.get(name) != wanted:
                raise
        else:
            await self._metadata.catch_up()
        return self._metadata.by_name.get(name)

    # Deletion

    async def finish_deletions(self) -> None:
        """Remove the topics that are being deleted: records, then share state, then metadata.

        Raises: ApiError: a step failed. The next call begins again.
        """
        fence = await self._metadata.lead()
        for topic_id, partitions in await self._query(store.deleting_topics):
            request = DeleteTopicRecordsRequest(topic_id=topic_id, partitions=partitions)
            what = "remove the records of a topic"
            if await self._gateways.ask_one(apis.DELETE_TOPIC_RECORDS, request, what, each_s=REMOVAL_S) is None:
                raise CoordinatorNotAvailable("no gateway is running")
            await self._share_coordinators.delete_topic_state(topic_id)
            await self._query(store.remove_topic, fence, topic_id)
            log.info("topic deleted", extra=fields(topic_id=topic_id))
