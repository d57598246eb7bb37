"""Puts a gateway together: the record log, Redis, the clients of the coordinators, the leader and the calls.

The constructor of each object takes the objects below it. Loops report events upwards: `prepare` makes the receiver
later and passes it to the loop.

    metadata.follow ──▶ leader (topic_deleted, group_changed)
    persister.run ────▶ leader (write_ended)
    record_log ───────▶ log_news (appended, changed, forgotten): given to its constructor
    cluster.run ──────▶ hand_over (generation_changed)
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from redis.asyncio import Redis

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
from sharequeue.service.service import Service
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
from sharequeue_gateway.delivery.waiting import WaitingFetches
from sharequeue_gateway.http.access.guard import AccessGuard
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.access.watch import KeyWatch
from sharequeue_gateway.http.access_api import access_calls
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.http.app import GatewayApis, create_gateway_app
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
from sharequeue_gateway.http.single_records.calls import record_calls
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
from sharequeue_gateway.record_log.removing.readers import Readers
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
from sharequeue_http.application.app import App
from sharequeue_http.application.endpoint import Admission
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields
from sharequeue_http.origins import Callers, host_of_url, hosts_of, origins_of

log = logging.getLogger(__name__)


class Base(NamedTuple):
    """The stores, the clients of the coordinators, and the knowledge of other gateways. All other objects use these."""

    database: LogDatabase
    kafka: Any
    """The `KafkaCluster` that has the records; None: PostgreSQL has them."""
    redis: Redis
    redis_keys: RedisKeys
    clock: Clock
    coordinator: CoordinatorClient
    share_coordinator: ShareStateClient
    cluster: Cluster
    metadata: Metadata
    routing: Routing
    lock_timers: LockStore
    epochs: LeaderEpochs
    cache: BatchCache
    session_cache: ShareSessionCache
    fetches: WaitingFetches
    members: FetchingMembers
    access: AccessBook | None
    """None: callers need no keys, and those that they send are not read."""

    async def close(self) -> None:
        if self.kafka is not None:
            await self.kafka.close()
        await self.database.close()
        await self.redis.aclose()
        await self.cluster.close()
        await self.coordinator.close()
        await self.share_coordinator.close()


class Leading(NamedTuple):
    """The record log, and the objects that lead share-partitions."""

    record_log: Log
    mover: Mover
    append_news: AppendNews
    leader: Leader
    led: LedIndex
    loads: Loads
    dead_letters: DeadLetterQueue
    persister: Persister
    pending: PendingTransactions
    activity: Activity
    readers: Readers
    floors: Floors
    backlog: BacklogLook
    retention: Retention


class Delivering(NamedTuple):
    """The objects that run fetches and acknowledgements."""

    fetcher: Fetcher
    acknowledger: RoutedAcknowledger
    local_acknowledger: Acknowledger
    holder: Holder
    commits: SettledCommits
    routed: RoutedFetch
    appends: RoutedAppends
    held: HeldRecords
    streams: Streams
    sessions: Sessions
    hand_over: HandOver


async def prepare(settings: Settings) -> Service:
    """Connect to the stores and register with the group coordinator. Raises: the fault of the first step that fails."""
    base = await _connect(settings)
    clock, cluster, lock_timers = base.clock, base.cluster, base.lock_timers
    leading = _leading(base, settings)
    record_log, leader, dead_letters = leading.record_log, leading.leader, leading.dead_letters
    kept_locks = leading.loads.kept_locks
    base.database.time_line.forget(base.metadata.doubt)
    base.database.time_line.forget(leader.store_replaced)
    dead_letter_writer = DeadLetterWriter(
        dead_letters,
        leader,
        base.metadata,
        record_log,
        record_log.dead_letters,
        clock,
        auto_create_topics=settings.auto_create_dead_letter_topics,
        retry_max_ms=settings.dead_letter_retry_max_ms,
        copy_headers=not settings.kafka_defaults,
    )
    delivering = _delivering(base, leading, settings)
    fetcher, sessions, hand_over = delivering.fetcher, delivering.sessions, delivering.hand_over
    _set_gauges(leading, delivering)
    hand_over.begin(await cluster.register())
    book = base.access
    if book is not None:
        with contextlib.suppress(ApiError):  # the feed brings them too
            await book.fill()
    guard = _guard(base, settings)
    watch = None if guard is None or book is None else KeyWatch(book, guard, delivering.streams, clock)
    log.info("registered", extra=fields(node_id=cluster.me.node_id, leader_epoch=base.epochs.current))
    loops = (
        partial(record_log.run, fetcher.waited_for),
        partial(leading.persister.run, leader),
        partial(keep_clock, clock, base.database.now_ms),
        lock_timers.run,
        partial(lock_timers.watch, partial(all_locks, leader, kept_locks)),
        lock_timers.eviction.run,
        leading.pending.run,
        leading.floors.run,
        partial(unload_idle, leader, leading.led, clock, settings.share_partition_idle_ms),
        partial(sweep, leader, kept_locks),
        partial(bound_runs, leading.led, settings.max_delayed_runs),
        sessions.sweep,
        delivering.streams.run,
        delivering.appends.run,
        dead_letter_writer.run,
        leading.activity.run,
        base.members.run,
        leading.backlog.run,
        partial(base.metadata.follow, leader, cluster.hear_of, *_hearing(book, settings.access_stale_ms)),
        *(() if book is None or watch is None else (book.run, watch.run)),
        partial(cluster.run, hand_over),
        leading.append_news.publish,
        partial(leading.append_news.listen, record_log.hear_of),
        leading.retention.run,
        *((leading.mover.run,) if Capability.SCHEDULED_RECORDS in record_log.capabilities else ()),
    )

    async def close() -> None:
        await leading.floors.close()
        await leading.activity.close()
        if book is not None:
            await book.note_uses()
        await base.close()

    app = _app(base, leading, delivering, settings, guard, watch)
    operations = _operations(base, leading, settings, guard)
    return Service(app, cluster.me.url, loops, operations, stop=partial(_stop, base, delivering), close=close)


def _set_gauges(leading: Leading, delivering: Delivering) -> None:
    """Gauges that are read when somebody asks for the metrics."""
    metrics.STREAMS.set_function(delivering.streams.count)
    led_metrics.watch(leading.leader.all, lambda: delivering.fetcher.fetches.count, leading.dead_letters.records)
    log_metrics.watch(leading.record_log)
    metrics.SCHEDULED_OVERDUE_SECONDS.set_function(leading.mover.overdue_s)
    metrics.PENDING_RECORDS.set_function(leading.pending.records)
    metrics.OLDEST_PENDING_SECONDS.set_function(leading.pending.oldest_s)
    metrics.OLDEST_UNAPPLIED_SECONDS.set_function(lambda: leading.pending.oldest_unapplied_s)
    metrics.SHARE_COORDINATORS_FAILING.set_function(lambda: len(leading.leader.failing))


def _hearing(book: AccessBook | None, stale_ms: int) -> tuple[Any, ...]:
    """The feed's arguments for keys and rights: it is never silent for longer than a third of the time allowed."""
    if book is None:
        return ()
    return book.hear, FEED_WAIT_MS if stale_ms < 0 else min(FEED_WAIT_MS, max(stale_ms // 3, 100))


async def _stop(base: Base, delivering: Delivering) -> None:
    """Leave the generation, answer the waiting fetches and streams, and give the locks to the next leaders. Calls that
    still come are passed on to them for a while."""
    await base.cluster.leave()
    delivering.streams.finish()
    await delivering.fetcher.fetches.finish()
    await delivering.hand_over.finish(base.routing.gateways.have_loaded)
    await base.cluster.drain()
    delivering.streams.finish()
    await delivering.fetcher.fetches.finish()


async def _connect(settings: Settings) -> Base:
    coordinator = CoordinatorClient(settings.coordinator_url, "group", cluster_token=settings.cluster_token)
    cache, fetches = BatchCache(settings.record_cache_bytes), WaitingFetches()
    session_cache = ShareSessionCache(settings.share_session_idle_ms, _ceiling(settings, "max_share_sessions"))
    metadata = Metadata(
        coordinator,
        kafka_defaults=settings.kafka_defaults,
        auto_create_topics=settings.auto_create_topics,
        growing=(session_cache, fetches),
    )
    database = await LogDatabase.open(
        settings.database_url,
        known_ends=cache.log_ends,
        topics_exist=metadata.exist,
    )
    clock = Clock(await database.now_ms())  # the stores' clock decides about locks, delays and retention
    redis, keys = redis_client(settings.redis_url), RedisKeys(await database.cluster_id())
    node_id = node_name(settings.node_id, settings.port)
    url = own_url(settings.url, settings.scheme, settings.host, settings.port)
    drain_s = settings.drain_ms / 1000
    cluster = Cluster(coordinator, node_id, url, cluster_token=settings.cluster_token, drain_s=drain_s)
    return Base(
        database=database,
        kafka=await _kafka(settings),
        redis=redis,
        redis_keys=keys,
        clock=clock,
        coordinator=coordinator,
        share_coordinator=ShareStateClient(settings.share_coordinator_url, cluster_token=settings.cluster_token),
        cluster=cluster,
        metadata=metadata,
        routing=Routing(cluster),
        lock_timers=LockStore(redis, node_id, settings.redis_timeout_ms, keys),
        epochs=LeaderEpochs(cluster.next_leader_epoch),
        cache=cache,
        session_cache=session_cache,
        fetches=fetches,
        members=FetchingMembers(),
        access=None
        if settings.authentication == "off"
        else AccessBook(coordinator, principals_of(settings.super_users)),
    )


async def _kafka(settings: Settings) -> Any:
    """Reach the Kafka cluster that the settings name; None: they name none."""
    brokers = kafka_settings(settings)
    if brokers is None:
        return None
    from sharequeue.service.kafka_health import reach_kafka  # noqa: PLC0415  # its libraries are an extra

    return await reach_kafka(brokers)


async def _restart(base: Base, place: TopicIdPartition, offset: int) -> None:
    """Have the groups that read a partition here start at an offset, or below it at what they have not finished."""
    from sharequeue_gateway.kafka_log import bounds_store  # noqa: PLC0415

    for group_id, floor in await base.database.query(bounds_store.floors_of, place):
        if base.cluster.leads(SharePartitionKey(group_id, *place)):
            topic_id, partition = place
            start = {topic_id: {partition: min(floor, offset)}}
            request = AlterShareGroupOffsetsRequest(offsets=start, force=True)
            await base.coordinator.exchange(
                apis.ALTER_SHARE_GROUP_OFFSETS, request, key=group_id, path={"group": group_id}
            )


def _transaction_options(settings: Settings) -> TransactionOptions:
    return TransactionOptions(
        settings.max_transaction_bytes,
        settings.max_open_transactions,
        settings.transaction_sweep_ms / 1000,
        settings.principal_percent,
        log_metrics.count_end,
        log_metrics.count_forgotten,
    )


def _record_log(base: Base, listener: LogListener, settings: Settings) -> Log:
    """Make the record log that the settings name."""
    if base.kafka is not None:
        from sharequeue_gateway.kafka_log.log import KafkaRecordLog  # noqa: PLC0415  # its libraries are an extra

        return KafkaRecordLog(
            base.database,
            base.kafka,
            BatchCache(settings.record_cache_bytes),
            listener,
            values=base.metadata.value_format,
            sweeps=base.cluster.sweeps,
            restart=partial(_restart, base),
            reading_bytes=settings.max_unsent_bytes,
            max_depth=settings.max_value_depth,
            name=f"{base.redis_keys.cluster_id}-{base.cluster.me.node_id}",
        )
    return PostgresRecordLog(
        base.database,
        base.cache,
        listener,
        reading_bytes=settings.max_unsent_bytes,
        transactions=_transaction_options(settings),
        scheduled=(settings.max_scheduled_records, settings.max_scheduled_bytes),
    )


def _leading(base: Base, settings: Settings) -> Leading:
    clock, cluster, query = base.clock, base.cluster, base.database.query
    activity = Activity(
        query,
        clock,
        base.metadata.name_of,
        flush_ms=settings.activity_flush_ms,
        retention_ms=settings.activity_retention_ms,
    )
    led, append_news = LedIndex(), AppendNews(base.redis, cluster.me.node_id, base.redis_keys)
    log_news = LogNews(led=led, activity=activity, cluster=cluster, append_news=append_news, clock=clock)
    record_log = _record_log(base, log_news, settings)
    readers = record_log.readers
    loader = Loader(
        clock=clock,
        metadata=base.metadata,
        share_coordinator=base.share_coordinator,
        record_log=record_log,
        readers=readers,
        lock_timers=base.lock_timers,
        take_from_former=base.routing.gateways.take_from_former,
        take_from_others=base.routing.gateways.take_from_others,
        epochs=base.epochs,
    )
    persister = Persister(base.share_coordinator, deadline_ms=settings.state_write_deadline_ms)
    dead_letters = DeadLetterQueue()
    loads = Loads(
        led,
        loader,
        dead_letters,
        clock=clock,
        cluster=cluster,
        epochs=base.epochs,
        max_share_partitions=settings.max_share_partitions,
    )
    leader = Leader(
        loads, LockRecorder(base.lock_timers, loads, cluster, clock), persister, dead_letters, activity, clock
    )
    return Leading(
        record_log=record_log,
        mover=Mover(query, record_log.scheduled, record_log.schedules, partial(cluster.sweeps, "scheduled", 0)),
        append_news=append_news,
        leader=leader,
        led=led,
        loads=loads,
        dead_letters=dead_letters,
        persister=persister,
        pending=PendingTransactions(leader, led, query, base.metadata, cluster, clock),
        activity=activity,
        readers=readers,
        floors=Floors(leader, led, readers, clock, interval_ms=settings.floor_interval_ms),
        backlog=BacklogLook(
            query,
            cluster,
            clock,
            base.metadata,
            record_log.dead_letters,
            _sampler(base, leader),
            interval_ms=settings.backlog_interval_ms,
            most_pairs=settings.max_metric_pairs,
        ),
        retention=_retention(base, record_log, readers, settings.retention_interval_ms),
    )


def _sampler(base: Base, leader: Leader) -> Sampler:
    query, totals = base.database.query, leader.activity.totals
    return Sampler(query, base.cluster, base.clock, base.metadata, leader.all, totals, base.members.numbers)


def _retention(base: Base, record_log: Log, readers: Readers, interval_ms: int) -> Retention:
    return Retention(
        base.metadata,
        base.cluster,
        record_log,
        readers,
        IdleGroups(base.coordinator, readers, base.clock),
        base.clock,
        interval_ms=interval_ms,
    )


def _delivering(base: Base, leading: Leading, settings: Settings) -> Delivering:
    clock, metadata, lock_timers = base.clock, base.metadata, base.lock_timers
    record_log, leader = leading.record_log, leading.leader
    held = HeldRecords(leader, metadata, record_log, clock)
    repeated, routed_held = RepeatedFetches(held, lock_timers), RoutedHeld(base.routing, held, metadata)
    sessions = Sessions(base.session_cache, leader, metadata, base.routing, clock)
    fetcher = Fetcher(leader, record_log, repeated, base.cluster, clock, base.fetches)
    local_acknowledger = Acknowledger(leader, metadata, clock)
    acknowledger = RoutedAcknowledger(base.routing, local_acknowledger, metadata)
    holder = Holder(leader, metadata, clock)
    settler = Settler(base.routing, holder, leading.pending, metadata)
    routed = RoutedFetch(base.routing, fetcher, repeated, routed_held, clock)
    streams = Streams(
        Shared(routed, routed_held, repeated, metadata, base.members, clock),
        fetcher.fetches,
        base.routing,
        acknowledger,
        ceiling=_ceiling(settings, "max_streams"),
        heartbeat_ms=settings.stream_heartbeat_ms,
    )
    return Delivering(
        fetcher=fetcher,
        acknowledger=acknowledger,
        local_acknowledger=local_acknowledger,
        holder=holder,
        commits=SettledCommits(settler, record_log.transactions, record_log.appender),
        routed=routed,
        appends=RoutedAppends(base.cluster, metadata, leading.readers, record_log.appender),
        held=held,
        streams=streams,
        sessions=sessions,
        hand_over=HandOver(leading.loads, base.cluster, base.epochs, lock_timers, sessions.drop_moved),
    )


def _series(base: Base, leading: Leading, most_pairs: int) -> Iterator[str]:
    """The metrics with many series, as lines of text."""
    now_ms = base.clock.now_ms
    metadata = base.metadata
    queues = QueueSeries(
        leading.activity.totals, metadata.name_of, base.members.count, metadata.configs, now_ms, most_pairs=most_pairs
    )
    yield from led_metrics.series(leading.leader.all(), leading.dead_letters)
    yield from log_metrics.series(leading.record_log)
    yield from queues.series()
    yield from leading.backlog.series()
    yield from metrics.ANONYMOUS_CALLS.lines()


def _operations(base: Base, leading: Leading, settings: Settings, guard: AccessGuard | None) -> Operations:
    ready = ReadinessCheck(
        base.database,
        base.lock_timers,
        base.metadata,
        base.share_coordinator,
        leading.dead_letters,
        base.cluster,
        leading.record_log.transactions,
        guard,
        leading.record_log.stores,
    )
    return Operations(ready, partial(_series, base, leading, settings.max_metric_pairs), guard)


def _ceiling(settings: Settings, setting: str) -> Ceiling:
    """The part of a pool that one principal may have."""
    what = f"{setting.removeprefix('max_').replace('_', ' ')} ({setting})"
    return Ceiling(getattr(settings, setting), settings.principal_percent, what, time.monotonic)


def _guard(base: Base, settings: Settings) -> AccessGuard | None:
    """None: callers need no keys."""
    if base.access is None:
        return None
    required, stale_ms = settings.authentication == "required", settings.access_stale_ms
    return AccessGuard(base.access, base.metadata, base.clock, required=required, stale_ms=stale_ms)


def _fetch_api(base: Base, delivering: Delivering, settings: Settings, watch: KeyWatch | None) -> FetchApi:
    return FetchApi(
        clock=base.clock,
        metadata=base.metadata,
        fetcher=delivering.fetcher,
        routing=base.routing,
        routed=delivering.routed,
        acknowledger=delivering.acknowledger,
        sessions=delivering.sessions,
        members=base.members,
        ceiling=_ceiling(settings, "max_waiting_fetches"),
        watch=watch,
    )


def _leader_api(base: Base, leading: Leading, delivering: Delivering) -> LeaderApi:
    return LeaderApi(
        clock=base.clock,
        metadata=base.metadata,
        cluster=base.cluster,
        hand_over=delivering.hand_over,
        fetcher=delivering.fetcher,
        acknowledger=delivering.local_acknowledger,
        holder=delivering.holder,
        pending=leading.pending,
        sessions=delivering.sessions,
        records_held=delivering.held,
        streams=delivering.streams,
    )


def _apis(
    base: Base,
    leading: Leading,
    delivering: Delivering,
    settings: Settings,
    admission: Admission,
    watch: KeyWatch | None,
) -> GatewayApis:
    record_log, clock, cluster, query = leading.record_log, base.clock, base.cluster, base.database.query
    coordinator, metadata, routing, timers = base.coordinator, base.metadata, base.routing, base.lock_timers
    leader, dead_letters, readers, members = leading.leader, leading.dead_letters, leading.readers, base.members
    sessions, streams, local = delivering.sessions, delivering.streams, delivering.local_acknowledger
    commits, states, fetches, mover = delivering.commits, base.share_coordinator, base.fetches, leading.mover
    transactions, longest_ms = record_log.transactions, settings.transaction_max_timeout_ms
    group_use = GroupUse(metadata, leader, fetches, members, sessions, streams, timers, readers, cluster.leads)
    at_work = GroupsAtWork(query, cluster, record_log, leader, dead_letters, members, clock)
    owners = Owners(base.access)
    producer = Producer(metadata, record_log.appender, transactions, clock, settings.max_value_depth)
    arrow_producer = ArrowProducer(producer, metadata, admission, settings.max_request_bytes, settings.max_value_depth)
    settle = SettleApi(commits, producer, metadata, admission, owners)
    rules = UniqueRules(record_log.unique, states)
    tokens = PageTokens(settings.cluster_token)
    return GatewayApis(
        _fetch_api(base, delivering, settings, watch),
        StreamApi(metadata, streams, members, watch),
        RecordsApi(metadata, routing, local, delivering.acknowledger, sessions, settle, members),
        ProduceApi(producer, arrow_producer, record_log.unique, rules, delivering.appends, owners),
        ScheduledApi(
            query, producer, record_log.scheduled, record_log.schedules, mover, rules, clock, metadata, owners, tokens
        ),
        TransactionsApi(transactions, commits, query, metadata, members, longest_ms, owners, tokens),
        _leader_api(base, leading, delivering),
        TopicsApi(coordinator, metadata, record_log),
        CompactionApi(metadata, record_log.compaction),
        GroupsApi(coordinator, metadata, record_log, readers, record_log.dead_letters, states, tokens, commits),
        MembershipApi(coordinator, cluster, group_use, at_work),
        GroupAdminApi(coordinator, metadata, record_log),
        record_calls(
            metadata, record_log, query, coordinator, states, leader, dead_letters, local, routing, commits, tokens
        ),
        group_use,
        ActivityApi(leading.activity, leading.backlog, query, tokens, cluster, metadata, clock),
        access_calls(coordinator, closed=settings.authentication == "off" and settings.allow_anonymous_from_network),
    )


def _app(
    base: Base,
    leading: Leading,
    delivering: Delivering,
    settings: Settings,
    guard: AccessGuard | None,
    watch: KeyWatch | None,
) -> App:
    record_log = leading.record_log
    hosts = [host_of_url(base.cluster.me.url), *hosts_of(settings.allow_hosts)]
    admission = Admission(
        settings.max_produce_bytes, "that produce or commit", "max_produce_bytes", settings.principal_percent
    )
    metrics.PRODUCE_BYTES.set_function(lambda: admission.bytes)
    return create_gateway_app(
        _apis(base, leading, delivering, settings, admission, watch),
        callers=Callers(hosts, origins_of(settings.allow_origins), PREFIX, ("Acknowledge-Failed",)),
        cluster_token=settings.cluster_token,
        max_request_bytes=settings.max_request_bytes,
        admission=admission,
        guard=guard,
        service=ServiceDescription(record_log=record_log.kind, capabilities=sorted(record_log.capabilities)),
        kafka_defaults=settings.kafka_defaults,
    )
