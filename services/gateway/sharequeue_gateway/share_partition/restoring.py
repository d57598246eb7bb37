"""Restores a window from persisted state and from the locks of an earlier leader. Pure. Source: KIP-932.

    batches     [ACKED][AVAILABLE, delivered once]         [ARCHIVING]
    locks                     [── second delivery ──]
    runs        [ACKED][AVAIL][ACQUIRED ×2][ACQ ×1 ]  hole [ARCHIVING]

A lock is live only where its delivery count is above the persisted one: otherwise its end is already durable. A
deadline is at most the length of its own lock away: the clock of the earlier leader may have been ahead. A lock past
its deadline gives an AVAILABLE record with that count, which waits as if its end had been seen in time: the backoff
counts from the deadline. An ended lock (member "") has the end of that wait as its deadline. At the delivery limit both
stay due locks, which `expire` ends. Holes become the gap that is read again.
"""

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.state import Given, Note, StateBatch
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, DeliveryState, GivenReason, Reason
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, TERMINAL, Hold, RestoredLock, Run
from sharequeue_gateway.share_partition.window import Window

STEP_RUNS: Final = 500
"""Runs of one step: 1 or 2 ms."""
STATES: Final = {int(state): state for state in DeliveryState if state is not ACQUIRED}


class InvalidState(ApiError):
    """The persisted state contradicts itself, so the share-partition cannot be loaded."""


class Piece(NamedTuple):
    """A range with the batch and the lock that cover all of it. `begin`, `end`: its in-flight batch."""

    first: int
    last: int
    batch: StateBatch | None
    lock: RestoredLock | None
    begin: int
    end: int


class Restoring:
    """Fills an empty window. `texts`: those that the batches name, by their places."""

    def __init__(self, window: Window, texts: Mapping[int, str], now_ms: int) -> None:
        self._window = window
        self._texts = texts
        self._now_ms = now_ms
        self._given: dict[Given, GivenReason] = {}
        self._deadlines: list[tuple[int, int, int]] = []

    def restore(self, batches: Sequence[StateBatch], locks: Sequence[RestoredLock]) -> Iterator[None]:
        """Add all batches and locks, in steps of STEP_RUNS runs. Raises: InvalidState."""
        window = self._window
        _check(batches, window.start_offset)
        yield
        runs: list[Run] = []
        for number, piece in enumerate(_pieces(batches, _strongest(locks, window.start_offset), window.start_offset)):
            run = self._run(piece)
            runs.append(run)
            window.count(run, 1)
            if not run.delivery_count and run.first < window.new_from:
                window.new_from = run.first
            if run.state in TERMINAL:
                window.count_terminal(run, 1)
            if number % STEP_RUNS == 0:
                yield
        window.restore(runs, self._deadlines)
        _find_gap(window)

    def _run(self, piece: Piece) -> Run:
        first, last, batch, lock, begin, end = piece
        state, count, note = AVAILABLE, 0, None
        if batch is not None:
            state, count, note = STATES[batch.delivery_state], batch.delivery_count, batch.note
        if last == first:
            last = first  # one number in memory: most runs of a large window are single records
        if lock is not None and (state is not AVAILABLE or lock.delivery_count <= count):
            lock = None
        run = Run(first, last, state, count, begin, end, lock is None)
        if lock is not None:
            self._hold_by_lock(run, lock)
        if note is not None:
            self._note(run, note, count)
        return run

    def _hold_by_lock(self, run: Run, lock: RestoredLock) -> None:
        window, now_ms = self._window, self._now_ms
        run.delivery_count = lock.delivery_count
        run.forgiven = lock.forgiven
        deadline_ms = max(now_ms, min(lock.deadline_ms, now_ms + lock.lock_duration_ms)) if lock.member_id else now_ms
        if deadline_ms > now_ms or run.attempt >= window.config.delivery_count_limit:
            run.become(ACQUIRED)
            run.member_id = lock.member_id
            run.lock_expires_at_ms = deadline_ms
            run.lock_duration_ms = lock.lock_duration_ms
            self._deadlines.append((deadline_ms, run.first, run.last))
        elif lock.member_id:
            self._delay(run, window.retry_at_ms(run, lock.deadline_ms, now_ms))
        else:
            self._delay(run, lock.deadline_ms)

    def _note(self, run: Run, note: Note, delivery_count: int) -> None:
        """What is noted about the records of a run beside their persisted state and count.

        The lasting fields hold for an unfinished run. The others belong to one delivery, by its count: if a later one
        is in flight, or ended in memory alone, the reason is an earlier one.
        """
        reason = None if note.reason is None else self._reason(note.reason)
        last = run.delivery_count == delivery_count
        if run.state not in TERMINAL:
            run.forgiven = max(run.forgiven, note.forgiven)
            if note.earlier or not last:
                earlier = tuple(map(self._reason, note.earlier))
                run.earlier = self._window.reasons.history(earlier, None if last else reason)
        if last:
            run.reason = reason
            run.released = reason is not None  # a lock that ends has none
            if run.state is AVAILABLE:
                self._delay(run, note.available_at_ms)
        if note.transaction_id is not None and run.state not in TERMINAL:
            self._hold(run, delivery_count + 1, note.transaction_id)

    def _reason(self, given: Given) -> GivenReason:
        """The reason in memory: once for each text and time."""
        found = self._given.get(given)
        if found is None:
            if given.text not in self._texts:
                raise InvalidState(f"the persisted state cannot be read: it has no text {given.text}")
            found = self._given[given] = self._window.reasons.given(Reason(self._texts[given.text]), given.at_ms)
        return found

    def _delay(self, run: Run, available_at_ms: int) -> None:
        """Restore a delay, unless it is over."""
        if available_at_ms > self._now_ms:
            run.available_at_ms = available_at_ms
            self._deadlines.append((available_at_ms, run.first, run.last))

    def _hold(self, run: Run, delivery_count: int, transaction_id: str) -> None:
        """Restore a pending delivery: with its lock, or with one that has ended if there is none.

        A lock of another delivery is later than the transaction, whose outcome cannot concern it.
        """
        window, now_ms = self._window, self._now_ms
        if run.delivery_count != (delivery_count - 1 if run.durable else delivery_count):
            return
        if run.state is AVAILABLE:
            run.become(ACQUIRED)
            if run.reason is not None:
                run.earlier, run.reason = window.reasons.history(run.earlier, run.reason), None
            run.delivery_count = delivery_count
            run.durable = False
            run.available_at_ms = 0
            run.lock_expires_at_ms = now_ms
        window.holds = window.holds or {}
        holds = window.holds.setdefault(transaction_id, {})
        if not holds:
            holds[Hold(window.start_offset, transaction_id, now_ms, durable=True)] = None
        next(iter(holds)).add(run)


def _check(batches: Sequence[StateBatch], start_offset: int) -> None:
    """Raises: InvalidState."""
    expected = start_offset
    for batch in batches:
        first, last, count = batch.first_offset, batch.last_offset, batch.delivery_count
        if not (expected <= first <= last <= MAX_INT64 and batch.delivery_state in STATES and 0 <= count <= MAX_INT32):
            raise InvalidState(
                f"the persisted state cannot be read: a batch {first}-{last} with the delivery state"
                f" {batch.delivery_state} and the delivery count {count} cannot stand behind offset {expected - 1}"
            )
        expected = last + 1


def _strongest(locks: Sequence[RestoredLock], start_offset: int) -> Sequence[RestoredLock]:
    """The locks from a start offset on, ascending. Where several cover an offset, the one of the last delivery counts,
    then the one that ends last."""
    locks = sorted(
        lock._replace(first_offset=max(lock.first_offset, start_offset))
        for lock in locks
        if lock.last_offset >= start_offset
    )
    if all(left.last_offset < right.first_offset for left, right in itertools.pairwise(locks)):
        return locks
    places = sorted({place for lock in locks for place in (lock.first_offset, lock.last_offset + 1)})
    waiting = locks[::-1]
    covering: list[tuple[int, int, int, RestoredLock]] = []
    found = []
    for first, after in itertools.pairwise(places):
        while waiting and waiting[-1].first_offset <= first:
            lock = waiting.pop()
            heapq.heappush(covering, (-lock.delivery_count, -lock.deadline_ms, lock.last_offset, lock))
        while covering and covering[0][2] < first:
            heapq.heappop(covering)
        if covering:
            found.append(covering[0][3]._replace(first_offset=first, last_offset=after - 1))
    return found


def _pieces(batches: Sequence[StateBatch], locks: Sequence[RestoredLock], start_offset: int) -> Iterator[Piece]:
    """Cut batches and locks where one of the other begins or ends. Both ascend, and each is disjoint."""
    in_flight = _in_flight(batches)
    at_batch = at_lock = 0
    at = start_offset
    while at_batch < len(batches) or at_lock < len(locks):
        batch = batches[at_batch] if at_batch < len(batches) else None
        lock = locks[at_lock] if at_lock < len(locks) else None
        first_of_batch = MAX_INT64 + 1 if batch is None else batch.first_offset
        first_of_lock = MAX_INT64 + 1 if lock is None else lock.first_offset
        at = max(at, min(first_of_batch, first_of_lock))
        last_of_batch = first_of_batch - 1 if batch is None or at < first_of_batch else batch.last_offset
        last_of_lock = first_of_lock - 1 if lock is None or at < first_of_lock else lock.last_offset
        last = min(last_of_batch, last_of_lock)
        covers = at >= first_of_batch
        begin, end = in_flight[at_batch] if covers else (at, last)
        yield Piece(at, last, batch if covers else None, lock if at >= first_of_lock else None, begin, end)
        at = last + 1
        if batch is not None and batch.last_offset < at:
            at_batch += 1
        if lock is not None and lock.last_offset < at:
            at_lock += 1


def _in_flight(batches: Sequence[StateBatch]) -> list[tuple[int, int]]:
    """The ends of each batch's in-flight batch: neighbours of one state and count are one, whatever their notes."""
    found: list[tuple[int, int]] = []
    begun = 0
    for place, batch in enumerate(batches):
        following = batches[place + 1] if place + 1 < len(batches) else None
        if following is None or not (
            following.first_offset == batch.last_offset + 1
            and following.delivery_state == batch.delivery_state
            and following.delivery_count == batch.delivery_count
        ):
            found += [(batches[begun].first_offset, batch.last_offset)] * (place + 1 - begun)
            begun = place + 1
    return found


def _find_gap(window: Window) -> None:
    expected = window.start_offset
    for run in window.runs:
        if run.first > expected:
            window.gap_start, window.gap_end = expected, window.end_offset
            return
        expected = run.last + 1
