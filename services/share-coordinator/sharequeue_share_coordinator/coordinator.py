"""The share coordinator's one loop: decide what was gathered, commit it in one statement, then answer.

A state changes only once its row is durable. A commit that fails is split in halves until the culprit stands alone; one
whose outcome is lost drops the states it touched, which are read again before they are served.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue.log import fields
from sharequeue.protocol.internal import PartitionStateResult
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service import Clock
from sharequeue_share_coordinator import metrics, shard, store
from sharequeue_share_coordinator.shard import Decision, KeyState, Row

log = logging.getLogger(__name__)

AT_ONCE: Final = 2000
LOST: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # asyncpg's own confusion when the server ends a connection as it is taken into use
)

Decide = Callable[[KeyState | None], Decision]


class OwnershipLost(Exception):
    """Another share coordinator took over; this one must end."""


class Item(NamedTuple):
    """One share-partition of a request: how to decide it, given its state. `creates`: it may make the key."""

    key: SharePartitionKey
    decide: Decide
    creates: bool


class Work(NamedTuple):
    """One request that waits for the next commit."""

    items: Sequence[Item]
    done: "asyncio.Future[list[PartitionStateResult]]"


class _Entry:
    __slots__ = ("key_id", "state")

    def __init__(self, key_id: int | None, state: KeyState | None) -> None:
        self.key_id = key_id
        self.state = state


class ShareCoordinator:
    """Owns the shard's state in memory and its rows in PostgreSQL."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        clock: Clock,
        *,
        owner: str,
        updates_per_snapshot: int,
        cold_interval_ms: int,
        prune_interval_ms: int,
        max_cached: int,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._owner = owner
        self._updates_per_snapshot = updates_per_snapshot
        self._cold_interval_ms = cold_interval_ms
        self._prune_interval_ms = prune_interval_ms
        self._max_cached = max_cached
        self._entries: OrderedDict[SharePartitionKey, _Entry] = OrderedDict()
        self._gathered: list[Work] = []
        self._wake = asyncio.Event()
        self._connection: Any = None
        self._maintenance: Any = None
        self.owner_epoch = 0
        metrics.CACHED.set_function(lambda: len(self._entries))

    async def take_over(self) -> None:
        """Become the owner; waits for the writes of a predecessor."""
        connection = await self._connect()
        self.owner_epoch = await store.take_over(connection, self._owner)
        self._connection = connection
        log.info("took over", extra=fields(owner=self._owner, owner_epoch=self.owner_epoch))

    async def ping(self) -> None:
        """Raises: OSError or asyncpg's errors: PostgreSQL does not answer. OwnershipLost."""
        connection = await self._maintenance_connection()
        if not await store.owns(connection, self.owner_epoch):
            raise OwnershipLost(f"{self._owner} is no longer the owner")

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[list[PartitionStateResult]]":
        """Decide and commit with the next gather. The future ends with the results, in order."""
        done: asyncio.Future[list[PartitionStateResult]] = asyncio.get_running_loop().create_future()
        self._gathered.append(Work(items, done))
        self._wake.set()
        return done

    async def run(self) -> None:
        """Commit what was gathered, for ever. Raises: OwnershipLost."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered:
                gathered, self._gathered = self._gathered[:AT_ONCE], self._gathered[AT_ONCE:]
                await self._commit(gathered)
                while len(self._entries) > self._max_cached:
                    self._entries.popitem(last=False)

    async def _commit(self, gathered: Sequence[Work]) -> None:
        try:
            await self._load(gathered)
        except (*LOST, TimeoutError, asyncpg.PostgresError) as fault:
            self._connection = None
            self._answer_unavailable(gathered, f"the state cannot be read: {fault!r}")
            return
        tentative: dict[SharePartitionKey, KeyState | None] = {}
        rows: list[tuple[int, Row]] = []
        answers = []
        for work in gathered:
            results = []
            for key, decide, _ in work.items:
                entry = self._entries[key]
                self._entries.move_to_end(key)
                state = tentative.get(key, entry.state)
                result, row = decide(state)
                if row is not None:
                    assert entry.key_id is not None, "only Initialize makes rows for a key that has none"
                    tentative[key] = shard.replay(state, row, self._updates_per_snapshot)
                    rows.append((entry.key_id, row))
                results.append(result)
            answers.append(results)
        if rows and not await self._append(gathered, rows, list(tentative)):
            return
        for key, state in tentative.items():
            self._entries[key].state = state
        for work, results in zip(gathered, answers, strict=True):
            if not work.done.done():
                work.done.set_result(results)

    async def _append(
        self, gathered: Sequence[Work], rows: Sequence[tuple[int, Row]], keys: Sequence[SharePartitionKey]
    ) -> bool:
        started = time.perf_counter()
        try:
            owned = await store.append(self._connection, self.owner_epoch, rows)
        except (*LOST, TimeoutError, asyncpg.QueryCanceledError) as fault:
            self._connection = None
            for key in keys:
                self._entries.pop(key, None)
            self._answer_unavailable(gathered, f"the write is not known to be durable: {fault!r}")
            return False
        except asyncpg.PostgresError as fault:
            if len(gathered) == 1:
                log.error("a write was refused", extra=fields(cause=repr(fault)))
                self._answer(gathered, -1, f"the write was refused: {fault}")
            else:
                await self._commit(gathered[: len(gathered) // 2])
                await self._commit(gathered[len(gathered) // 2 :])
            return False
        if not owned:
            self._answer(gathered, 16, "another share coordinator took over")
            raise OwnershipLost(f"{self._owner} lost the shard to a later owner")
        metrics.WRITE_SECONDS.observe(time.perf_counter() - started)
        metrics.COMMIT_ROWS.observe(len(rows))
        metrics.WRITES.inc(len(rows))
        return True

    async def _load(self, gathered: Sequence[Work]) -> None:
        """Have the state of every share-partition in memory; make the keys that may be initialised now."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        missing = {item.key for work in gathered for item in work.items if item.key not in self._entries}
        wanted = {
            item.key
            for work in gathered
            for item in work.items
            if item.creates and (item.key in missing or self._entries[item.key].key_id is None)
        }
        if wanted:
            await store.make_keys(self._connection, sorted(wanted))
        to_load = sorted(missing | wanted)
        if not to_load:
            return
        loaded = await store.load(self._connection, to_load)
        for key in to_load:
            found = loaded.get(key)
            state: KeyState | None = None
            for row in found.rows if found else ():
                state = shard.replay(state, row, self._updates_per_snapshot)
            self._entries[key] = _Entry(found.key_id if found else None, state)

    def _answer_unavailable(self, gathered: Sequence[Work], message: str) -> None:
        log.warning("state cannot be served", extra=fields(cause=message, requests=len(gathered)))
        self._answer(gathered, 15, message)

    @staticmethod
    def _answer(gathered: Sequence[Work], error_code: int, message: str) -> None:
        for work in gathered:
            if not work.done.done():
                results = [shard.fault(item.key.partition, error_code, message).result for item in work.items]
                work.done.set_result(results)

    # Housekeeping

    async def delete_topic(self, topic_id: str) -> None:
        """Tombstones for all share-partitions of a topic. Repeatable."""
        connection = await self._maintenance_connection()
        while keys := await store.keys_of_topic(connection, topic_id, AT_ONCE):
            await self.submit([Item(key, _tombstone, False) for key in keys])

    async def housekeep(self) -> None:
        """Cold snapshots and pruning, for ever."""
        while True:
            await asyncio.sleep(self._prune_interval_ms / 1000)
            try:
                connection = await self._maintenance_connection()
                cold = await store.cold_keys(connection, self._cold_interval_ms, AT_ONCE)
                if cold:
                    await self.submit([Item(key, self._cold_snapshot, False) for key in cold])
                removed, last = await store.prune(connection)
                metrics.PRUNED_ROWS.inc(removed)
                metrics.LAST_PRUNED.set(last)
            except (*LOST, TimeoutError, asyncpg.PostgresError) as fault:
                self._maintenance = None
                log.warning("housekeeping failed", extra=fields(cause=repr(fault)))

    def _cold_snapshot(self, state: KeyState | None) -> Decision:
        row = None if state is None else shard.cold_snapshot(state, self._cold_interval_ms, self._clock.now_ms())
        return Decision(shard.done(0), row)

    async def _maintenance_connection(self) -> Any:
        if self._maintenance is None or self._maintenance.is_closed():
            self._maintenance = await self._connect()
        return self._maintenance


def _tombstone(state: KeyState | None) -> Decision:
    return Decision(shard.done(0), None if state is None else Row(kind=shard.TOMBSTONE))
