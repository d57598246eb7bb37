"""Puts a group coordinator together: its shards, the database, topics and groups, and the calls."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sharequeue import postgres_connection
from sharequeue.clock import Clock
from sharequeue.ownership.endpoints import coordinator_operations, serve_shards
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.shard_store import ShardStore
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.postgres_connection import Learn
from sharequeue.protocol import apis
from sharequeue.protocol.shards import CLUSTER_SHARD
from sharequeue.service.kafka_settings import kafka_settings
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.service import Service
from sharequeue.service.time_line import TimeLine
from sharequeue_coordinator import metrics
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.database import TRY_WRITE, Database
from sharequeue_coordinator.http.access_api import access_calls
from sharequeue_coordinator.http.groups_api import GroupsApi
from sharequeue_coordinator.http.metadata_api import MetadataApi
from sharequeue_coordinator.http.topics_api import TopicsApi
from sharequeue_coordinator.metadata.store import CHANGES_CHANNEL
from sharequeue_coordinator.settings import Settings
from sharequeue_http.application.app import App, calls_of, serve

if TYPE_CHECKING:
    from sharequeue_kafka.cluster import KafkaCluster

NAME: Final = "sharequeue-coordinator"
SETTINGS: Final = {"idle_in_transaction_session_timeout": "2s", "statement_timeout": "9s"}


async def connect_to(url: str) -> Any:
    return await postgres_connection.connect(url, NAME, SETTINGS, timeout=5)


async def open_pool(url: str, learn: Learn) -> Any:
    return await postgres_connection.open_pool(url, NAME, SETTINGS, learn, connections=8, timeout=5, command_timeout=10)


async def prepare(settings: Settings) -> Service:
    """Take the free shards, and make the application and its loops.
    Raises: the fault of a store that cannot be reached."""
    time_line = TimeLine()

    async def connect() -> Any:
        return await time_line.set_up(await connect_to(settings.database_url))

    ownership = Ownership(connect, ShardStore("groups"), settings, (CLUSTER_SHARD, *range(settings.shards)))
    time_line.forget(ownership.forget_all)
    pool = await open_pool(settings.database_url, time_line.learn)
    database = Database(pool, ownership, time_line, PostgresHealth(connect, TRY_WRITE))
    await database.health.look()
    kafka, stores = await _kafka_of(settings)
    share_coordinators = ShareStateClient(settings.share_coordinator_url, cluster_token=settings.cluster_token)
    coordinator = GroupCoordinator(database, share_coordinators, settings, Clock(), kafka)
    await coordinator.topics.bind()
    time_line.forget(coordinator.metadata.forget)
    ownership.listen(CHANGES_CHANNEL, coordinator.metadata.look)
    await coordinator.metadata.load()
    await ownership.start(coordinator)
    metrics.TOPICS.set_function(lambda: len(coordinator.metadata.by_name))
    metrics.METADATA_VERSION.set_function(lambda: coordinator.metadata.feed.version)
    app = App("sharequeue group coordinator", "Topics, group settings, initialisation of share-partitions.")
    handlers = TopicsApi(coordinator), GroupsApi(coordinator), MetadataApi(coordinator)
    for api, handler in (*calls_of(apis, *handlers), *access_calls(coordinator)):
        serve(app, api, handler, cluster_token=settings.cluster_token, protect=True)
    serve_shards(app, ownership, cluster_token=settings.cluster_token)

    async def stop() -> None:
        await coordinator.metadata.feed.finish()
        await ownership.stop()

    async def close() -> None:
        await ownership.close()
        await database.health.close()
        if kafka is not None:
            await kafka.close()
        await share_coordinators.close()

    loops = (
        ownership.run,
        coordinator.follow,
        *coordinator.topics.loops,
        coordinator.metadata.gateways.watch_leases,
        coordinator.sessions.watch,
        coordinator.empty_groups.watch,
    )
    operations = coordinator_operations(database.health, ownership, share_coordinators, stores)
    return Service(app, ownership.instance.url, loops, operations, stop=stop, close=close)


async def _kafka_of(settings: Settings) -> "tuple[KafkaCluster | None, dict[str, Any]]":
    """Reach the cluster whose topics the coordinator has; None: they are in its database. Returns also its check for
    `/readyz`."""
    brokers = kafka_settings(settings)
    if brokers is None:
        return None, {}
    from sharequeue.service.kafka_health import ask_kafka, reach_kafka  # noqa: PLC0415  # its libraries are an extra

    kafka = await reach_kafka(brokers)
    return kafka, {"kafka": partial(ask_kafka, kafka)}
