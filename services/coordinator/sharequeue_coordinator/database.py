"""Reading and writing schema `groups`. A write names the shard of what it is about, and the epoch it is owned under."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.errors import NotCoordinator
from sharequeue.protocol.shards import CLUSTER, shard_of
from sharequeue.service.postgres_faults import FAULTS, sqlstate_of
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue_coordinator.metadata.store import NOT_HELD, Fence

TRY_WRITE: Final = f"""
INSERT INTO groups.share_group_configs (group_id, config)
VALUES (gen_random_uuid()::text, to_jsonb(encode({SOME_BYTES}, 'base64')))
"""


class Database:
    """Runs functions of the store. `ownership` says what this instance may write."""

    def __init__(self, pool: Any, ownership: Ownership, health: PostgresHealth) -> None:
        self._pool = pool
        self.health = health
        self._ownership = ownership
        self._under_way: Counter[int] = Counter()
        self._ended = asyncio.Event()

    async def query(self, function: Any, *arguments: Any) -> Any:
        """Run a store function. Raises: StorageError: any failure of the database; NotCoordinator: nothing is written."""
        try:
            async with self._pool.acquire(timeout=5) as connection:
                return await function(connection, *arguments)
        except FAULTS as fault:
            if sqlstate_of(fault) == NOT_HELD:
                self._ownership.look_again()
                raise NotCoordinator("another group coordinator took over") from fault
            raise self.health.error(fault, "the group coordinator's database cannot be used") from fault

    def fence(self, key: str) -> Fence:
        """What to write under about a group, or about what is CLUSTER's. Raises: as `Ownership.epoch`."""
        shard = shard_of(key, self._ownership.count)
        return Fence(shard, self._ownership.epoch(shard))

    @contextmanager
    def fenced(self, key: str) -> Iterator[Fence]:
        """As `fence`, for something of several writes: its shard is not given back meanwhile."""
        fence = self.fence(key)
        self._under_way[fence.shard] += 1
        try:
            yield fence
        finally:
            self._under_way[fence.shard] -= 1
            self._ended.set()

    def owns(self, group_id: str) -> bool:
        """Whether this instance owns a group's shard."""
        return shard_of(group_id, self._ownership.count) in self._ownership.owned

    def leads(self) -> bool:
        """Whether this instance owns what belongs to the whole cluster."""
        return shard_of(CLUSTER, self._ownership.count) in self._ownership.owned

    async def drain(self, shards: frozenset[int]) -> None:
        """Return when nothing is under way in these shards."""
        while any(self._under_way[shard] for shard in shards):
            self._ended.clear()
            await self._ended.wait()
