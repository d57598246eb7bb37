"""The share coordinator's one loop: decide what was gathered, commit it in one statement, then answer.

A state changes only once its row is durable. A commit that fails is split in halves until the culprit stands alone; one
whose outcome is lost drops the states it touched, which are read again, under a higher owner epoch, before they are
served: the lost write is then part of what is read, or can never happen.
"""

import asyncio
import logging
import secrets
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
        self._owner = f"{owner}/{secrets.token_hex(4)}"  # a restarted process is another owner
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
            await self._connected()
            await self._load(gathered)
        except OwnershipLost:
            self._answer(gathered, 16, "another share coordinator took over")
            raise
        except asyncpg.DataError as fault:
            await self._refuse(gathered, fault)
            return
        except (*LOST, asyncpg.PostgresError) as fault:
            self._disconnect()
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
        except (*LOST, asyncpg.QueryCanceledError) as fault:
            self._disconnect()
            for key in keys:
                self._entries.pop(key, None)
            self._answer_unavailable(gathered, f"the write is not known to be durable: {fault!r}")
            return False
        except asyncpg.PostgresError as fault:
            await self._refuse(gathered, fault)
            return False
        if not owned:
            self._answer(gathered, 16, "another share coordinator took over")
            raise OwnershipLost(f"{self._owner} lost the shard to a later owner")
        metrics.WRITE_SECONDS.observe(time.perf_counter() - started)
        metrics.COMMIT_ROWS.observe(len(rows))
        metrics.WRITES.inc(len(rows))
        return True

    async def _refuse(self, gathered: Sequence[Work], fault: asyncpg.PostgresError) -> None:
        """PostgreSQL refuses something of this: try in halves; what stands alone is the culprit."""
        if len(gathered) == 1:
            log.error("a request was refused", extra=fields(cause=repr(fault)))
            self._answer(gathered, -1, f"the request was refused: {fault}")
        else:
            await self._commit(gathered[: len(gathered) // 2])
            await self._commit(gathered[len(gathered) // 2 :])

    async def _connected(self) -> None:
        """Have a connection. A new one comes with a higher owner epoch: a write that got lost may still be on its way."""
        if self._connection is not None and not self._connection.is_closed():
            return
        connection = await self._connect()
        try:
            owner_epoch = await store.renew(connection, self._owner)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        if owner_epoch is None:
            raise OwnershipLost(f"{self._owner} lost the shard to a later owner")
        self.owner_epoch = owner_epoch

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _load(self, gathered: Sequence[Work]) -> None:
        """Have the state of every share-partition in memory; make the keys that may be initialised now."""
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
        """Tombstones for all share-partitions of a topic. Repeatable. Raises: OSError: they could not be written."""
        await self.submit([])  # what is under way comes first, so that its keys are seen
        connection = await self._maintenance_connection()
        while keys := await store.keys_of_topic(connection, topic_id, AT_ONCE):
            for result in await self.submit([Item(key, _tombstone, False) for key in keys]):
                if result.error_code:
                    raise ConnectionError(result.error_message)

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
            except (*LOST, asyncpg.PostgresError) as fault:
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
