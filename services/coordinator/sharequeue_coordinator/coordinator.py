"""One instance of the group coordinator, put together from its rooms. Everything it answers is durable."""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sharequeue.clock import Clock
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.service_configs import EMPTY_RETENTION, group_configs
from sharequeue.repeats import DELETION
from sharequeue.service.failed_looks import count_failed_look
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups.admin import GroupAdmin
from sharequeue_coordinator.groups.configs import GroupConfigs
from sharequeue_coordinator.groups.empty_groups import EmptyGroups
from sharequeue_coordinator.groups.initializer import Initializer
from sharequeue_coordinator.groups.member_sessions import MemberSessions
from sharequeue_coordinator.groups.members import Members
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.groups.share_states import ShareStates
from sharequeue_coordinator.groups.totals import Totals
from sharequeue_coordinator.metadata.gateway_calls import GatewayCalls
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.metadata.topic_admin import TopicAdmin
from sharequeue_coordinator.settings import Settings
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

if TYPE_CHECKING:
    from sharequeue_kafka.cluster import KafkaCluster

log = logging.getLogger(__name__)

FOLLOW_S: Final = 1.0
"""How often changes are read if no notification comes."""


class GroupCoordinator:
    """Owns shards of schema `groups`: those of groups, and at one instance the cluster's with topics and gateways."""

    def __init__(
        self,
        database: Database,
        share_coordinators: ShareStateClient,
        settings: Settings,
        clock: Clock,
        kafka: "KafkaCluster | None" = None,
    ) -> None:
        """`kafka`: the cluster whose topics these are."""
        service = settings.service_config()
        self._database = database
        self.query = database.query
        self.metadata = Metadata(database, clock, settings, topic_gone=self._forget_topic)
        rooms = TopicAdmin if kafka is None else _topics_in(kafka, settings.kafka_topics)
        gateways = GatewayCalls(self.metadata.live_gateways, cluster_token=settings.cluster_token)
        self.topics: TopicAdmin = rooms(database, self.metadata, share_coordinators, gateways, settings)
        totals = Totals(settings.max_groups, settings.max_share_partitions)
        self.groups = GroupRegistry(database, self.metadata, clock, group_configs(service), settings, totals)
        self.states = states = ShareStates(share_coordinators)
        self.initializer = Initializer(database, self.metadata, self.groups, states)
        self.members = Members(database, self.metadata, self.groups, self.initializer, clock)
        self.sessions = MemberSessions(database, self.metadata, self.groups, totals, clock)
        self.group_configs = GroupConfigs(database, self.metadata, self.groups, service)
        self.group_admin = GroupAdmin(self.metadata, self.groups, self.initializer, states, gateways)
        self.empty_groups = EmptyGroups(database, self.group_admin, service.get(EMPTY_RETENTION, -1))

    def _forget_topic(self, topic_id: str) -> None:
        self.groups.forget_topic(topic_id)

    def shards_taken(self, _: frozenset[int]) -> None:
        """See ShardEvents."""
        self.metadata.look()

    def shards_lost(self, shards: frozenset[int]) -> None:
        """See ShardEvents."""
        self.groups.forget(shards)
        self.metadata.feed.wake()

    async def drain(self, shards: frozenset[int]) -> None:
        """See ShardEvents."""
        await self._database.drain(shards)

    async def follow(self) -> None:
        """Follow the changes that any instance makes, and finish deletions of topics. Never returns."""
        while True:
            await self.metadata.wait(FOLLOW_S)
            try:
                await self.metadata.catch_up()
                if self._database.leads():
                    await self.topics.finish_deletions()
            except ApiError as error:
                count_failed_look("topics")
                log.warning("changes of topics cannot be finished now", extra=fields(cause=error.detail))
                await DELETION.pause()
                self.metadata.look()


def _topics_in(kafka: "KafkaCluster", shown: str) -> Any:
    from sharequeue_coordinator.metadata.kafka_topics import KafkaTopics  # noqa: PLC0415  # its libraries are an extra

    return partial(KafkaTopics, kafka=kafka, shown=shown)
