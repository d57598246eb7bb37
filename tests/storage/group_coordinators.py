"""Group coordinators on a real database: one that owns every shard, or several."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.database import TRY_WRITE, Database
from sharequeue_coordinator.settings import Settings

from sharequeue.clock import Clock
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.shard_store import ShardStore
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.shards import CLUSTER_SHARD, shard_of
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.time_line import TimeLine

SHARDS = 4


@asynccontextmanager
async def running(database_url: str, **bounds: Any) -> AsyncIterator[GroupCoordinator]:
    """A group coordinator that owns everything. No share coordinator is there to be called."""
    async with instance(database_url, "test", **bounds) as (coordinator, _):
        yield coordinator


@asynccontextmanager
async def instance(
    database_url: str, node_id: str, kafka: Any = None, **bounds: Any
) -> AsyncIterator[tuple[GroupCoordinator, Ownership]]:
    """One of several. Of one node id the last one started owns everything at once. Nobody follows the changes."""

    async def connect() -> Any:
        return await asyncpg.connect(database_url, command_timeout=10)

    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=8, command_timeout=10)
    client = ShareStateClient("http://127.0.0.1:1")
    settings = Settings(
        database_url=database_url,
        share_coordinator_url="http://127.0.0.1:1",
        cluster_token="token",
        node_id=node_id,
        url=f"http://{node_id}",
        lease_ms=10**6,
        max_partitions_per_topic=100,
        record_log="postgres" if kafka is None else "kafka",
        **bounds,
    )
    ownership = Ownership(connect, ShardStore("groups"), settings, (CLUSTER_SHARD, *range(SHARDS)))
    database = Database(pool, ownership, TimeLine(), PostgresHealth(connect, TRY_WRITE))
    coordinator = GroupCoordinator(database, client, settings, Clock(), kafka)
    owning: asyncio.Task[None] | None = None
    try:
        await coordinator.metadata.load()
        await ownership.start(coordinator)
        owning = asyncio.create_task(ownership.run())
        yield coordinator, ownership
    finally:
        if owning is not None:
            owning.cancel()
            await asyncio.gather(owning, return_exceptions=True)
        await ownership.close()
        await client.close()
        pool.terminate()


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


async def two(stack: AsyncExitStack, database_url: str) -> list[tuple[GroupCoordinator, Ownership]]:
    """Two instances; the first owns what belongs to the whole cluster."""
    both = [await stack.enter_async_context(instance(database_url, node_id)) for node_id in "ab"]
    await until(lambda: all(len(ownership.owned) in (2, 3) for _, ownership in both))
    return sorted(both, key=lambda one: CLUSTER_SHARD not in one[1].owned)


def group_of(ownership: Ownership) -> str:
    return next(group for group in map(str, range(100)) if shard_of(group, SHARDS) in ownership.owned)
