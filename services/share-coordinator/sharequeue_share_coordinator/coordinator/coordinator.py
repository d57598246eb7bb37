"""The share coordinator's one loop: decide what was gathered, commit it in one statement, then answer.

A request that finds nothing under way is committed by its own task. As long as commits have company, the loop does
them: all requests of one turn of the event loop share a commit.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from sharequeue.background import IN_COMPANY
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.errors import CoordinatorLoadInProgress, NotCoordinator, StorageError
from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service.postgres_faults import FAULTS, Meaning
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue.service.time_line import TimeLine
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from sharequeue_http.log import REQUEST, Tally, fields
from sharequeue_share_coordinator import metrics, store
from sharequeue_share_coordinator.coordinator.operations import Decided, Operation, WaitingRequest
from sharequeue_share_coordinator.coordinator.state_cache import CachedPartition, StateCache
from sharequeue_share_coordinator.settings import Settings
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import PART, TOMBSTONE, UPDATE, encode_row, replay
from sharequeue_share_coordinator.share_state.shard import Decision
from sharequeue_share_coordinator.store import StoredRow

log = logging.getLogger(__name__)

REQUESTS_PER_COMMIT: Final = 2000
TRY_WRITE: Final = f"INSERT INTO share_state.share_records (key_id, kind, record) VALUES (-1, 0, {SOME_BYTES})"
MOST_ENCODED_HERE: Final = 2000
"""Batches. A snapshot or an update of more is encoded in a thread, so that the event loop does not stop."""
BEING_HANDED_OVER: Final = CoordinatorLoadInProgress("the share-partition is being handed over")
MOST_LOGGED: Final = 20
"""Request ids in one log line."""


class ShareCoordinator:
    """Serves the shards that `ownership` says are owned: their states in memory, their rows in PostgreSQL."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        ownership: Ownership,
        time_line: TimeLine,
        settings: Settings,
    ) -> None:
        self._connect = connect
        self.health = PostgresHealth(connect, TRY_WRITE)
        self._ownership = ownership
        self.time_line: Final = time_line
        self.updates_per_snapshot = settings.snapshot_update_records_per_snapshot
        self._max_cached = settings.max_cached_share_partitions
        self._sized = not settings.kafka_defaults
        """Whether bytes decide, beside the number of updates, when a snapshot is due."""
        self.states = StateCache(ownership, updates_per_snapshot=self.updates_per_snapshot, sized=self._sized)
        self._gathered: list[WaitingRequest] = []
        self._wake = asyncio.Event()
        self._busy = False
        """Whether a commit is under way."""
        self._in_company = IN_COMPANY
        """How many further commits are not done by a request itself."""
        self._connection: Any = None
        self._superseded: set[int] = set()
        self._deleted: dict[SharePartitionKey, int] = {}
        self._stateless: dict[SharePartitionKey, int] = {}
        self._failures = Tally(log, logging.WARNING, "a commit failed, and its requests with it")
        metrics.CACHED.set_function(lambda: len(self.states.entries))

    # Requests

    def check_served(self, operations: Iterable[Operation]) -> None:
        """Raises: ApiError: why this instance serves none of these share-partitions."""
        served: int | ApiError = 0
        for operation in operations:
            (served,) = self.states.served([operation]).values()
            if isinstance(served, int):
                return
        if isinstance(served, ApiError):
            raise served

    async def commit(self, operations: Sequence[Operation]) -> list[PartitionStateResult]:
        """Decide and commit: in the task that calls this, if nothing is under way. Otherwise with the next gather.

        Returns: the results, in order, when all that was gathered before is committed too.
        """
        done: asyncio.Future[list[PartitionStateResult]] = asyncio.get_running_loop().create_future()
        alone = not (self._busy or self._in_company or self._gathered)
        self._gathered.append(WaitingRequest(operations, done, REQUEST.get()))
        if alone:
            try:
                await self._commit_next()
            except BaseException:
                done.cancel()  # nobody awaits it
                raise
        elif not self._busy:
            self._wake.set()
        return await done

    # Housekeeping

    def take_superseded(self) -> tuple[set[int], dict[SharePartitionKey, int]]:
        """Hand over the ids of keys that wrote a snapshot or a tombstone, and the keys that wrote a tombstone."""
        superseded, self._superseded = self._superseded, set()
        deleted, self._deleted = self._deleted, {}
        return superseded, deleted

    async def remove(self, stateless: Mapping[SharePartitionKey, int]) -> None:
        """Remove keys without rows before the next commit, and have one."""
        if stateless:
            self._stateless.update(stateless)
            await self.commit([])

    async def _remove_keys(self) -> None:
        """Remove the keys without rows that are in shards owned here. To a later write such a key was
        never made."""
        stateless, self._stateless = self._stateless, {}
        epochs: dict[int, int] = {}
        key_ids = []
        try:
            if self._connection is None or self._connection.is_closed():
                await self._connect_again()
            for key, key_id in stateless.items():
                of_shard = self.states.shard_of(key)
                epoch = self._ownership.owned.get(of_shard)
                if epoch is not None:
                    epochs[of_shard] = epoch
                    key_ids.append(key_id)
                    self.states.discard([key])
            await store.remove_keys(self._connection, dict(sorted(epochs.items())), key_ids)
        except FAULTS as fault:
            self._disconnect()
            log.info("keys without state were not removed", extra=fields(cause=repr(fault)))

    # The loop

    async def run(self) -> None:
        """Commit what requests gather. Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered and not self._busy:
                await self._commit_next()

    async def _commit_next(self) -> None:
        self._busy = True
        try:
            if self._stateless:
                await self._remove_keys()
            gathered = self._gathered[:REQUESTS_PER_COMMIT]
            self._gathered = self._gathered[REQUESTS_PER_COMMIT:]
            self._in_company = IN_COMPANY if len(gathered) > 1 else max(self._in_company - 1, 0)
            await self._commit(gathered)
            if len(self.states.entries) > self._max_cached:
                self.states.evict(self._max_cached)
        finally:
            self._busy = False
            if self._gathered:
                self._in_company = IN_COMPANY
                self._wake.set()

    async def _commit(self, gathered: Sequence[WaitingRequest]) -> None:
        damaged = await self._load(gathered)
        if damaged is None:
            return
        decided = await self._decide(gathered, damaged)
        started = time.perf_counter()
        if decided.rows and not await self._append(gathered, decided):
            return
        seconds = time.perf_counter() - started
        self._apply(decided)
        for request, results in zip(gathered, decided.results, strict=True):
            if not request.done.done():
                request.done.set_result(results)
        if decided.rows:
            metrics.WRITE_SECONDS.observe(seconds)
            metrics.COMMIT_ROWS.observe(len(decided.rows))
            metrics.WRITES.inc(len(decided.rows))

    async def _load(self, gathered: Sequence[WaitingRequest]) -> dict[SharePartitionKey, CachedPartition] | None:
        """Have the states in memory. Returns: those that cannot be read; None: all requests are answered already."""
        try:
            if self._connection is None or self._connection.is_closed():
                await self._connect_again()
        except FAULTS as fault:
            meaning = self.health.note(fault)
            error = StorageError if meaning.unwritable else CoordinatorNotAvailable
            self._fail(gathered, error, "the state cannot be read", meaning)
            return None
        try:
            return await self.states.load(
                self._connection, [operation for request in gathered for operation in request.operations]
            )
        except FAULTS as fault:
            meaning = self.health.note(fault)
            if not meaning.definite:
                self._disconnect()
            await self._refuse(gathered, meaning, "the state cannot be read")
            return None

    async def _decide(
        self, gathered: Sequence[WaitingRequest], damaged: Mapping[SharePartitionKey, CachedPartition]
    ) -> Decided:
        """Decide every operation, each on the state that the ones before it leave. Changes no state."""
        decided = Decided()
        entries = self.states.entries
        served = self.states.served(operation for request in gathered for operation in request.operations)
        for request in gathered:
            results = []
            for key, decide, _ in request.operations:
                entry = damaged.get(key) or entries.get(key)
                owned = served.get(self.states.shard_of(key) if entry is None else entry.shard)
                if entry is None or not isinstance(owned, int):  # the shard is lost, or was lost during the load
                    why = owned if isinstance(owned, ApiError) else BEING_HANDED_OVER
                    results.append(shard.fault(key.partition, why, why.detail).result)
                    continue
                if key not in damaged:
                    entries.move_to_end(key)
                state = decided.states.get(key, entry.state)
                result, row = decide(state)
                if state is not None and state.damage:
                    result, row = shard.of_damaged(state, Decision(result, row))
                if row is not None:
                    assert entry.key_id is not None, (
                        "only Initialize decides a row without a state, and it makes the key"
                    )
                    large = len(row.batches) > MOST_ENCODED_HERE
                    stored, records = await asyncio.to_thread(encode_row, row) if large else encode_row(row)
                    size = sum(map(len, records)) if self._sized else 0
                    decided.states[key] = replay(state, stored, self.updates_per_snapshot, size)
                    decided.rows.append(StoredRow(entry.key_id, stored.kind, records[0]))
                    decided.rows += [StoredRow(entry.key_id, PART, record) for record in records[1:]]
                    decided.epochs[entry.shard] = owned
                    if stored.kind == TOMBSTONE:
                        decided.deleted[key] = entry.key_id
                results.append(result)
            decided.results.append(results)
        return decided

    async def _append(self, gathered: Sequence[WaitingRequest], decided: Decided) -> bool:
        """Store the rows. Returns: whether they are durable; if not, the requests are answered or committed again."""
        try:
            stored = await store.append(self._connection, dict(sorted(decided.epochs.items())), decided.rows)
            if self._connection.is_closed():  # as check_replicated, without a call for each commit
                raise asyncpg.ConnectionDoesNotExistError("the commit may not have reached the standby")
        except asyncio.CancelledError:  # of a request that the stop of the service ends
            self._disconnect()
            self.states.discard(decided.states)
            raise
        except FAULTS as fault:
            meaning = self.health.note(fault)
            if meaning.definite and not isinstance(fault, asyncpg.QueryCanceledError):
                await self._refuse(gathered, meaning, "the state cannot be written")
                return False
            self._disconnect()
            self.states.discard(decided.states)
            self._fail(gathered, CoordinatorNotAvailable, "the write is not known to be durable", meaning)
            return False
        if not stored:
            self._ownership.look_again()
            self._answer_all(gathered, NotCoordinator, "another share coordinator took over")
            return False
        return True

    def _apply(self, decided: Decided) -> None:
        """Change the states in memory: the rows are durable."""
        for key, state in decided.states.items():
            entry = self.states.entries.get(key)
            if entry is None:  # the shard was lost since, or the rows could not be read
                continue
            entry.state = state
        self._superseded.update(row.key_id for row in decided.rows if row.kind != UPDATE)
        self._deleted.update(decided.deleted)

    # Failures

    async def _refuse(self, gathered: Sequence[WaitingRequest], meaning: Meaning, what: str) -> None:
        """PostgreSQL refused the commit. If one request may be the cause, commit each half, until it is found alone."""
        if meaning.passes:
            self._fail(gathered, StorageError if meaning.definite else CoordinatorNotAvailable, what, meaning)
        elif len(gathered) == 1:
            self._fail(gathered, ApiError, what, meaning)
        else:
            await self._commit(gathered[: len(gathered) // 2])
            await self._commit(gathered[len(gathered) // 2 :])

    def _fail(self, gathered: Sequence[WaitingRequest], error: type[ApiError], what: str, meaning: Meaning) -> None:
        message = f"{what}: {meaning.sentence}"
        request_ids = [request.context.request_id for request in gathered if request.context is not None]
        if request_ids:
            self._failures.note(what, len(request_ids), cause=message, request_ids=request_ids[:MOST_LOGGED])
        self._answer_all(gathered, error, message)

    @staticmethod
    def _answer_all(gathered: Sequence[WaitingRequest], error: type[ApiError], message: str) -> None:
        for request in gathered:
            if not request.done.done():
                partitions = (operation.key.partition for operation in request.operations)
                request.done.set_result([shard.fault(partition, error, message).result for partition in partitions])

    # The connection

    async def _connect_again(self) -> None:
        """Open a connection. It comes with higher owner epochs: they fence writes that are still on their way."""
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
            self._in_company = IN_COMPANY  # `run` connects
