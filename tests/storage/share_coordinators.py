"""A share coordinator to test: on a real database, with its loops running, called in the words of the scenarios."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.housekeeping import Housekeeping
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.partition_counts import PartitionCounts
from sharequeue_share_coordinator.prepare import ShardChanges
from sharequeue_share_coordinator.settings import Settings
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import KeyState
from sharequeue_share_coordinator.share_state.shard import Decide

from sharequeue.clock import Clock
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.shard_store import ShardStore
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.state import StateBatch, StateBatches
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service.time_line import TimeLine
from tests.core.states import stored_in
from tests.storage.record_logs import new_topic

SHARDS = 4
COMMAND_S = 60
"""No statement takes so long, even on a busy machine."""


class Running:
    """A share coordinator with its loop running, and the calls of one group."""

    def __init__(
        self, database_url: str, limit: int, max_cached: int, cold_ms: int, prune_ms: int, node_id: str, lease_ms: int
    ) -> None:
        self.limit = limit
        self.database_url = database_url
        self.connections = 0

        async def connect() -> Any:
            self.connections += 1
            settings = {"application_name": "share-coordinator-test"}
            return await asyncpg.connect(self.database_url, command_timeout=COMMAND_S, server_settings=settings)

        async def connect_owner() -> Any:
            settings = {"application_name": "share-coordinator-owner"}
            return await asyncpg.connect(self.database_url, command_timeout=COMMAND_S, server_settings=settings)

        settings = Settings(
            database_url=database_url,
            coordinator_url="",
            cluster_token="",
            node_id=node_id,
            url=f"http://{node_id}",
            lease_ms=lease_ms,
            snapshot_update_records_per_snapshot=limit,
            max_cached_share_partitions=max_cached,
            cold_partition_snapshot_interval_ms=cold_ms,
            prune_interval_ms=prune_ms,
        )
        self.ownership = Ownership(connect_owner, ShardStore("share_state"), settings, range(SHARDS))
        self.coordinator = ShareCoordinator(connect, self.ownership, TimeLine(), settings)
        self.housekeeping = Housekeeping(self.coordinator, connect, self.ownership, Clock(), settings)
        self.owning: asyncio.Task[None] | None = None
        self.loop: asyncio.Task[None] | None = None

    async def submit(self, key: SharePartitionKey, decide: Decide, creates: bool = False) -> list[PartitionStateResult]:
        return await self.coordinator.commit([Operation(key, decide, creates)])

    async def _one(self, key: SharePartitionKey, decide: Decide, creates: bool = False) -> PartitionStateResult:
        (result,) = await self.submit(key, decide, creates)
        return result

    async def init(self, key: SharePartitionKey, epoch: int = 0, start: int = 0) -> int:
        request = PartitionState(partition=0, state_epoch=epoch, start_offset=start)
        return (await self._one(key, lambda s: shard.initialize(s, request, None, 0), True)).error_code

    def writing(self, start: int, count: int, batches: Sequence[tuple[int, int, int, int]], leader: int = 0) -> Decide:
        """A write under the recorded state epoch."""
        request = PartitionState(
            partition=0,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=count,
            state=StateBatches([StateBatch(*batch) for batch in batches]),
        )

        def decide(state: KeyState | None) -> shard.Decision:
            request.state_epoch = 0 if state is None else state.state_epoch
            return shard.write(state, request, None, self.limit, 0)

        return decide

    async def write(
        self, key: SharePartitionKey, start: int, count: int, *batches: tuple[int, int, int, int], leader: int = 0
    ) -> int:
        return (await self._one(key, self.writing(start, count, batches, leader))).error_code

    async def read(self, key: SharePartitionKey, leader: int = 0) -> PartitionStateResult:
        request = PartitionState(partition=0, leader_epoch=leader)
        return await self._one(key, lambda s: shard.read(s, request, None, self.limit, 0))

    async def delete(self, key: SharePartitionKey) -> int:
        return (await self._one(key, lambda s: shard.delete(s, PartitionState(partition=0), None))).error_code

    async def state(self, key: SharePartitionKey) -> KeyState | None:
        """The state as it is in memory, loaded if need be."""
        seen: list[KeyState | None] = []

        def look(state: KeyState | None) -> shard.Decision:
            seen.append(state)
            return shard.Decision(shard.done(0))

        await self._one(key, look)
        return seen[0]


@asynccontextmanager
async def running(
    database_url: str,
    *,
    limit: int = 500,
    max_cached: int = 1000,
    cold_ms: int = 10**9,
    prune_ms: int = 10**9,
    node_id: str = "test",
    lease_ms: int = 10**6,
) -> AsyncIterator[Running]:
    """Of one node id the last one started owns everything at once."""
    started = Running(database_url, limit, max_cached, cold_ms, prune_ms, node_id, lease_ms)
    nowhere: Any = None  # no test asks for the partitions of a topic
    await started.ownership.start(ShardChanges(started.coordinator, PartitionCounts(nowhere)))
    loops = [
        asyncio.create_task(started.coordinator.run()),
        asyncio.create_task(started.housekeeping.run()),
    ]
    started.loop = loops[0]
    started.owning = asyncio.create_task(started.ownership.run())
    loops.append(started.owning)
    try:
        yield started
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await started.ownership.close()
        for connection in (started.coordinator._connection, started.housekeeping._connection):
            if connection is not None:
                connection.terminate()


def new_key(group_id: str = "g", partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(group_id, new_topic(), partition)


def held(result: PartitionStateResult) -> tuple[int | None, list[tuple[int, int, int, int]]]:
    batches = stored_in(result).state_batches()
    return result.start_offset, [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches]


async def kinds(connection: Any, key: SharePartitionKey) -> list[int]:
    rows = await connection.fetch(
        """SELECT r.kind FROM share_state.share_records r JOIN share_state.share_partitions USING (key_id)
           WHERE group_id = $1 AND topic_id = $2 AND partition = $3 ORDER BY seq""",
        *key,
    )
    return [row[0] for row in rows]
