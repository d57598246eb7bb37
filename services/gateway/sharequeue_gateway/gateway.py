"""Puts a gateway together: the record log, Redis, the coordinators' clients, the leader and the calls."""

import asyncio
import logging

from sharequeue.clock import Clock
from sharequeue.http.origins import Callers, host_of_url, hosts_of, origins_of
from sharequeue.log import fields
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable
from sharequeue.protocol.messages import Readiness
from sharequeue.service.readiness import ROUNDABOUT_CHECK_S, Check, faults
from sharequeue.service.service import Service, node_name, own_url
from sharequeue_gateway.cluster.append_news import AppendNews
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.cluster.redis_client import redis_client
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.delivery.dead_letters import DeadLetterQueue
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.http.app import create_gateway_app
from sharequeue_gateway.http.fetch_api import FetchApi
from sharequeue_gateway.http.group_admin_api import GroupAdminApi
from sharequeue_gateway.http.in_flight_api import InFlightApi
from sharequeue_gateway.http.internal.group_use_api import GroupUse
from sharequeue_gateway.http.internal.leader_api import LeaderApi
from sharequeue_gateway.http.jobs.activity_api import ActivityApi
from sharequeue_gateway.http.jobs.audit_api import AuditApi
from sharequeue_gateway.http.jobs.compaction_api import CompactionApi
from sharequeue_gateway.http.members_api import MembershipApi
from sharequeue_gateway.http.produce_api import ProduceApi
from sharequeue_gateway.http.records_api import RecordsApi
from sharequeue_gateway.http.redrive_api import Redriving
from sharequeue_gateway.http.topics_api import GroupsApi, TopicsApi
from sharequeue_gateway.leader import led_metrics
from sharequeue_gateway.leader.activity import Activity
from sharequeue_gateway.leader.due_locks import DueLocks
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.loader import Loader
from sharequeue_gateway.leader.persister import Persister
from sharequeue_gateway.locks.lock_store import LockTimers
from sharequeue_gateway.producing.producer import Producer
from sharequeue_gateway.record_log.activity_store import ActivityLog
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.fetch import RoutedFetch
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.settings import Settings
from sharequeue_gateway.share_partition.session import ShareSessionCache

log = logging.getLogger(__name__)


async def prepare(settings: Settings) -> Service:
    """Connect to everything and register with the group coordinator. Raises: whatever cannot be reached."""
    record_log = await PostgresRecordLog.open(settings.database_url, cache_bytes=settings.record_cache_bytes)
    clock = Clock(await record_log.now_ms())  # locks, delays and retention are not for this machine's clock to decide
    coordinator = CoordinatorClient(settings.coordinator_url, "group", cluster_token=settings.cluster_token)
    share_coordinator = ShareStateClient(settings.share_coordinator_url, cluster_token=settings.cluster_token)
    redis = redis_client(settings.redis_url)
    metadata = Metadata(
        coordinator, kafka_defaults=settings.kafka_defaults, auto_create_topics=settings.auto_create_topics
    )
    node_id = node_name(settings.node_id, settings.port)
    url = own_url(settings.url, settings.host, settings.port)
    cluster = Cluster(coordinator, node_id, url, cluster_token=settings.cluster_token)
    routing = Routing(cluster)
    lock_timers = LockTimers(redis, clock, node_id, settings.redis_timeout_ms)
    epochs = LeaderEpochs(cluster.next_leader_epoch)
    loader = Loader(
        clock=clock,
        metadata=metadata,
        share_coordinator=share_coordinator,
        record_log=record_log,
        lock_timers=lock_timers,
        take_from_former=routing.gateways.take_from_former,
        take_from_others=routing.gateways.take_from_others,
        epochs=epochs,
    )
    persister = Persister(share_coordinator, deadline_ms=settings.state_write_deadline_ms)
    activity_log = ActivityLog(record_log.query)

    def topic_name(topic_id: str) -> str | None:
        topic = metadata.known_topic_id(topic_id)
        return None if topic is None else topic.name

    activity = Activity(
        activity_log,
        clock,
        topic_name,
        flush_ms=settings.activity_flush_ms,
        retention_ms=settings.activity_retention_ms,
    )
    record_log.on_records = activity.produced
    leader = Leader(
        clock=clock,
        record_log=record_log,
        metadata=metadata,
        cluster=cluster,
        epochs=epochs,
        loader=loader,
        persister=persister,
        lock_timers=lock_timers,
        activity=activity,
        max_share_partitions=settings.max_share_partitions,
        idle_ms=settings.share_partition_idle_ms,
    )
    due_locks = DueLocks(leader, epochs, lock_timers, metadata, cluster, clock)
    dead_letters = DeadLetterQueue(
        leader,
        metadata,
        record_log,
        clock,
        auto_create_topics=settings.auto_create_dead_letter_topics,
        retry_max_ms=settings.dead_letter_retry_max_ms,
    )
    repeated = RepeatedFetches(leader, metadata, lock_timers, record_log, clock)
    fetcher = Fetcher(leader, record_log, repeated, clock)
    news = AppendNews(redis, cluster, record_log)
    record_log.watch(leader.log_changed, fetcher.waited_for, news.appended, leader.log_forgotten)
    acknowledger = Acknowledger(leader, metadata, clock)
    routed_acknowledger = RoutedAcknowledger(routing, acknowledger, metadata, clock)
    session_cache = ShareSessionCache(settings.max_share_sessions, settings.share_session_idle_ms)
    sessions = Sessions(session_cache, leader, metadata, routing, clock)
    led_metrics.watch(leader.all, lambda: fetcher.fetches.count)
    metadata.on_generation = cluster.hear_of

    async def hand_over(missed: bool) -> None:
        sessions.drop_moved()
        await leader.hand_over(missed=missed)

    cluster.on_change = hand_over
    epochs.raise_to(await cluster.register())
    leader.adopt()
    log.info("registered", extra=fields(node_id=node_id, leader_epoch=epochs.current))

    async def retain() -> None:
        while True:
            await asyncio.sleep(settings.retention_interval_ms / 1000)
            await apply_retention(metadata, record_log, clock)

    ready = ReadinessCheck(record_log, lock_timers, metadata, share_coordinator, dead_letters, cluster)

    async def close() -> None:
        await activity.close()
        await record_log.close()
        await redis.aclose()
        await cluster.close()
        await coordinator.close()
        await share_coordinator.close()

    group_use = GroupUse(metadata, leader, fetcher.fetches, sessions, lock_timers)
    app = create_gateway_app(
        FetchApi(
            clock=clock,
            metadata=metadata,
            fetcher=fetcher,
            routing=routing,
            routed=RoutedFetch(routing, fetcher, repeated, clock),
            acknowledger=routed_acknowledger,
            sessions=sessions,
            max_waiting_fetches=settings.max_waiting_fetches,
        ),
        RecordsApi(metadata, routing, routed_acknowledger, sessions),
        ProduceApi(Producer(metadata, record_log, clock, settings.max_value_depth)),
        LeaderApi(
            clock=clock,
            metadata=metadata,
            cluster=cluster,
            leader=leader,
            fetcher=fetcher,
            repeated=repeated,
            acknowledger=acknowledger,
            sessions=sessions,
        ),
        TopicsApi(metadata, record_log),
        CompactionApi(metadata, record_log.compaction),
        GroupsApi(metadata, record_log),
        InFlightApi(metadata, record_log, leader, dead_letters, routing),
        MembershipApi(metadata, cluster, group_use),
        GroupAdminApi(metadata, record_log),
        Redriving(metadata, record_log),
        group_use,
        ActivityApi(activity, activity_log),
        AuditApi(metadata, share_coordinator, record_log),
        ready,
        lambda: led_metrics.series(leader.all, clock.now_ms),
        callers=Callers([host_of_url(url), *hosts_of(settings.allow_hosts)], origins_of(settings.allow_origins)),
        cluster_token=settings.cluster_token,
        max_request_bytes=settings.max_request_bytes,
        max_produce_bytes=settings.max_produce_bytes,
    )
    loops = (
        record_log.run,
        persister.run,
        lock_timers.run,
        lock_timers.remind,
        leader.unload_idle,
        due_locks.sweep,
        sessions.sweep,
        dead_letters.run,
        activity.run,
        metadata.follow,
        cluster.run,
        news.publish,
        news.listen,
        retain,
    )

    async def stop() -> None:
        """Hand over what this gateway leads, answer who still waits, and tell who leads next what is held."""
        await cluster.leave()
        await fetcher.fetches.finish()
        await leader.until_locks_told(routing.gateways.have_loaded)

    return Service(app, loops, stop=stop, close=close)


async def apply_retention(metadata: Metadata, record_log: PostgresRecordLog, clock: Clock) -> None:
    """Move log starts up as the topics' settings ask; of all topics, also of those nobody has used here."""
    try:
        await metadata.learn_all()
    except ApiError as error:
        log.warning("retention goes over known topics alone", extra=fields(cause=error.detail))
    for topic in list(metadata.topics()):
        retention_ms = int(topic.config["retention.ms"])
        retention_bytes = int(topic.config["retention.bytes"])
        if topic.config["cleanup.policy"] != "delete" or (retention_ms < 0 and retention_bytes < 0):
            continue
        try:
            await record_log.apply_retention(
                topic.topic_id, topic.partitions, retention_ms, retention_bytes, clock.now_ms()
            )
        except ApiError as error:
            log.warning("retention goes on later", extra=fields(topic=topic.name, cause=error.detail))


class ReadinessCheck:
    """What `/readyz` says: unavailable without the record log or the share coordinator; degraded without the rest."""

    def __init__(
        self,
        record_log: PostgresRecordLog,
        lock_timers: LockTimers,
        metadata: Metadata,
        share_coordinator: ShareStateClient,
        dead_letters: DeadLetterQueue,
        cluster: Cluster,
    ) -> None:
        self._lock_timers = lock_timers
        self._metadata = metadata
        self._share_coordinator = share_coordinator
        self._dead_letters = dead_letters
        self._cluster = cluster
        self._postgres_check = Check(record_log.ping)
        self._share_check = Check(self._ask_share_coordinator, ROUNDABOUT_CHECK_S)

    async def _ask_share_coordinator(self) -> None:
        answer: Readiness = await self._share_coordinator.call(apis.READYZ, deadline_s=ROUNDABOUT_CHECK_S, retry=False)
        if answer.status == "unavailable":
            raise CoordinatorNotAvailable(f"unavailable: {_faults_of(answer)}")

    async def __call__(self) -> Readiness:
        needed = await faults(
            **{"postgresql": self._postgres_check, "share coordinator": self._share_check},
        )
        lacking = {}
        if self._lock_timers.degraded:
            lacking["redis"] = (
                f"{self._lock_timers.trouble}; locks end by the sweep, delivery counts do not survive a crash"
            )
        if not self._metadata.reachable():
            lacking["group coordinator"] = "does not answer: what is known goes on being served"
        if self._dead_letters.stuck():
            lacking["dead letters"] = "cannot be written now; GET in-flight of the group says why"
        dependencies = {"postgresql": "ok", "redis": "ok", "group coordinator": "ok", "share coordinator": "ok"}
        return Readiness(
            status="unavailable" if needed else "degraded" if lacking else "ready",
            dependencies={**dependencies, **lacking, **needed},
            gateways=[node.node_id for node in self._cluster.generation.nodes],
        )


def _faults_of(answer: Readiness) -> str:
    return "; ".join(f"{name} {word}" for name, word in answer.dependencies.items() if word != "ok")
