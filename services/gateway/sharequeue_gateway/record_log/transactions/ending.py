"""The end of a transaction: commit, abort, time-out, fencing and an operator's abort are this one function.

The row of the transaction is the coordinator: any gateway decides under its lock. Markers, aborted rows and the outcome
are one database transaction, so each outcome in an answer is durable. If the answer of PostgreSQL is lost, the same
call runs again: it waits for the backend that may still run the first try,
and finds the outcome or ends the transaction.

A commit ends the parts that it names in the same database transaction. The other parts, and all parts of a transaction
that is aborted, are aborted after it, one by one. If that fails, the deadline of the whole ends them.

An end of many partitions is paced: it writes its markers in pieces, one statement each, and rests between them. So it
takes a part of the time of the database and of the event loop, and appends to other partitions do not wait for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue import background
from sharequeue.protocol.errors import ConcurrentTransactions, StorageError
from sharequeue.protocol.types import TopicIdPartition
from sharequeue.repeats import APPEND, Tries
from sharequeue.service.postgres_faults import FAULTS, LOST
from sharequeue.slices import Pace
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.connections import in_turn, locking
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.reading.cache import KnownLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.transactions import settlements, transaction_store
from sharequeue_gateway.record_log.transactions.settlements import Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import (
    ABORT,
    COMMIT,
    TERMINATE,
    TIME_OUT,
    State,
    Transaction,
    Wish,
    check_commit,
)
from sharequeue_gateway.record_log.transactions.transaction_store import Verdict
from sharequeue_http.forms.errors import ApiError, RequestTimedOut, Throttled
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LARGE_PARTITIONS: Final = 64
"""An end of more partitions is large. Large ends run one after another, over all gateways."""
AT_ONCE: Final = 4
"""The most connections of the pool that ends use."""
MOST_UNDER_WAY: Final = 1000
"""How many ends that clients ask for may run or wait at a gateway. Equal calls for one transaction are one end."""
MARKERS_AT_ONCE: Final = 100
"""Markers that one statement writes, or that are reported at once."""
REST: Final = 2.0
"""How many times as long as it works an end of more than MARKERS_AT_ONCE partitions rests."""
OF_CLIENTS: Final = (COMMIT, ABORT, TERMINATE)
AGAIN: Final = (*LOST, asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)


class End(NamedTuple):
    """The end that a call wants for a transaction.

    `note`: kept with the producer if this commits. `parts`: those to commit with it. `owner`: patterns of the
    transactions that the caller may end. `skip_locked`: leave a transaction that another one uses. `settling`: what it
    settles if it commits; all of it is pending on this transaction, durably.
    """

    wish: Wish
    note: str | None = None
    parts: Sequence[str] = ()
    owner: str = ANY_OWNER
    skip_locked: bool = False
    settling: Settling | None = None


class Ended(NamedTuple):
    """The outcome of a transaction, and the markers that this call has written. `here`: this call has ended it.

    `has_parts`: it has or had parts; those that were not committed with it may still be open.
    """

    transaction: Transaction | None
    markers: transaction_store.Markers
    here: bool = False
    has_parts: bool = False


class _LargeEnd(Exception):
    """The transaction has many partitions: it needs the turn of large ends."""


class Ending:
    """Ends transactions. Repeats until the outcome is known or the deadline passes.

    `count` is called with each transaction that ended here, and the seconds that its end took. An end whose answer was
    lost is not counted.
    """

    def __init__(
        self, database: LogDatabase, known: KnownLog, deadline_s: float, count: Callable[[Wish, float], None]
    ) -> None:
        self._database = database
        self._known = known
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._plain: dict[tuple[str, End], asyncio.Task[Transaction | None]] = {}
        """The ends under way that a repeat of the same call may join."""
        self.count = count

    async def end(self, transaction_id: str, end: End) -> Transaction | None:
        """End a transaction if it is open. One whose time has passed is aborted, with any wish.

        Returns: what became of it, durable; None: nothing is known of it, or another one uses it.
        Raises: InvalidTxnState, InvalidRequest: see `check_commit`; ConcurrentTransactions: it was in use for too long;
            StorageError; RequestTimedOut: it may have ended, and a repeat tells; Throttled: too many are under way.
        """
        if end.parts or end.settling is not None:
            return await asyncio.shield(self._start(transaction_id, end))
        call = (transaction_id, end._replace(parts=()))
        task = self._plain.get(call)
        if task is None:
            task = self._plain[call] = self._start(*call)
            task.add_done_callback(lambda _: self._plain.pop(call))
        return await asyncio.shield(task)

    def _start(self, transaction_id: str, end: End) -> "asyncio.Task[Transaction | None]":
        if end.wish in OF_CLIENTS and len(self._tasks) >= MOST_UNDER_WAY:
            raise Throttled(
                f"{len(self._tasks)} commits and aborts of transactions are under way at this gateway, which takes"
                f" {MOST_UNDER_WAY} at most; this one was not tried: repeat it in a moment",
                limit=MOST_UNDER_WAY,
                retry_after_s=1,
            )
        return background.start(self._tasks, self._end_all(transaction_id, end))

    async def _end_all(self, transaction_id: str, end: End) -> Transaction | None:
        """End a transaction, then abort the parts that did not end with it."""
        ended = await self._try(transaction_id, end)
        if ended.has_parts and ended.transaction is not None:
            reason = ended.transaction.reason if ended.transaction.state == State.ABORTED else ABORT.reason
            try:
                for part in await self._database.query(transaction_store.open_parts, transaction_id):
                    await self._try(part, End(Wish(State.ABORTED, reason)))
            except ApiError as error:
                log.warning(
                    "parts of a transaction are aborted when its time passes",
                    extra=fields(transaction_id=transaction_id, cause=error.detail),
                )
        return ended.transaction

    async def _try(self, transaction_id: str, end: End) -> Ended:
        began = time.monotonic()
        until = began + self._deadline_s
        tries = Tries(APPEND, self._deadline_s - APPEND.pause_s)  # a try needs time, too
        in_doubt = large = False
        while True:
            try:
                async with self._turn(until, large):
                    remaining_s = until - time.monotonic()
                    async with self._database.connections.lend(remaining_s) as connection:
                        ended = await self._transaction(connection, transaction_id, end, large, remaining_s)
                if ended.here and ended.transaction is not None:
                    await self._publish(transaction_id, ended.transaction.ended_at_ms or 0, ended)
                    self.count(Wish(ended.transaction.state, ended.transaction.reason), time.monotonic() - began)
                return ended
            except _LargeEnd:
                large = True
            except FAULTS as fault:
                in_doubt = in_doubt or isinstance(fault, LOST)
                if not isinstance(fault, AGAIN) and not in_doubt:
                    raise self._database.health.error(fault, "the transaction was not ended", definite=True) from fault
                if not await tries.pause():
                    raise self._not_ended(transaction_id, in_doubt, fault) from fault
                log.info("trying to end a transaction again", extra=fields(cause=repr(fault)))

    async def _publish(self, transaction_id: str, timestamp_ms: int, ended: Ended) -> None:
        """Report the markers: many of them in pieces."""
        pace = Pace(REST)
        for first in range(0, len(ended.markers), MARKERS_AT_ONCE):
            if first:
                await pace.rest()
            some = ended.markers[first : first + MARKERS_AT_ONCE]
            self._known.publish(
                [(place, RecordBatch.marker(offset, timestamp_ms, transaction_id)) for place, offset in some]
            )

    def _turn(self, until: float, large: bool) -> AbstractAsyncContextManager[None]:
        """The turn of one end. A large one waits for its own turn first, without one of the common ones."""
        late = StorageError("many transactions are being ended now; repeat it", definite=False)
        return in_turn(until, (self._large, self._slots) if large else (self._slots,), lambda _: late)

    async def _transaction(
        self, connection: Any, transaction_id: str, end: End, large: bool, remaining_s: float
    ) -> Ended:
        async with locking(connection, max(int(remaining_s * 800), 100)):
            lock = "FOR UPDATE SKIP LOCKED" if end.skip_locked else "FOR UPDATE"
            found = await transaction_store.row_of(connection, transaction_id, end.owner, lock)
            if found is not None:
                return await self._end(connection, found, end, large)
        if end.skip_locked:
            return Ended(None, [])
        return Ended(await transaction_store.outcome(connection, transaction_id, end.owner), [])

    async def _end(self, connection: Any, found: Transaction, end: End, large: bool) -> Ended:
        """End a transaction whose row is locked: since then no partition can be added to it."""
        transaction_id = found.transaction_id
        parts = await transaction_store.lock_parts(connection, transaction_id, end.parts) if end.parts else []
        most = LARGE_PARTITIONS + 1 if not large else store.MOST_OF_TRANSACTION + 1 if parts else None
        last = await transaction_store.look_to_end(connection, transaction_id, parts, most)
        now, now_ms, past, has_parts, places = last
        state, reason = TIME_OUT if past else end.wish
        if state == State.COMMITTED:
            check_commit(found, end.parts, set(parts), len(places))
        elif parts:
            own = await transaction_store.places_of(connection, transaction_id)
            parts, places = [], [(topic_id, partition) for topic_id, partition, _ in own]
        ended = found._replace(state=state, reason=reason, ended_at_ms=now_ms)
        settling = end.settling if state == State.COMMITTED else None
        if len(places) > LARGE_PARTITIONS and not large:
            raise _LargeEnd
        if places:
            await transaction_store.lock_places(connection, places, large=large)
        digest = None if settling is None else settling.digest
        verdict = Verdict(transaction_id, [transaction_id, *parts], state, reason, now, now_ms, end.note, digest)
        markers = await self._write(connection, verdict, places)
        if settling is not None:
            await settlements.add(connection, transaction_id, settling.settlements)
        ended = ended._replace(partitions=len(markers), settled=digest)
        return Ended(ended, markers, here=True, has_parts=has_parts)

    async def _write(
        self, connection: Any, verdict: Verdict, places: Sequence[TopicIdPartition]
    ) -> transaction_store.Markers:
        """End a transaction under the locks of its partitions. Returns: its markers."""
        markers: transaction_store.Markers = []
        pace = Pace(REST)
        for first in range(0, len(places) - MARKERS_AT_ONCE, MARKERS_AT_ONCE):
            some = places[first : first + MARKERS_AT_ONCE]
            markers += await transaction_store.write_markers(connection, verdict, some)
            await pace.rest()
        return markers + await transaction_store.end_with_records(connection, verdict, len(markers))

    def _not_ended(self, transaction_id: str, in_doubt: bool, fault: BaseException) -> ApiError:
        sentence = self._database.health.note(fault).sentence
        if in_doubt:
            return RequestTimedOut(
                f"the record log did not answer in time: transaction {transaction_id} may have ended; repeat the request"
                f" to get the outcome ({sentence})"
            )
        return ConcurrentTransactions(
            f"transaction {transaction_id} or one of its partitions was in use for too long; repeat the request"
        )
