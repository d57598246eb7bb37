"""Puts a share coordinator together: its shards, the commit loop, housekeeping, and the calls."""

from dataclasses import dataclass
from typing import Any, Final

from sharequeue import postgres_connection
from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.endpoints import coordinator_operations, serve_shards
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.shard_store import ShardStore
from sharequeue.service.service import Service
from sharequeue.service.time_line import TimeLine
from sharequeue_http.application.app import App, serve
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.housekeeping import Housekeeping
from sharequeue_share_coordinator.http.state_api import ShareStateApi
from sharequeue_share_coordinator.partition_counts import PartitionCounts
from sharequeue_share_coordinator.settings import Settings

SETTINGS: Final = {"idle_in_transaction_session_timeout": "2s", "statement_timeout": "8s"}


async def connect_to(url: str) -> Any:
    name = "sharequeue-share-coordinator"
    return await postgres_connection.connect(url, name, SETTINGS, timeout=5, command_timeout=8.5)


@dataclass
class ShardChanges:
    """The effects of a change of the owned shards. See ShardEvents."""

    _coordinator: ShareCoordinator
    _partition_counts: PartitionCounts

    def shards_taken(self, _: frozenset[int]) -> None:
        self._partition_counts.forget()

    def shards_lost(self, shards: frozenset[int]) -> None:
        self._coordinator.states.forget(shards)

    async def drain(self, _: frozenset[int]) -> None:
        await self._coordinator.commit([])


async def prepare(settings: Settings) -> Service:
    """Take the free shards, and make the application and its loops.
    Raises: the fault of a store that cannot be reached."""

    time_line = TimeLine()

    async def connect() -> Any:
        return await time_line.set_up(await connect_to(settings.database_url))

    clock = Clock()
    ownership = Ownership(connect, ShardStore("share_state"), settings, range(settings.shards))
    time_line.forget(ownership.forget_all)
    coordinator = ShareCoordinator(connect, ownership, time_line, settings)
    await coordinator.health.look()
    housekeeping = Housekeeping(coordinator, connect, ownership, clock, settings)
    group_coordinators = CoordinatorClient(settings.coordinator_url, "group", cluster_token=settings.cluster_token)
    partition_counts = PartitionCounts(group_coordinators)
    await ownership.start(ShardChanges(coordinator, partition_counts))
    app = App("sharequeue share coordinator", "Keeps the state of share-partitions.")
    for api, handler in ShareStateApi(coordinator, housekeeping, partition_counts, clock).calls():
        serve(app, api, handler, cluster_token=settings.cluster_token)
    serve_shards(app, ownership, cluster_token=settings.cluster_token)

    async def close() -> None:
        await ownership.close()
        await coordinator.health.close()
        await group_coordinators.close()

    loops = (ownership.run, coordinator.run, housekeeping.run)
    operations = coordinator_operations(coordinator.health, ownership, group_coordinators)
    return Service(app, ownership.instance.url, loops, operations, stop=ownership.stop, close=close)
