"""Puts a gateway together: the record log, Redis, the clients of the coordinators, the leader and the calls.

The constructor of each object takes the objects below it. Loops report events upwards: `Gateway` makes the receiver
later and passes it to the loop.

    metadata.follow ──▶ leader (topic_deleted, group_changed)
    persister.run ────▶ leader (write_ended)
    record_log ───────▶ log_news (appended, changed, forgotten): given to its constructor
    cluster.run ──────▶ hand_over (generation_changed)
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.capabilities import Capability
from sharequeue.protocol.messages.cluster import AlterShareGroupOffsetsRequest
from sharequeue.protocol.messages.operations import ServiceDescription
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue.service.addresses import node_name, own_url
from sharequeue.service.kafka_settings import kafka_settings
from sharequeue.service.operations import Operations
from sharequeue.service.service import Loop, Service
from sharequeue_gateway import metrics
from sharequeue_gateway.access.book import AccessBook
from sharequeue_gateway.cluster.append_news import AppendNews
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import FEED_WAIT_MS, Metadata
from sharequeue_gateway.cluster.redis_client import RedisKeys, redis_client
from sharequeue_gateway.cluster.store_clock import keep_clock
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.delivery.dead_letters import DeadLetterWriter
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.holding import Holder
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import Event, WaitingFetches
from sharequeue_gateway.http.access.guard import AccessGuard
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.access.watch import KeyWatch
from sharequeue_gateway.http.access_api import access_calls
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.http.app import create_gateway_app
from sharequeue_gateway.http.fetch_api import FetchApi
from sharequeue_gateway.http.groups.group_admin_api import GroupAdminApi
from sharequeue_gateway.http.groups.group_work import GroupsAtWork
from sharequeue_gateway.http.groups.members_api import MembershipApi
from sharequeue_gateway.http.groups.offsets_api import GroupsApi
from sharequeue_gateway.http.internal.group_use_api import GroupUse
from sharequeue_gateway.http.internal.leader_api import LeaderApi
from sharequeue_gateway.http.jobs.activity_api import ActivityApi
from sharequeue_gateway.http.jobs.compaction_api import CompactionApi
from sharequeue_gateway.http.produce_api import ProduceApi
from sharequeue_gateway.http.readiness import ReadinessCheck
from sharequeue_gateway.http.records_api import RecordsApi
from sharequeue_gateway.http.scheduled_api import ScheduledApi
from sharequeue_gateway.http.settle_api import SettleApi
from sharequeue_gateway.http.single_records.at_leader_api import AtLeaderApi
from sharequeue_gateway.http.single_records.dead_letters import LetterFinder
from sharequeue_gateway.http.single_records.dead_letters_api import DeadLettersApi
from sharequeue_gateway.http.single_records.in_flight_api import InFlightApi
from sharequeue_gateway.http.single_records.look_up_api import LookUpApi
from sharequeue_gateway.http.single_records.redrive_api import Redriving
from sharequeue_gateway.http.stream_api import StreamApi
from sharequeue_gateway.http.topics_api import TopicsApi
from sharequeue_gateway.http.transactions_api import TransactionsApi
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.floors import Floors
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.loading.hand_over import HandOver
from sharequeue_gateway.leader.loading.load_registry import Loads
from sharequeue_gateway.leader.loading.loader import Loader
from sharequeue_gateway.leader.lock_entries import LockRecorder
from sharequeue_gateway.leader.log_news import LogNews
from sharequeue_gateway.leader.pending_transactions import PendingTransactions
from sharequeue_gateway.leader.persister import Persister
from sharequeue_gateway.leader.reports import led_metrics
from sharequeue_gateway.leader.reports.activity import Activity
from sharequeue_gateway.leader.reports.backlog import BacklogLook
from sharequeue_gateway.leader.reports.queue_series import QueueSeries
from sharequeue_gateway.leader.reports.sampler import Sampler
from sharequeue_gateway.leader.rounds import all_locks, bound_runs, sweep, unload_idle
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.producing import log_metrics
from sharequeue_gateway.producing.arrow_producer import ArrowProducer
from sharequeue_gateway.producing.mover import Mover
from sharequeue_gateway.producing.producer import Producer
from sharequeue_gateway.producing.unique_producer import UniqueRules
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.log import LogListener
from sharequeue_gateway.record_log.parts import Log
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.transactions.transactions import TransactionOptions
from sharequeue_gateway.retention.idle_groups import IdleGroups
from sharequeue_gateway.retention.sweeps import Retention
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.appends import RoutedAppends
from sharequeue_gateway.routing.fetch import RoutedFetch
from sharequeue_gateway.routing.held import RoutedHeld
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_gateway.routing.settling import Settler
from sharequeue_gateway.routing.stream import Shared
from sharequeue_gateway.routing.streams import Streams
from sharequeue_gateway.settings import PREFIX, Settings, principals_of
from sharequeue_gateway.share_partition.session import ShareSessionCache
from sharequeue_http.application.app import App, calls_of
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields
from sharequeue_http.origins import Callers, host_of_url, hosts_of, origins_of

log = logging.getLogger(__name__)


class Gateway:
    """The objects of one gateway, made in this order: the stores and the clients, those that lead share-partitions,
    those that run fetches and acknowledgements, the calls."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.coordinator = CoordinatorClient(settings.coordinator_url, "group", cluster_token=settings.cluster_token)
        self.share_coordinator = ShareStateClient(settings.share_coordinator_url, cluster_token=settings.cluster_token)
        self.cache = BatchCache(settings.record_cache_bytes)
        self.fetches = WaitingFetches()
        self.members = FetchingMembers()
        self.session_cache = ShareSessionCache(
            settings.share_session_idle_ms, self._ceiling("max_share_sessions", "share sessions")
        )
        self.metadata = Metadata(
            self.coordinator,
            kafka_defaults=settings.kafka_defaults,
            auto_create_topics=settings.auto_create_topics,
            growing=(self.session_cache.topic_has_grown, self.fetches.topic_has_grown),
        )
        keyless = settings.authentication == "off"
        self.access = None if keyless else AccessBook(self.coordinator, principals_of(settings.super_users))
        """None: callers need no keys, and those that they send are not read."""
        self.owners = Owners(self.access)
        self.tokens = PageTokens(settings.cluster_token)
        self.cluster = Cluster(
            self.coordinator,
            node_name(settings.node_id, settings.port),
            own_url(settings.url, settings.scheme, settings.host, settings.port),
            cluster_token=settings.cluster_token,
            drain_s=settings.drain_ms / 1000,
        )
        self.routing = Routing(self.cluster)
        self.epochs = LeaderEpochs(self.cluster.next_leader_epoch)

    async def connect(self) -> None:
        """Connect to the stores. Raises: the fault of the first that fails."""
        settings = self.settings
        self.database = await LogDatabase.open(
            settings.database_url, known_ends=self.cache.log_ends, topics_exist=self.metadata.exist
        )
        self.query = self.database.query
        self.clock = Clock(await self.database.now_ms())  # the stores' clock decides about locks, delays and retention
        self.redis, self.redis_keys = redis_client(settings.redis_url), RedisKeys(await self.database.cluster_id())
        node_id = self.cluster.me.node_id
        self.lock_timers = LockStore(self.redis, node_id, settings.redis_timeout_ms, self.redis_keys)
        self.kafka = await _kafka(settings)
        """The `KafkaCluster` that has the records; None: PostgreSQL has them."""

    def lead(self) -> None:
        """Make the record log, and the objects that lead share-partitions."""
        settings, clock, cluster, metadata = self.settings, self.clock, self.cluster, self.metadata
        self.activity = Activity(
            self.query,
            clock,
            metadata.name_of,
            flush_ms=settings.activity_flush_ms,
            retention_ms=settings.activity_retention_ms,
        )
        self.led = LedIndex()
        self.append_news = AppendNews(self.redis, cluster.me.node_id, self.redis_keys)
        self.record_log = self._record_log(LogNews(self.led, self.activity, cluster, self.append_news, clock))
        self.readers = self.record_log.readers
        loader = Loader(
            clock=clock,
            metadata=metadata,
            share_coordinator=self.share_coordinator,
            record_log=self.record_log,
            readers=self.readers,
            lock_timers=self.lock_timers,
            take_from_former=self.routing.gateways.take_from_former,
            take_from_others=self.routing.gateways.take_from_others,
            epochs=self.epochs,
        )
        self.persister = Persister(self.share_coordinator, deadline_ms=settings.state_write_deadline_ms)
        self.dead_letters = DeadLetterQueue()
        self.loads = Loads(
            self.led, loader, self.dead_letters, clock, cluster, self.epochs, settings.max_share_partitions
        )
        locks = LockRecorder(self.lock_timers, self.loads, cluster, clock)
        self.leader = Leader(self.loads, locks, self.persister, self.dead_letters, self.activity, clock)
        self.mover = Mover(
            self.query, self.record_log.scheduled, self.record_log.schedules, partial(cluster.sweeps, "scheduled", 0)
        )
        self.pending = PendingTransactions(self.leader, self.led, self.query, metadata, cluster, clock)
        self.floors = Floors(self.leader, self.led, self.readers, clock, interval_ms=settings.floor_interval_ms)
        totals = self.activity.totals
        self.backlog = BacklogLook(
            self.query,
            cluster,
            clock,
            metadata,
            self.record_log.dead_letters,
            Sampler(self.query, cluster, clock, metadata, self.leader.led, totals, self.members.numbers),
            interval_ms=settings.backlog_interval_ms,
            most_pairs=settings.max_metric_pairs,
        )
        self.retention = Retention(
            metadata,
            cluster,
            self.record_log,
            self.readers,
            IdleGroups(self.coordinator, self.readers, clock),
            clock,
            interval_ms=settings.retention_interval_ms,
        )

    def _record_log(self, listener: LogListener) -> Log:
        settings = self.settings
        if self.kafka is not None:
            from sharequeue_gateway.kafka_log.log import KafkaRecordLog  # noqa: PLC0415  # its libraries are an extra

            return KafkaRecordLog(
                self.database,
                self.kafka,
                BatchCache(settings.record_cache_bytes),
                listener,
                values=self.metadata.value_format,
                sweeps=self.cluster.sweeps,
                restart=self._restart,
                reading_bytes=settings.max_unsent_bytes,
                max_depth=settings.max_value_depth,
                name=f"{self.redis_keys.cluster_id}-{self.cluster.me.node_id}",
            )
        transactions = TransactionOptions(
            settings.max_transaction_bytes,
            settings.max_open_transactions,
            settings.transaction_sweep_ms / 1000,
            settings.principal_percent,
            log_metrics.count_end,
            log_metrics.count_forgotten,
        )
        return PostgresRecordLog(
            self.database,
            self.cache,
            listener,
            reading_bytes=settings.max_unsent_bytes,
            transactions=transactions,
            scheduled=(settings.max_scheduled_records, settings.max_scheduled_bytes),
        )

    async def _restart(self, place: TopicIdPartition, offset: int) -> None:
        """Have the groups that read a partition here start at an offset, or below it at what they have not finished."""
        from sharequeue_gateway.kafka_log import bounds_store  # noqa: PLC0415

        topic_id, partition = place
        for group_id, floor in await self.query(bounds_store.floors_of, place):
            if self.cluster.leads(SharePartitionKey(group_id, *place)):
                start = {topic_id: {partition: min(floor, offset)}}
                request = AlterShareGroupOffsetsRequest(offsets=start, force=True)
                await self.coordinator.exchange(
                    apis.ALTER_SHARE_GROUP_OFFSETS, request, key=group_id, path={"group": group_id}
                )

    def deliver(self) -> None:
        """Make the objects that run fetches and acknowledgements."""
        settings, clock, metadata, routing, leader = self.settings, self.clock, self.metadata, self.routing, self.leader
        self.held = HeldRecords(leader, metadata, self.record_log, clock)
        repeated, routed_held = RepeatedFetches(self.held, self.lock_timers), RoutedHeld(routing, self.held, metadata)
        self.sessions = Sessions(self.session_cache, leader, metadata, routing, clock)
        self.fetcher = Fetcher(leader, self.record_log, repeated, self.cluster, clock, self.fetches)
        self.local_acknowledger = Acknowledger(leader, metadata, clock)
        self.acknowledger = RoutedAcknowledger(routing, self.local_acknowledger, metadata)
        self.holder = Holder(leader, metadata, clock)
        settler = Settler(routing, self.holder, self.pending, metadata)
        self.commits = SettledCommits(settler, self.record_log.transactions)
        self.routed = RoutedFetch(routing, self.fetcher, repeated, routed_held, self.acknowledger, clock)
        self.streams = Streams(
            Shared(self.routed, routed_held, repeated, metadata, self.members, clock),
            self.fetches,
            routing,
            self.acknowledger,
            ceiling=self._ceiling("max_streams", "streams"),
            heartbeat_ms=settings.stream_heartbeat_ms,
        )
        self.appends = RoutedAppends(self.cluster, metadata, self.readers, self.record_log.appender)
        self.hand_over = HandOver(self.loads, self.cluster, self.epochs, self.lock_timers, self.sessions.drop_moved)
        self.dead_letter_writer = DeadLetterWriter(
            self.dead_letters,
            leader,
            metadata,
            self.record_log,
            self.record_log.dead_letters,
            clock,
            auto_create_topics=settings.auto_create_dead_letter_topics,
            retry_max_ms=settings.dead_letter_retry_max_ms,
            copy_headers=not settings.kafka_defaults,
        )
        self.fetch_ceiling = self._ceiling("max_waiting_fetches", "waiting fetches")
        self.guard: AccessGuard | None = None
        self.watch: KeyWatch | None = None
        if self.access is not None:
            required, stale_ms = settings.authentication == "required", settings.access_stale_ms
            self.guard = AccessGuard(self.access, self.metadata, clock, required=required, stale_ms=stale_ms)
            self.watch = KeyWatch(self.access, self.guard, self.streams, clock, self.fetch_ceiling)

    def _ceiling(self, setting: str, what: str) -> Ceiling:
        """The part of a pool that one principal may have. `what`: its uses."""
        percent = self.settings.principal_percent
        return Ceiling(getattr(self.settings, setting), percent, f"{what} ({setting})", time.monotonic)

    # Running

    async def register(self) -> None:
        """Register with the group coordinator. Raises: the fault, if that fails."""
        self.epochs.raise_to(await self.cluster.register())
        if self.access is not None:
            with contextlib.suppress(ApiError):  # the feed brings them too
                await self.access.fill()
        log.info("registered", extra=fields(node_id=self.cluster.me.node_id, leader_epoch=self.epochs.current))

    def loops(self) -> tuple[Loop, ...]:
        settings, leader, record_log, kept_locks = self.settings, self.leader, self.record_log, self.loads.kept_locks
        return (
            partial(record_log.run, self.fetcher.waited_for),
            partial(self.persister.run, leader),
            partial(keep_clock, self.clock, self.database.now_ms),
            self.lock_timers.run,
            partial(self.lock_timers.watch, partial(all_locks, leader, kept_locks)),
            self.lock_timers.eviction.run,
            self.pending.run,
            self.floors.run,
            partial(unload_idle, leader, self.led, self.clock, settings.share_partition_idle_ms),
            partial(sweep, leader, kept_locks),
            partial(bound_runs, self.led, settings.max_delayed_runs),
            self.sessions.sweep,
            self.streams.run,
            self.appends.run,
            self.dead_letter_writer.run,
            self.activity.run,
            self.members.run,
            self.backlog.run,
            partial(self.metadata.follow, leader, self.cluster.hear_of, *self._hearing()),
            *(() if self.access is None or self.watch is None else (self.access.run, self.watch.run)),
            partial(self.cluster.run, self.hand_over),
            self.append_news.publish,
            partial(self.append_news.listen, record_log.hear_of),
            self.retention.run,
            *((self.mover.run,) if Capability.SCHEDULED_RECORDS in record_log.capabilities else ()),
        )

    def _hearing(self) -> tuple[Any, ...]:
        """The feed's arguments for keys and rights: it is never silent for longer than a third of the time allowed."""
        stale_ms = self.settings.access_stale_ms
        if self.access is None:
            return ()
        return self.access.hear, FEED_WAIT_MS if stale_ms < 0 else min(FEED_WAIT_MS, max(stale_ms // 3, 100))

    async def stop(self) -> None:
        """Leave the generation, answer the waiting fetches and streams, and give the locks to the next leaders. Calls
        that still come are passed on to them for a while."""
        await self.cluster.leave()
        self.streams.end(Event.GATEWAY_STOPS)
        await self.fetches.finish()
        await self.hand_over.finish(self.routing.gateways.have_loaded)
        await self.cluster.drain()
        self.streams.end(Event.GATEWAY_STOPS)
        await self.fetches.finish()

    async def close(self) -> None:
        await self.floors.close()
        await self.activity.close()
        if self.access is not None:
            await self.access.note_uses()
        if self.kafka is not None:
            await self.kafka.close()
        await self.database.close()
        await self.redis.aclose()
        await self.cluster.close()
        await self.coordinator.close()
        await self.share_coordinator.close()

    # Metrics and readiness

    def set_gauges(self) -> None:
        metrics.STREAMS.set_function(self.streams.count)
        metrics.WAITING_FETCHES.set_function(lambda: len(self.fetches.waiting))
        metrics.DEAD_LETTERS_PENDING.set_function(self.dead_letters.records)
        metrics.LED_SHARE_PARTITIONS.set_function(lambda: len(self.led))
        log_metrics.watch(self.record_log)
        metrics.SCHEDULED_OVERDUE_SECONDS.set_function(self.mover.overdue_s)
        metrics.PENDING_RECORDS.set_function(self.pending.records)
        metrics.OLDEST_PENDING_SECONDS.set_function(self.pending.oldest_s)
        metrics.OLDEST_UNAPPLIED_SECONDS.set_function(lambda: self.pending.oldest_unapplied_s)
        metrics.SHARE_COORDINATORS_FAILING.set_function(lambda: len(self.leader.failing))

    def _series(self) -> Iterator[str]:
        """The metrics with many series, as lines of text."""
        queues = QueueSeries(
            self.activity.totals,
            self.metadata.name_of,
            self.members.numbers,
            self.metadata.configs,
            self.clock.now_ms,
            most_pairs=self.settings.max_metric_pairs,
        )
        yield from led_metrics.series(self.leader.led, self.dead_letters)
        yield from log_metrics.series(self.record_log)
        yield from queues.series()
        yield from self.backlog.series()
        yield from metrics.ANONYMOUS_CALLS.lines()

    def operations(self) -> Operations:
        ready = ReadinessCheck(
            self.database,
            self.lock_timers,
            self.metadata,
            self.share_coordinator,
            self.dead_letters,
            self.cluster,
            self.record_log.transactions,
            self.guard,
            self.record_log.stores,
        )
        return Operations(ready, self._series, self.guard)

    # Calls

    def app(self) -> App:
        settings, record_log = self.settings, self.record_log
        hosts = [host_of_url(self.cluster.me.url), *hosts_of(settings.allow_hosts)]
        admission = self._ceiling("max_produce_bytes", "bytes of requests in hand that produce or commit")
        metrics.PRODUCE_BYTES.set_function(lambda: admission.used)
        closed = settings.authentication == "off" and settings.allow_anonymous_from_network
        return create_gateway_app(
            (*calls_of(apis, *self._handlers(admission)), *access_calls(self.coordinator, closed=closed)),
            callers=Callers(hosts, origins_of(settings.allow_origins), PREFIX, ("Acknowledge-Failed",)),
            cluster_token=settings.cluster_token,
            max_request_bytes=settings.max_request_bytes,
            admission=admission,
            guard=self.guard,
            service=ServiceDescription(record_log=record_log.kind, capabilities=sorted(record_log.capabilities)),
            kafka_defaults=settings.kafka_defaults,
        )

    def _handlers(self, admission: Ceiling) -> Sequence[object]:
        settings, record_log, clock, query, tokens = self.settings, self.record_log, self.clock, self.query, self.tokens
        coordinator, metadata, cluster, leader = self.coordinator, self.metadata, self.cluster, self.leader
        members, sessions, streams, commits = self.members, self.sessions, self.streams, self.commits
        local, acknowledger, fetcher, routing = self.local_acknowledger, self.acknowledger, self.fetcher, self.routing
        states, owners, watch, pending = self.share_coordinator, self.owners, self.watch, self.pending
        transactions, dead_letters, readers = record_log.transactions, self.dead_letters, self.readers
        scheduled, schedules = record_log.scheduled, record_log.schedules
        depth, longest_ms = settings.max_value_depth, settings.transaction_max_timeout_ms
        group_use = GroupUse(
            metadata, leader, self.fetches, members, sessions, streams, self.lock_timers, readers, cluster.leads
        )
        at_work = GroupsAtWork(query, cluster, record_log, leader, dead_letters, members, clock)
        appender = record_log.appender
        routed = appender if record_log.kind == "kafka" else self.appends  # in Kafka appends do not collide
        producer = Producer(metadata, cluster, appender, routed, transactions, clock, depth)
        arrow_producer = ArrowProducer(producer, metadata, admission, settings.max_request_bytes, depth)
        settle = SettleApi(commits, producer, metadata, admission, owners)
        rules = UniqueRules(record_log.unique, states)
        fetch_api = FetchApi(
            clock, metadata, fetcher, routing, self.routed, acknowledger, sessions, members, self.fetch_ceiling, watch
        )
        leader_api = LeaderApi(
            clock, metadata, cluster, self.hand_over, fetcher, local, self.holder, pending, sessions, self.held, streams
        )
        return (
            fetch_api,
            StreamApi(metadata, streams, members, watch),
            RecordsApi(metadata, routing, local, acknowledger, sessions, settle, members),
            ProduceApi(producer, arrow_producer, record_log.unique, rules, self.appends, owners),
            ScheduledApi(query, producer, scheduled, schedules, self.mover, rules, clock, metadata, owners, tokens),
            TransactionsApi(transactions, commits, query, metadata, members, longest_ms, owners, tokens),
            leader_api,
            TopicsApi(coordinator, metadata, record_log),
            CompactionApi(metadata, record_log.compaction),
            GroupsApi(coordinator, metadata, record_log, readers, record_log.dead_letters, states, tokens, commits),
            MembershipApi(coordinator, cluster, group_use, at_work),
            GroupAdminApi(coordinator, metadata, record_log),
            *self._single_records(),
            group_use,
            at_work,
            ActivityApi(self.activity, self.backlog, query, tokens, routing, metadata, clock),
        )

    def _single_records(self) -> Sequence[object]:
        """The calls of single records: in flight, look-up, dead letters, redrive, by hand."""
        record_log, metadata, routing, leader = self.record_log, self.metadata, self.routing, self.leader
        dead_letters, tokens = record_log.dead_letters, self.tokens
        finder = LetterFinder(metadata, record_log, dead_letters, tokens)
        letters = DeadLettersApi(metadata, dead_letters, finder)
        in_flight = InFlightApi(
            self.coordinator, metadata, dead_letters, leader, self.dead_letters, routing, self.commits, tokens
        )
        return (
            in_flight,
            letters,
            Redriving(metadata, record_log, dead_letters, finder),
            AtLeaderApi(metadata, record_log, self.share_coordinator, leader, self.local_acknowledger, routing),
            LookUpApi(metadata, record_log, self.query, in_flight, finder, letters),
        )


async def _kafka(settings: Settings) -> Any:
    """Reach the Kafka cluster that the settings name; None: they name none."""
    brokers = kafka_settings(settings)
    if brokers is None:
        return None
    from sharequeue.service.kafka_health import reach_kafka  # noqa: PLC0415  # its libraries are an extra

    return await reach_kafka(brokers)


async def prepare(settings: Settings) -> Service:
    """Connect to the stores and register with the group coordinator. Raises: the fault of the first step that fails."""
    gateway = Gateway(settings)
    await gateway.connect()
    gateway.lead()
    gateway.database.time_line.forget(gateway.metadata.doubt)
    gateway.database.time_line.forget(gateway.leader.store_replaced)
    gateway.deliver()
    gateway.set_gauges()
    await gateway.register()
    app, url = gateway.app(), gateway.cluster.me.url
    return Service(app, url, gateway.loops(), gateway.operations(), stop=gateway.stop, close=gateway.close)
