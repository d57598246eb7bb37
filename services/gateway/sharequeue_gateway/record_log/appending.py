"""Appends: all that wait share one commit; whoever is refused there takes the partition's lock and tries again.

The fast path is one statement for everything gathered. It inserts only where nobody else appends and where the end is
what this gateway believes it to be, so a stale writer is refused. The slow path is a transaction of its own: locks in
one order, the ends read under them. A commit whose answer was lost is looked up by its append id before anybody is told.

An append waits for its turn as long as the deadline at most; then the deadline begins. What has not begun surely did not
happen. Large ones go one after another, so that they share neither the deadline nor the memory.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue import background
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, InvalidRequest, RequestTimedOut, StorageError, UnknownTopicOrPartition
from sharequeue.service.postgres_faults import FAULTS, LOST, meaning_of
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue_gateway.record_log import dead_letter_store, store
from sharequeue_gateway.record_log.cache import BatchCache
from sharequeue_gateway.record_log.connections import LEAST_S, Connections
from sharequeue_gateway.record_log.log import AppendResult, DeadLetterRow, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.record_batch import RecordBatch

log = logging.getLogger(__name__)

AT_ONCE: Final = 512
AT_ONCE_BYTES: Final = 8 << 20
"""What a commit of several appends holds at most; a single one may be larger."""
LARGE_RECORD_BYTES: Final = 64 * 1024
"""Records that are larger on average are kept once: as their batch, of which their tails become views."""
LARGE_PARTITIONS: Final = 100
"""An append to more partitions, or of more than AT_ONCE_BYTES, is large."""

Place = tuple[str, int]


class Waiting(NamedTuple):
    """One append to one partition that waits for the next commit. `turn_by`: when it has waited too long."""

    append: PartitionAppend
    append_id: uuid.UUID
    done: "asyncio.Future[int]"
    size: int
    turn_by: float


class Appender:
    """Writes record batches. `run` must be running."""

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, Any]],
        connections: Connections,
        cache: BatchCache,
        learn: Callable[[Place, int, int], None],
        on_append: Callable[[str, int], None],
        on_records: Callable[[str, int, int], None],
        health: PostgresHealth,
        deadline_s: float,
    ) -> None:
        self._connect = connect
        self._connections = connections
        self._cache = cache
        self._learn = learn
        self._on_append = on_append
        self._on_records = on_records
        self._health = health
        self._deadline_s = deadline_s
        self._gathered: deque[Waiting] = deque()
        self._behind: dict[Place, list[Waiting]] = {}
        """By partition whose end is being learned: what is gathered again once it is known."""
        self._wake = asyncio.Event()
        self._large = asyncio.Lock()
        self._connection: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def append(self, appends: Sequence[PartitionAppend], key: IdempotencyKey | None) -> AppendResult:
        if key is None and len(appends) == 1:
            done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            turn_by = time.monotonic() + self._deadline_s
            self._gathered.append(Waiting(appends[0], uuid.uuid4(), done, _size(appends), turn_by))
            self._wake.set()
            return AppendResult((await done,), None)
        return await asyncio.shield(
            background.start(self._tasks, self._append_slowly(appends, key, uuid.uuid4(), _size(appends)))
        )

    # The fast path

    async def run(self) -> None:
        """Commit what was gathered, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered:
                now = time.monotonic()
                await self._commit(self._take(now), now + self._deadline_s)

    def _take(self, now: float) -> list[Waiting]:
        """What the next commit is to hold. Those that waited for too long are refused."""
        taken: list[Waiting] = []
        size = 0
        while self._gathered and len(taken) < AT_ONCE:
            waiting = self._gathered[0]
            if waiting.turn_by < now:
                _refuse(waiting, _not_in_time())
            elif taken and size + waiting.size > AT_ONCE_BYTES:
                break
            else:
                taken.append(waiting)
                size += waiting.size
            self._gathered.popleft()
        return taken

    async def _commit(self, gathered: Sequence[Waiting], deadline: float) -> None:
        """One commit for all of them; where it fails, halves, until the culprit stands alone."""
        ends: dict[Place, int] = {}
        batches: list[tuple[str, int, RecordBatch, uuid.UUID]] = []
        by_id: dict[uuid.UUID, tuple[Waiting, RecordBatch]] = {}
        for waiting in gathered:
            append = waiting.append
            place = (append.topic_id, append.partition)
            end = ends.get(place)
            if end is None:
                known = self._cache.partition(place)
                end = -1 if known is None else known.log_end_offset
            if end < 0:
                self._learn_end(place, waiting, deadline)
                continue
            batch = RecordBatch.encode(end, append.tails, append.max_timestamp_ms, append.for_group)
            if batch.size > LARGE_RECORD_BYTES * batch.record_count:
                append.tails[:] = batch.tails()
            ends[place] = batch.last_offset + 1
            batches.append((append.topic_id, append.partition, batch, waiting.append_id))
            by_id[waiting.append_id] = (waiting, batch)
        if not batches:
            return
        # half of the time that is left: in the other half it is looked up whether this try happened
        try_until = (time.monotonic() + deadline) / 2
        try:
            if self._connection is None or self._connection.is_closed():
                async with asyncio.timeout(max(try_until - time.monotonic(), LEAST_S)):
                    self._connection = await self._connect()
        except FAULTS as fault:
            log.warning("no connection to append with", extra=fields(appends=len(by_id), cause=repr(fault)))
            for waiting, _ in by_id.values():
                self._fall_back(waiting, deadline)
            return
        try:
            inserted = await store.append(self._connection, batches, max(try_until - time.monotonic(), LEAST_S))
        except asyncpg.UniqueViolationError:
            for waiting, _ in by_id.values():
                self._fall_back(waiting, deadline)
            return
        except LOST as fault:
            self._connection.terminate()
            self._connection = None
            log.warning("append lost its connection", extra=fields(appends=len(by_id), cause=repr(fault)))
            for waiting, batch in by_id.values():
                self._fall_back(waiting, deadline, batch.base_offset)
            return
        except (asyncpg.PostgresError, ValueError, OverflowError) as fault:
            if len(by_id) == 1 or meaning_of(fault).passes:  # else one of them is at fault
                for waiting, _ in by_id.values():
                    _refuse(waiting, self._health.error(fault, "nothing was appended", definite=True))
                return
            halves = [waiting for waiting, _ in by_id.values()]
            await self._commit(halves[: len(halves) // 2], deadline)
            await self._commit(halves[len(halves) // 2 :], deadline)
            return
        places = []
        for append_id, (waiting, batch) in by_id.items():
            if append_id not in inserted:
                self._fall_back(waiting, deadline)
                continue
            place = (waiting.append.topic_id, waiting.append.partition)
            self._keep(place, batch)
            places.append(place)
            if not waiting.done.done():
                waiting.done.set_result(batch.base_offset)
        for place in dict.fromkeys(places):
            self._on_append(*place)

    def _keep(self, place: Place, batch: RecordBatch) -> None:
        self._cache.set_ends(place, -1, batch.last_offset + 1)
        self._cache.add(place, batch)
        self._on_records(*place, batch.record_count)

    def _learn_end(self, place: Place, waiting: Waiting, deadline: float) -> None:
        """The first append to a partition whose end is not known takes the slow path; others go on when it has."""
        if place in self._behind:
            self._behind[place].append(waiting)
            return
        self._behind[place] = []

        def go_on(_: "asyncio.Task[None]") -> None:
            self._gathered.extendleft(reversed(self._behind.pop(place)))
            self._wake.set()

        self._fall_back(waiting, deadline).add_done_callback(go_on)

    def _fall_back(self, waiting: Waiting, deadline: float, lost_at: int | None = None) -> "asyncio.Task[None]":
        """Take the slow path. `lost_at`: a commit at that offset may have happened, its answer was lost."""

        async def append_slowly() -> None:
            try:
                result = await self._append_slowly(
                    [waiting.append], None, waiting.append_id, waiting.size, deadline, lost_at
                )
            except ApiError as error:
                _refuse(waiting, error)
                return
            if not waiting.done.done():
                waiting.done.set_result(result.base_offsets[0])

        return background.start(self._tasks, append_slowly())

    # The slow path

    async def _append_slowly(
        self,
        appends: Sequence[PartitionAppend],
        key: IdempotencyKey | None,
        append_id: uuid.UUID,
        size: int,
        deadline: float | None = None,
        lost_at: int | None = None,
    ) -> AppendResult:
        """Try until the deadline. Once a try may have happened, each further one looks for its append id first.

        `deadline`: None: it begins with its turn, when it has a connection.
        """
        turn_by = time.monotonic() + self._deadline_s if deadline is None else deadline
        tried_at = [] if lost_at is None else [lost_at]
        if size <= AT_ONCE_BYTES and len(appends) <= LARGE_PARTITIONS:
            return await self._try(appends, key, append_id, tried_at, turn_by, deadline)
        async with self._large_turn(turn_by, tried_at):
            return await self._try(appends, key, append_id, tried_at, turn_by, deadline)

    @asynccontextmanager
    async def _large_turn(self, turn_by: float, tried_at: Sequence[int]) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(max(turn_by - time.monotonic(), LEAST_S)):
                await self._large.acquire()
        except TimeoutError as fault:
            raise self._not_known(True, fault) if tried_at else _not_in_time() from fault
        try:
            yield
        finally:
            self._large.release()

    async def _try(
        self,
        appends: Sequence[PartitionAppend],
        key: IdempotencyKey | None,
        append_id: uuid.UUID,
        tried_at: list[int],
        turn_by: float,
        deadline: float | None,
    ) -> AppendResult:
        while True:
            in_doubt = bool(tried_at)
            try:
                remaining_s = (turn_by if deadline is None else deadline) - time.monotonic()
                lent_s = self._deadline_s if deadline is None else None
                async with self._connections.lend(remaining_s, lent_s=lent_s) as connection:
                    if deadline is None:
                        deadline = time.monotonic() + self._deadline_s
                    try:
                        return await self._transaction(connection, appends, key, append_id, tried_at)
                    except asyncpg.CheckViolationError as fault:
                        if not store.lacks_key_partition(fault):
                            raise
                        for table in (store.KEYS, store.LASTING_KEYS):
                            await store.make_key_partitions(connection, table)
                        return await self._transaction(connection, appends, key, append_id, tried_at)
            except ApiError:
                raise
            except (*FAULTS, ValueError, OverflowError) as fault:
                again = isinstance(fault, (*LOST, asyncpg.SerializationError, asyncpg.LockNotAvailableError))
                if not again and not in_doubt:
                    raise self._health.error(fault, "nothing was appended", definite=True) from fault
                if time.monotonic() + 0.2 >= (turn_by if deadline is None else deadline):
                    raise self._not_known(bool(tried_at), fault) from fault
                log.info("an append is tried again", extra=fields(cause=repr(fault)))
                await asyncio.sleep(0.1)

    def _not_known(self, begun: bool, fault: BaseException) -> ApiError:
        if not begun:
            return self._health.error(fault, "nothing was appended", definite=True)
        sentence = self._health.note(fault).sentence
        return RequestTimedOut(
            f"the record log did not answer in time: the records may have been appended ({sentence})"
        )

    async def _look_up(
        self, connection: Any, appends: Sequence[PartitionAppend], append_id: uuid.UUID, tried_at: Sequence[int]
    ) -> AppendResult | None:
        """Whether an earlier try happened. Its locks wait for a statement that the server still runs."""
        places = [(append.topic_id, append.partition) for append in appends]
        await store.lock(connection, places)
        found = [
            await store.appended(connection, *place, append_id, from_offset)
            for place, from_offset in zip(places, tried_at, strict=True)
        ]
        if None in found:
            return None
        for place, append in zip(places, appends, strict=True):
            self._cache.drop(place)
            self._on_append(*place)
            self._on_records(*place, len(append.tails))
        return AppendResult([base for base in found if base is not None], None)

    async def _transaction(
        self,
        connection: Any,
        appends: Sequence[PartitionAppend],
        key: IdempotencyKey | None,
        append_id: uuid.UUID,
        tried_at: list[int],
    ) -> AppendResult:
        """`tried_at`: the base offset in each partition of the first try that may have happened; empty: none, and this
        one puts its own there. An earlier one is looked for from there on, under the locks that this one needs too.
        """
        places = [(append.topic_id, append.partition) for append in appends]
        async with connection.transaction():
            table = store.LASTING_KEYS if key is not None and key.lasting else store.KEYS
            if key is not None:
                used = await store.find_key(connection, table, key.caller, key.path, key.topic_id, key.key)
                if used is not None:
                    fingerprint, answer, base_offsets = used
                    if fingerprint != key.fingerprint:
                        raise InvalidRequest(f"Idempotency-Key {key.key!r} was used for another request; use a new key")
                    return AppendResult(base_offsets, answer)
            if tried_at and key is None:  # a key tells by itself
                happened = await self._look_up(connection, appends, append_id, tried_at)
                if happened is not None:
                    return happened
            batches = await self._insert(connection, appends, append_id, tried_at)
            base_offsets = [batch.base_offset for batch in batches]
            kept: bytes | None = None
            if key is not None:
                kept = key.answer(base_offsets)
                await store.keep_key(
                    connection,
                    table,
                    key.caller,
                    key.path,
                    key.topic_id,
                    key.key,
                    key.fingerprint,
                    kept,
                    base_offsets,
                )
        for place, batch in zip(places, batches, strict=True):
            self._keep(place, batch)
        for place in places:
            self._on_append(*place)
        return AppendResult(base_offsets, kept)

    async def _insert(
        self, connection: Any, appends: Sequence[PartitionAppend], append_id: uuid.UUID, tried_at: list[int]
    ) -> list[RecordBatch]:
        places = [(append.topic_id, append.partition) for append in appends]
        await store.lock(connection, places)
        await store.make_partitions(connection, places)
        bounds = await store.bounds(connection, places)
        if any(bounds[place].deleted for place in places):
            raise UnknownTopicOrPartition("the topic was deleted")
        batches = [
            RecordBatch.encode(bounds[place].log_end_offset, append.tails, append.max_timestamp_ms, append.for_group)
            for place, append in zip(places, appends, strict=True)
        ]
        for append, batch in zip(appends, batches, strict=True):
            if batch.size > LARGE_RECORD_BYTES * batch.record_count:
                append.tails[:] = batch.tails()
        if not tried_at:
            tried_at += [batch.base_offset for batch in batches]
        await store.insert(
            connection,
            [(*place, batch, append_id) for place, batch in zip(places, batches, strict=True)],
        )
        for place in places:
            self._learn(place, bounds[place].log_start_offset, bounds[place].log_end_offset)  # also if this try fails
        return batches

    async def append_dead_letters(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        leader_epoch: int | None,
        for_group: str | None,
    ) -> int:
        """Append those whose key is new, in the transaction that keeps the keys. Returns: how many."""
        append_id = uuid.uuid4()
        place = (topic_id, partition)
        async with self._connections.lend(self._deadline_s) as connection, connection.transaction():
            if leader_epoch is not None:
                await dead_letter_store.lead(connection, rows[0].source, leader_epoch)
            new = await dead_letter_store.take_keys(connection, [row.key for row in rows])
            wanted = [row for row in rows if row.key in new]
            if not wanted:
                return 0
            timestamp_ms = max(row.timestamp_ms for row in wanted)
            append = PartitionAppend(topic_id, partition, [row.tail for row in wanted], timestamp_ms, for_group)
            (batch,) = await self._insert(connection, [append], append_id, [])
        self._keep(place, batch)
        self._on_append(topic_id, partition)
        return len(wanted)


def _refuse(waiting: Waiting, error: ApiError) -> None:
    if not waiting.done.done():  # who asked may be gone
        waiting.done.set_exception(error)


def _size(appends: Sequence[PartitionAppend]) -> int:
    return sum(sum(map(len, append.tails)) for append in appends)


def _not_in_time() -> StorageError:
    return StorageError("the record log did not come to this append in time; send it again", definite=True)
