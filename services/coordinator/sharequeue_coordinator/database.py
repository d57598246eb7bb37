"""Reading and writing schema `groups`. Every write is under a fence: a shard,
and the epoch that this instance owns it under.

fence = database.fence(group_id)            raises if another instance owns the shard
await database.query(store.save, fence, …)  PostgreSQL raises NOT_HELD if another instance has taken it since
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.errors import NotCoordinator
from sharequeue.protocol.shards import CLUSTER, shard_of
from sharequeue.service.postgres_faults import FAULTS, check_replicated, end_if_unreplicated, sqlstate_of, terminated_at
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue.service.time_line import TimeLine
from sharequeue_http.log import REQUEST

Connection = Any  # asyncpg ships no types

NOT_HELD: Final = "SQ016"
"""The SQLSTATE of a write under an owner epoch that is no longer the present one."""
POOL_S: Final = 5
REQUEST_S: Final = 8.0
"""For all queries of a request. It is less than the deadline of a gateway's call, so the gateway hears that PostgreSQL
does not answer."""
LEAST_S: Final = 1.0
"""For a query after that time: it looks for the outcome of a write that got no answer."""
OWN_S: Final = 15.0
"""For a query of the coordinator's own work, and of work that goes on after its request."""
TRY_WRITE: Final = f"""
INSERT INTO groups.share_group_configs (group_id, config)
VALUES (gen_random_uuid()::text, to_jsonb(encode({SOME_BYTES}, 'base64')))
"""


class Fence(NamedTuple):
    """A shard and the epoch under which this instance owns it."""

    shard: int
    owner_epoch: int


class Database:
    """Runs the functions of the stores. `ownership` says which shards this instance may write."""

    def __init__(self, pool: Any, ownership: Ownership, time_line: TimeLine, health: PostgresHealth) -> None:
        self._pool = pool
        self.time_line: Final = time_line
        self.health = health
        self._ownership = ownership
        self._under_way: Counter[int] = Counter()
        self._ended = asyncio.Event()

    async def query(self, function: Any, *arguments: Any) -> Any:
        """Run a function of a store.

        Raises: StorageError: the database failed. NotCoordinator: another instance owns the shard; nothing is written.
        """
        try:
            seconds = _seconds()
            number = self.time_line.number
            end_s = asyncio.get_running_loop().time() + seconds
            async with self._pool.acquire(timeout=min(POOL_S, seconds)) as connection:
                self.time_line.check(number)
                connection.add_log_listener(end_if_unreplicated)
                try:
                    with terminated_at(connection, end_s):
                        result = await function(connection, *arguments)
                        check_replicated(connection)
                        return result
                finally:
                    with suppress(asyncpg.InterfaceError):  # a terminated connection has left the pool
                        connection.remove_log_listener(end_if_unreplicated)
        except FAULTS as fault:
            if sqlstate_of(fault) == NOT_HELD:
                self._ownership.look_again()
                raise NotCoordinator("another group coordinator took over") from fault
            raise self.health.error(fault, "the group coordinator's database cannot be used") from fault

    def fence(self, key: str) -> Fence:
        """The fence for writes about a group, or about the cluster (`CLUSTER`). Raises: as `Ownership.epoch`."""
        shard = shard_of(key, self._ownership.count)
        return Fence(shard, self._ownership.epoch(shard))

    @contextmanager
    def fenced(self, key: str) -> Iterator[Fence]:
        """As `fence`, for several writes: the shard is not given back before they are done."""
        fence = self.fence(key)
        self._under_way[fence.shard] += 1
        try:
            yield fence
        finally:
            self._under_way[fence.shard] -= 1
            self._ended.set()

    def owns(self, group_id: str) -> bool:
        return shard_of(group_id, self._ownership.count) in self._ownership.owned

    def leads(self) -> bool:
        """Return whether this instance owns the cluster's shard."""
        return shard_of(CLUSTER, self._ownership.count) in self._ownership.owned

    async def drain(self, shards: frozenset[int]) -> None:
        """Return when no `fenced` block of these shards is open."""
        while any(self._under_way[shard] for shard in shards):
            self._ended.clear()
            await self._ended.wait()


def _seconds() -> float:
    """The time for a query that begins now."""
    request = REQUEST.get()
    if request is None:
        return OWN_S
    left_s = request.began_s + REQUEST_S - time.monotonic()
    if left_s <= -2 * LEAST_S:  # the request has had its answer, and its work goes on
        return OWN_S
    return max(left_s, LEAST_S)
