"""The share coordinator's one loop: decide what was gathered, commit it in one statement, then answer.

A state changes only once its row is durable. A commit that fails is split in halves until the culprit stands alone; one
whose outcome is lost drops the states it touched, which are read again, under higher owner epochs, before they are
served: the lost write is then part of what is read, or can never happen. One commit is for all shards that are owned.
"""

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.internal import PartitionStateResult
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service.postgres_faults import FAULTS, Meaning
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue_share_coordinator import metrics, store
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.shard import Decide, Decision, KeyState, Row

log = logging.getLogger(__name__)

AT_ONCE: Final = 2000
PRUNING_SHARD: Final = 0
"""Its owner sweeps the rows of all shards that a newer snapshot holds."""
ROUNDS_PER_SWEEP: Final = 20
"""Of so many rounds of housekeeping, the first after a start among them, one reads whole tables."""
KEYS_AT_ONCE: Final = 20_000
UNAVAILABLE: Final = 15
NOT_STORED: Final = 56
"""PostgreSQL can write or read nothing just now, whatever is asked; it surely did not happen."""
TRY_WRITE: Final = f"INSERT INTO share_state.share_records (key_id, kind, record) VALUES (-1, 0, {SOME_BYTES})"


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
    __slots__ = ("key_id", "shard", "state")

    def __init__(self, shard: int, key_id: int | None, state: KeyState | None) -> None:
        self.shard = shard
        self.key_id = key_id
        self.state = state


class ShareCoordinator:
    """Serves the shards that `ownership` says are owned: their state in memory, their rows in PostgreSQL."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        ownership: Ownership,
        clock: Clock,
        *,
        updates_per_snapshot: int,
        cold_interval_ms: int,
        prune_interval_ms: int,
        max_cached: int,
    ) -> None:
        self._connect = connect
        self.health = PostgresHealth(connect, TRY_WRITE)
        self._ownership = ownership
        self._clock = clock
        self._updates_per_snapshot = updates_per_snapshot
        self._cold_interval_ms = cold_interval_ms
        self._prune_interval_ms = prune_interval_ms
        self._max_cached = max_cached
        self._entries: OrderedDict[SharePartitionKey, _Entry] = OrderedDict()
        self._gathered: list[Work] = []
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection: Any = None
        self._maintenance: Any = None
        self._superseded: set[int] = set()
        """Ids of keys that wrote a snapshot or a tombstone since the last round of housekeeping."""
        self._deleted: dict[SharePartitionKey, int] = {}
        """Those that wrote a tombstone."""
        self._stateless: dict[SharePartitionKey, int] = {}
        """Keys whose rows are gone. They go too, between two commits."""
        metrics.CACHED.set_function(lambda: len(self._entries))

    def refusal(self, items: Iterable[Item]) -> ApiError | None:
        """Why none of these share-partitions can be served here, if that is so."""
        refusal = None
        for item in items:
            try:
                self._ownership.epoch(self._shard(item.key))
            except ApiError as error:
                refusal = error
            else:
                return None
        return refusal

    def _shard(self, key: SharePartitionKey) -> int:
        entry = self._entries.get(key)
        return shard_of(share_key(key), self._ownership.count) if entry is None else entry.shard

    def forget(self, shards: frozenset[int]) -> None:
        """These shards are another's now, or were meanwhile."""
        for key in [key for key, entry in self._entries.items() if entry.shard in shards]:
            del self._entries[key]

    async def drain(self, _: frozenset[int]) -> None:
        """Return when what was gathered is committed."""
        await self.submit([])

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[list[PartitionStateResult]]":
        """Decide and commit with the next gather. The future ends with the results, in order."""
        done: asyncio.Future[list[PartitionStateResult]] = asyncio.get_running_loop().create_future()
        self._gathered.append(Work(items, done))
        if not self._wake.done():
            self._wake.set_result(None)
        return done

    async def run(self) -> None:
        """Commit what was gathered, for ever."""
        while True:
            await self._wake
            self._wake = asyncio.get_running_loop().create_future()
            if self._stateless:
                await self._remove_keys()
            while self._gathered:
                gathered, self._gathered = self._gathered[:AT_ONCE], self._gathered[AT_ONCE:]
                await self._commit(gathered)
                while len(self._entries) > self._max_cached:
                    self._entries.popitem(last=False)

    async def _commit(self, gathered: Sequence[Work]) -> None:
        try:
            await self._connected()
        except FAULTS as fault:
            meaning = self.health.note(fault)
            error_code = NOT_STORED if meaning.unwritable else UNAVAILABLE
            self._answer_failed(gathered, error_code, "the state cannot be read", meaning)
            return
        try:
            damaged = await self._load(gathered)
        except FAULTS as fault:
            meaning = self.health.note(fault)
            if not meaning.definite:
                self._disconnect()
            await self._refuse(gathered, meaning, "the state cannot be read")
            return
        tentative: dict[SharePartitionKey, KeyState | None] = {}
        rows: list[tuple[int, Row]] = []
        deleted: dict[SharePartitionKey, int] = {}
        epochs: dict[int, int] = {}
        served = self._served(gathered)
        answers = []
        for work in gathered:
            results = []
            for key, decide, _ in work.items:
                entry = damaged.get(key) or self._entries.get(key)
                owned = served.get(self._shard(key) if entry is None else entry.shard)
                if entry is None or not isinstance(owned, int):
                    results.append(shard.refused(key.partition, owned))
                    continue
                if key not in damaged:
                    self._entries.move_to_end(key)
                state = tentative.get(key, entry.state)
                result, row = decide(state)
                if state is not None and state.damage:
                    result, row = shard.of_damaged(state, Decision(result, row))
                if row is not None:
                    assert entry.key_id is not None, "only Initialize makes rows for a key that has none"
                    tentative[key] = shard.replay(state, row, self._updates_per_snapshot)
                    rows.append((entry.key_id, row))
                    if row.kind == shard.TOMBSTONE:
                        deleted[key] = entry.key_id
                    epochs[entry.shard] = owned
                results.append(result)
            answers.append(results)
        started = time.perf_counter()
        if rows and not await self._append(gathered, epochs, rows, list(tentative)):
            return
        seconds = time.perf_counter() - started
        for key, state in tentative.items():
            if key in self._entries:  # or its shard is gone: what was committed is the next owner's; or it was damaged
                self._entries[key].state = state
        self._superseded.update(key_id for key_id, row in rows if row.kind != shard.UPDATE)
        self._deleted.update(deleted)
        for work, results in zip(gathered, answers, strict=True):
            if not work.done.done():
                work.done.set_result(results)
        if rows:
            asyncio.get_running_loop().call_soon(metrics.committed, seconds, len(rows))  # once the answers are sent

    def _served(self, gathered: Sequence[Work]) -> dict[int, int | ApiError]:
        """The epoch to serve each shard under, or why it is not served."""
        served: dict[int, int | ApiError] = {}
        for work in gathered:
            for item in work.items:
                of_shard = self._shard(item.key)
                if of_shard not in served:
                    try:
                        served[of_shard] = self._ownership.epoch(of_shard)
                    except ApiError as error:
                        served[of_shard] = error
        return served

    async def _append(
        self,
        gathered: Sequence[Work],
        epochs: dict[int, int],
        rows: Sequence[tuple[int, Row]],
        keys: Sequence[SharePartitionKey],
    ) -> bool:
        try:
            held = await store.append(self._connection, dict(sorted(epochs.items())), rows)
        except FAULTS as fault:
            meaning = self.health.note(fault)
            if meaning.definite and not isinstance(fault, asyncpg.QueryCanceledError):
                await self._refuse(gathered, meaning, "the state cannot be written")
                return False
            self._disconnect()
            for key in keys:
                self._entries.pop(key, None)
            self._answer_failed(gathered, UNAVAILABLE, "the write is not known to be durable", meaning)
            return False
        if not held:
            self._ownership.look_again()
            self._answer(gathered, 16, "another share coordinator took over")
            return False
        return True

    async def _refuse(self, gathered: Sequence[Work], meaning: Meaning, what: str) -> None:
        """PostgreSQL refuses all, or something of this: try in halves then; what stands alone is the culprit."""
        if meaning.passes:
            self._answer_failed(gathered, NOT_STORED if meaning.definite else UNAVAILABLE, what, meaning)
        elif len(gathered) == 1:
            self._answer_failed(gathered, -1, what, meaning)
        else:
            await self._commit(gathered[: len(gathered) // 2])
            await self._commit(gathered[len(gathered) // 2 :])

    async def _connected(self) -> None:
        """Have a connection. A new one comes with higher owner epochs: a write that got lost may still be on its way."""
        if self._connection is not None and not self._connection.is_closed():
            return
        connection = await self._connect()
        try:
            await self._ownership.raise_epochs(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _load(self, gathered: Sequence[Work]) -> dict[SharePartitionKey, _Entry]:
        """Have the state of every share-partition that is served here in memory; make the keys that may be initialised.

        Returns: those whose rows cannot be read. They are not kept: somebody may mend the rows.
        """
        unknown: dict[SharePartitionKey, bool] = {}
        for work in gathered:
            for key, _, creates in work.items:
                entry = self._entries.get(key)
                make = creates and (entry is None or entry.key_id is None)
                if entry is None or make:
                    unknown[key] = make or unknown.get(key, False)
        if not unknown:
            return {}
        served = self._served(gathered)
        to_load = sorted(key for key in unknown if isinstance(served[self._shard(key)], int))
        wanted = [key for key in to_load if unknown[key]]
        if wanted:
            await store.make_keys(self._connection, wanted)
        loaded = await store.load(self._connection, to_load) if to_load else {}
        damaged: dict[SharePartitionKey, _Entry] = {}
        for key in to_load:
            found = loaded.get(key)
            of_shard = self._shard(key)
            try:
                state = store.state_of(found, self._updates_per_snapshot) if found else None
            except store.UnreadableRow as fault:
                state = shard.damaged(share_key(key), str(fault))
                log.error("a share-partition cannot be served", extra=fields(cause=state.damage))
                self._entries.pop(key, None)
            if self._ownership.owned.get(of_shard) == served[of_shard]:  # or another may have written since
                kept = damaged if state is not None and state.damage else self._entries
                kept[key] = _Entry(of_shard, found.key_id if found else None, state)
        return damaged

    def _answer_failed(self, gathered: Sequence[Work], error_code: int, what: str, meaning: Meaning) -> None:
        self._answer(gathered, error_code, f"{what}: {meaning.sentence}")

    @staticmethod
    def _answer(gathered: Sequence[Work], error_code: int, message: str) -> None:
        for work in gathered:
            if not work.done.done():
                results = [shard.fault(item.key.partition, error_code, message).result for item in work.items]
                work.done.set_result(results)

    # Housekeeping

    async def delete_topic(self, topic_id: str) -> list[int]:
        """Tombstones for all share-partitions of a topic that are in shards owned here. Repeatable.

        Returns: those shards that were owned all the while. Raises: OSError: tombstones could not be written.
        """
        before = dict(self._ownership.owned)
        await self.submit([])  # what is under way comes first, so that its keys are seen
        connection = await self._maintenance_connection()
        above = 0
        while found := await store.keys_of_topic(connection, topic_id, above, AT_ONCE):
            above = found[-1][0]
            own = [Item(key, shard.tombstone, False) for _, key in found if self._shard(key) in before]
            for result in await self.submit(own):
                if result.error_code not in (0, 14, 16):
                    raise ConnectionError(result.error_message)
        return [of_shard for of_shard, epoch in before.items() if self._ownership.owned.get(of_shard) == epoch]

    async def housekeep(self) -> None:
        """Cold snapshots and pruning, for ever. Most rounds look only at keys that wrote what makes rows superfluous."""
        for turn in itertools.count():
            await asyncio.sleep(self._prune_interval_ms / 1000)
            try:
                connection = await self._maintenance_connection()
                if turn % ROUNDS_PER_SWEEP == 0:
                    await self._sweep(connection)
                else:
                    await self._prune(connection)
            except FAULTS as fault:
                self._maintenance = None
                log.warning("housekeeping failed", extra=fields(cause=repr(fault)))

    async def _prune(self, connection: Any) -> None:
        superseded, self._superseded = self._superseded, set()
        deleted, self._deleted = self._deleted, {}
        if superseded:
            metrics.PRUNED_ROWS.inc(await store.prune_keys(connection, list(superseded)))
        self._leave(deleted)

    async def _sweep(self, connection: Any) -> None:
        """Read whole tables: for what went cold, and for what earlier owners and failed rounds left behind."""
        cold = await store.cold_keys(connection, self._cold_interval_ms, AT_ONCE)
        own = [key for key in cold if self._shard(key) in self._ownership.owned]
        if own:
            await self.submit([Item(key, self._cold_snapshot, False) for key in own])
        if PRUNING_SHARD in self._ownership.owned:
            removed, last = await store.prune(connection)
            metrics.PRUNED_ROWS.inc(removed)
            metrics.LAST_PRUNED.set(last)
        self._leave(await store.keys_without_state(connection, KEYS_AT_ONCE))

    def _leave(self, stateless: Mapping[SharePartitionKey, int]) -> None:
        if stateless:
            self._stateless.update(stateless)
            self.submit([])

    async def _remove_keys(self) -> None:
        """Remove keys without rows, as far as they are ours. Who writes to one afterwards finds it missing, as never made."""
        stateless, self._stateless = self._stateless, {}
        epochs: dict[int, int] = {}
        key_ids = []
        try:
            await self._connected()
            for key, key_id in stateless.items():
                of_shard = self._shard(key)
                epoch = self._ownership.owned.get(of_shard)
                if epoch is not None:
                    epochs[of_shard] = epoch
                    key_ids.append(key_id)
                    self._entries.pop(key, None)
            await store.remove_keys(self._connection, dict(sorted(epochs.items())), key_ids)
        except FAULTS as fault:
            self._disconnect()
            log.info("keys without state stay behind", extra=fields(cause=repr(fault)))

    def _cold_snapshot(self, state: KeyState | None) -> Decision:
        row = None if state is None else shard.cold_snapshot(state, self._cold_interval_ms, self._clock.now_ms())
        return Decision(shard.done(0), row)

    async def _maintenance_connection(self) -> Any:
        if self._maintenance is None or self._maintenance.is_closed():
            self._maintenance = await self._connect()
        return self._maintenance
