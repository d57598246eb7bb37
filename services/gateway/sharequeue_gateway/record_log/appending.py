"""The fast path of appends: appends that gather while a commit is under way share the next commit.

An append that finds nothing under way is committed by its own task, which then waits for one answer, that of
PostgreSQL. As long as commits have company, the task of `run` does them: it lets all of one turn of the loop gather. If
a request is cancelled while it commits, its batch is looked up, as after a lost connection; no other batch is in that
commit.

A commit is one statement. It inserts a batch only if no other gateway is appending to the partition and the partition
ends where this gateway expects. So the database refuses a stale writer. The refused appends of a commit take the slow
path, `locked_append`. Until they have ended, the fast path would be refused because of them, so later appends to the
partition wait. Then these gather, and the fast path continues from the end that the slow path has found.

An append to one partition with an idempotency key gathers too, and its commit keeps the key. If the key is locked or
used, or the transaction of an append may not be open, that append alone takes the slow path, which waits for the lock
or finds the answer; those behind it in its partition are in the next commit.

An append waits for its turn until the deadline at most; then its own deadline begins. If its turn does not come, it has
certainly not happened.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg
import msgspec

from sharequeue import background
from sharequeue.background import IN_COMPANY
from sharequeue.protocol.types import TopicIdPartition
from sharequeue.service.postgres_faults import FAULTS, LOST, meaning_of
from sharequeue_gateway.record_log import append_store
from sharequeue_gateway.record_log.connections import LEAST_S
from sharequeue_gateway.record_log.database import APPEND_SETTINGS, LogDatabase
from sharequeue_gateway.record_log.key_store import NO_KEY, NewKey
from sharequeue_gateway.record_log.locked_append import (
    AT_ONCE_BYTES,
    AppendRequest,
    LockedAppend,
    Within,
    lock_of,
    new_key,
    not_in_time,
)
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.reading.cache import KnownLog
from sharequeue_gateway.record_log.record_batch import LARGE_RECORD_BYTES, RecordBatch
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

AT_ONCE: Final = 512
"""The most appends of one commit."""
MOST_KEYS: Final = 128
"""The most of them with an idempotency key. Each key is locked until the commit, as each partition is."""


class WaitingAppend(msgspec.Struct, frozen=True, eq=False):
    """A request with one append that waits for the next commit. `turn_by`: the latest time for its turn."""

    request: AppendRequest
    append: PartitionAppend
    place: TopicIdPartition
    done: "asyncio.Future[AppendResult]"
    turn_by: float


@dataclass(eq=False)
class SlowAppends:
    """The number of appends to a partition that are on the slow path, and the appends that wait for their end."""

    running: int = 0
    behind: list[WaitingAppend] = field(default_factory=list)


Encoded = list[tuple[WaitingAppend, RecordBatch]]


@dataclass(eq=False)
class Appender:
    """Writes record batches. `run` must be running."""

    _database: LogDatabase
    _known: KnownLog
    _locked_append: LockedAppend
    _deadline_s: float
    _gathered: deque[WaitingAppend] = field(init=False, default_factory=deque)
    _slow: dict[TopicIdPartition, SlowAppends] = field(init=False, default_factory=dict)
    """The partitions with an append on the slow path."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _busy: bool = field(init=False, default=False)
    """Whether a commit is under way."""
    _in_company: int = field(init=False, default=IN_COMPANY)
    """How many further commits are not done by a request itself."""
    _connection: Any = field(init=False, default=None)
    _tasks: set[asyncio.Task[Any]] = field(init=False, default_factory=set)

    async def append(
        self,
        appends: Sequence[PartitionAppend],
        idempotency_key: IdempotencyKey | None = None,
        within: Within | None = None,
    ) -> AppendResult:
        """As `Appends.append`. `within`: the transaction that the append takes part in."""
        size = sum([sum(map(len, append.tails)) for append in appends])
        number = self._database.time_line.number
        request = AppendRequest(appends, idempotency_key, append_store.new_append_id(), size, number, within)
        if len(appends) == 1 and (within is None or within.gathers):
            done: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            turn_by = time.monotonic() + self._deadline_s
            alone = not (self._busy or self._in_company or self._gathered)
            place = (appends[0].topic_id, appends[0].partition)
            self._gathered.append(WaitingAppend(request, appends[0], place, done, turn_by))
            if alone:
                try:
                    await self._commit_next()
                except BaseException:
                    done.cancel()  # nobody awaits it
                    raise
            elif not self._busy:
                self._wake.set()
            return await done
        return await asyncio.shield(background.start(self._tasks, self._locked_append.append(request)))

    async def run(self) -> None:
        """Commit gathered appends. Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._gathered and not self._busy:
                await self._commit_next()

    async def _commit_next(self) -> None:
        """Commit appends that have gathered, in the task that calls this."""
        self._busy = True
        try:
            now = time.monotonic()
            taken = self._take(now)
            self._in_company = IN_COMPANY if len(taken) > 1 else max(self._in_company - 1, 0)
            await self._commit(taken, now + self._deadline_s)
        finally:
            self._busy = False
            if self._gathered:
                self._in_company = IN_COMPANY
                self._wake.set()

    def _take(self, now: float) -> list[WaitingAppend]:
        """The appends of the next commit. Those that have waited too long are refused."""
        taken: list[WaitingAppend] = []
        size = keyed = 0
        while self._gathered and len(taken) < AT_ONCE:
            waiting = self._gathered[0]
            if waiting.turn_by < now:
                _refuse(waiting, not_in_time())
            elif taken and (size + waiting.request.size > AT_ONCE_BYTES or keyed == MOST_KEYS):
                break
            else:
                taken.append(waiting)
                size += waiting.request.size
                keyed += waiting.request.key is not None
            self._gathered.popleft()
        return taken

    async def _commit(self, gathered: Sequence[WaitingAppend], deadline: float) -> None:
        """Insert a batch for each append, and answer the inserted ones."""
        encoded = self._encode(gathered, deadline)
        # half of the remaining time: the other half is for looking up whether this try happened
        try_until = (time.monotonic() + deadline) / 2
        if not encoded or (
            (self._connection is None or self._connection.is_closed()) and not await self._connect(encoded, try_until)
        ):
            self._fall_back_all(encoded, deadline)
            return
        keys: dict[str, NewKey] = {}
        owners: dict[str, str] = {}
        for waiting, batch in encoded:
            key, within = waiting.request.key, waiting.request.within
            if key is not None:
                keys[waiting.request.append_id] = new_key(key, batch.base_offset)
            if within is not None:
                owners[waiting.request.append_id] = within.owner
        rows = [(*waiting.place, batch, waiting.request.append_id) for waiting, batch in encoded]
        try:
            timeout_s = max(try_until - time.monotonic(), LEAST_S)
            inserted = await append_store.append(self._connection, rows, keys, owners, timeout_s)
            if self._connection.is_closed():  # as check_replicated, without a call for each commit
                raise asyncpg.ConnectionDoesNotExistError("the commit may not have reached the standby")
        except (*FAULTS, ValueError, OverflowError, asyncio.CancelledError) as fault:
            self._commit_failed(fault, encoded, deadline)
            return
        appended: list[tuple[TopicIdPartition, RecordBatch]] = []
        refused: set[TopicIdPartition] = set()
        again: list[WaitingAppend] = []
        for waiting, batch in encoded:
            outcome = inserted.get(waiting.request.append_id)
            if outcome:
                appended.append((waiting.place, batch))
                if not waiting.done.done():
                    answer = keys.get(waiting.request.append_id, NO_KEY).answer
                    waiting.done.set_result(AppendResult([batch.base_offset], answer))
            elif outcome is not None:
                refused.add(waiting.place)
                self._fall_back(waiting, deadline, alone=True)
            elif waiting.place in refused:
                again.append(waiting)
            else:
                self._fall_back(waiting, deadline)
        self._known.publish(appended)
        self._gathered.extendleft(reversed(again))

    def _encode(self, gathered: Sequence[WaitingAppend], deadline: float) -> Encoded:
        """The batches of the appends that may take the fast path, one behind the other."""
        ends: dict[TopicIdPartition, int] = {}
        locks: set[int] = set()
        encoded: Encoded = []
        for waiting in gathered:
            append, place = waiting.append, waiting.place
            if waiting.request.key is not None:
                lock = lock_of(waiting.request.key)
                if lock in locks:  # a repeat
                    self._fall_back(waiting, deadline, alone=True)
                    continue
                locks.add(lock)
            slow = self._slow.get(place)
            if slow is not None:
                slow.behind.append(waiting)
                continue
            end = ends.get(place)
            if end is None:
                known = self._known.cache.partition(place)
                end = -1 if known is None else known.log_end_offset
            if end < 0:
                self._fall_back(waiting, deadline)
                continue
            batch = RecordBatch.encode(
                end, append.tails, append.max_timestamp_ms, append.for_group, append.transaction_id
            )
            if batch.size > LARGE_RECORD_BYTES * batch.record_count:
                append.tails[:] = batch.tails()
            ends[place] = batch.last_offset + 1
            encoded.append((waiting, batch))
        return encoded

    async def _connect(self, encoded: Encoded, until: float) -> bool:
        """Connect. Returns: whether the batches may be sent: they begin where the known ends say."""
        number = self._database.time_line.number
        try:
            async with asyncio.timeout(max(until - time.monotonic(), LEAST_S)):
                self._connection = await self._database.connect("append", APPEND_SETTINGS)
        except FAULTS as fault:
            log.warning("cannot connect to append", extra=fields(appends=len(encoded), cause=repr(fault)))
            return False
        return number == self._database.time_line.number  # else the known ends may be wrong

    def _commit_failed(self, fault: BaseException, encoded: Encoded, deadline: float) -> None:
        """Refuse the appends, or send them to the slow path, where each is alone if one of them is at fault."""
        if isinstance(fault, (*LOST, asyncio.CancelledError)):
            self._connection.terminate()
            self._connection = None
            self._in_company = IN_COMPANY  # `run` connects
            log.warning("lost the connection of an append", extra=fields(appends=len(encoded), cause=repr(fault)))
            for waiting, batch in encoded:
                self._fall_back(waiting, deadline, batch.base_offset)
            if isinstance(fault, asyncio.CancelledError):
                raise fault
        elif isinstance(fault, asyncpg.UniqueViolationError) or not meaning_of(fault).passes:
            self._fall_back_all(encoded, deadline)
        else:
            for waiting, _ in encoded:
                _refuse(waiting, self._database.health.error(fault, "nothing was appended", definite=True))

    def _fall_back_all(self, encoded: Encoded, deadline: float) -> None:
        for waiting, _ in encoded:
            self._fall_back(waiting, deadline)

    def _fall_back(
        self, waiting: WaitingAppend, deadline: float, lost_at: int | None = None, *, alone: bool = False
    ) -> None:
        """Take the slow path.

        `lost_at`: as in LockedAppend.append. `alone`: it waits for its key, or is refused: no append waits for it.
        """
        slow = None if alone else self._slow.setdefault(waiting.place, SlowAppends())
        if slow is not None:
            slow.running += 1
        background.start(self._tasks, self._append_locked(waiting, deadline, lost_at, slow))

    async def _append_locked(
        self, waiting: WaitingAppend, deadline: float, lost_at: int | None, slow: SlowAppends | None
    ) -> None:
        try:
            result = await self._locked_append.append(waiting.request, deadline=deadline, lost_at=lost_at)
        except ApiError as error:
            _refuse(waiting, error)
        else:
            if not waiting.done.done():
                waiting.done.set_result(result)
        finally:
            if slow is not None:
                slow.running -= 1
                if not slow.running:
                    del self._slow[waiting.place]
                    self._gathered.extendleft(reversed(slow.behind))
                    if not self._busy:
                        self._wake.set()


def _refuse(waiting: WaitingAppend, error: ApiError) -> None:
    if not waiting.done.done():  # its request may have been cancelled
        waiting.done.set_exception(error)
