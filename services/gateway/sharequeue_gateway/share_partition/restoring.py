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
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from sharequeue.protocol.state import Given, Note, StateBatch
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, DeliveryState, GivenReason, Reason, RestoredLock
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, TERMINAL, Hold, Run
from sharequeue_gateway.share_partition.window import Window
from sharequeue_http.forms.errors import ApiError

STEP_RUNS: Final = 200
"""Runs of one step: about 1 ms."""
FIRST_OFFSET: Final = itemgetter(0)
STATES: Final = {int(state): state for state in DeliveryState if state is not ACQUIRED}


class InvalidState(ApiError):
    """The persisted state contradicts itself, so the share-partition cannot be loaded."""


Piece = tuple[int, int, StateBatch | None, RestoredLock | None, int, int]
"""The first and last offset of a range, the batch and the lock that cover all of it, and its in-flight batch."""


class Restoring:
    """Fills an empty window. `texts`: those that the batches name, by their places."""

    def __init__(self, window: Window, texts: Mapping[int, str], now_ms: int) -> None:
        self._window = window
        self._texts = texts
        self._now_ms = now_ms
        self._given: dict[Given, GivenReason] = {}
        self._histories: dict[tuple[tuple[Given, ...], GivenReason | None], tuple[GivenReason, ...]] = {}
        self._deadlines: list[tuple[int, int, int]] = []

    def restore(self, batches: Sequence[StateBatch], locks: Sequence[RestoredLock]) -> Iterator[None]:
        """Add all batches and locks, in steps of STEP_RUNS runs. Raises: InvalidState."""
        window = self._window
        expected = window.start_offset
        runs: list[Run] = []
        available: list[int] = []
        held = waiting = delayed = finished = 0
        for first, last, batch, lock, begin, end in _pieces(batches, _strongest(locks, expected), expected):
            if len(runs) % STEP_RUNS == 0:
                yield
            run = self._run(first, last, batch, lock, begin, end)
            runs.append(run)
            size = last - first + 1
            if run.state in TERMINAL:
                finished += size
            elif run.state is not AVAILABLE:
                held += size
            else:
                waiting += size
                if run.available_at_ms:
                    delayed += size
                else:
                    available.append(first)
            if not run.delivery_count and first < window.new_from:
                window.new_from = first
            if first > expected and window.gap_start < 0:
                window.gap_start = expected
            expected = last + 1
        window.restore(runs, available, self._deadlines)
        window.held_count, window.waiting_count = held, waiting
        window.delayed_count, window.delivery_complete_count = delayed, finished

    def _run(
        self, first: int, last: int, batch: StateBatch | None, lock: RestoredLock | None, begin: int, end: int
    ) -> Run:
        """The run of a piece. `begin`, `end`: its in-flight batch."""
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
        if deadline_ms > now_ms or window.is_last_attempt(run):
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
        """Apply what is noted about the records of a run beside their persisted state and count.

        The lasting fields hold for an unfinished run. The others belong to one delivery, by its count: if a later one
        is in flight, or ended in memory alone, the reason is an earlier one.
        """
        reason = None if note.reason is None else self._reason(note.reason)
        last = run.delivery_count == delivery_count
        if run.state not in TERMINAL:
            run.forgiven = max(run.forgiven, note.forgiven)
            if note.earlier or not last:
                run.earlier = self._history(note.earlier, None if last else reason)
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

    def _history(self, earlier: tuple[Given, ...], reason: GivenReason | None) -> tuple[GivenReason, ...]:
        """The reasons of earlier deliveries in memory. `reason`: of the newest delivery, if `earlier` lacks it."""
        found = self._histories.get((earlier, reason))
        if found is None:
            given = tuple(map(self._reason, earlier))
            found = self._histories[earlier, reason] = self._window.reasons.history(given, reason)
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
        holds = window.holds.setdefault(transaction_id, {})
        if not holds:
            holds[Hold(window.start_offset, transaction_id, now_ms, durable=True)] = None
        next(iter(holds)).add(run)


def _check(batch: StateBatch, expected: int) -> None:
    """Raises: InvalidState: the batch cannot stand there."""
    first, last, count = batch.first_offset, batch.last_offset, batch.delivery_count
    if not (expected <= first <= last <= MAX_INT64 and batch.delivery_state in STATES and 0 <= count <= MAX_INT32):
        raise InvalidState(
            f"the persisted state cannot be read: a batch {first}-{last} with the delivery state"
            f" {batch.delivery_state} and the delivery count {count} cannot stand behind offset {expected - 1}"
        )


def _strongest(locks: Sequence[RestoredLock], start_offset: int) -> Iterator[RestoredLock]:
    """Yield the locks from a start offset on, ascending. Where several cover an offset, the one of the last delivery
    counts, then the one that ends last."""
    waiting = sorted([lock for lock in locks if lock.last_offset >= start_offset], key=FIRST_OFFSET, reverse=True)
    covering: list[tuple[int, int, RestoredLock]] = []
    at = start_offset
    while waiting or covering:
        if not covering:
            at = max(at, waiting[-1].first_offset)
        while waiting and waiting[-1].first_offset <= at:
            lock = waiting.pop()
            heapq.heappush(covering, (-lock.delivery_count, -lock.deadline_ms, lock))
        strongest = covering[0][-1]
        last = min(strongest.last_offset, waiting[-1].first_offset - 1) if waiting else strongest.last_offset
        whole = (at, last) == strongest[:2]
        yield strongest if whole else strongest._replace(first_offset=at, last_offset=last)
        at = last + 1
        while covering and covering[0][-1].last_offset < at:
            heapq.heappop(covering)


def _pieces(batches: Sequence[StateBatch], locks: Iterator[RestoredLock], start_offset: int) -> Iterator[Piece]:
    """Cut batches and locks where one of the other begins or ends. Both ascend, and each is disjoint.

    Raises: InvalidState: the batches contradict themselves.
    """
    at_batch = 0
    lock = next(locks, None)
    at = expected = start_offset
    begin = end = checked = -1
    while at_batch < len(batches) or lock is not None:
        batch = batches[at_batch] if at_batch < len(batches) else None
        if batch is not None and at_batch != checked:
            _check(batch, expected)
            checked, expected = at_batch, batch.last_offset + 1
            if batch.first_offset > end:
                begin, end = batch.first_offset, _in_flight_end(batches, at_batch)
            if lock is None or batch.last_offset < lock.first_offset:  # as most of a large state
                yield batch.first_offset, batch.last_offset, batch, None, begin, end
                at = expected
                at_batch += 1
                continue
        first_of_batch = MAX_INT64 + 1 if batch is None else batch.first_offset
        first_of_lock = MAX_INT64 + 1 if lock is None else lock.first_offset
        at = max(at, min(first_of_batch, first_of_lock))
        last_of_batch = first_of_batch - 1 if batch is None or at < first_of_batch else batch.last_offset
        last_of_lock = first_of_lock - 1 if lock is None or at < first_of_lock else lock.last_offset
        last = min(last_of_batch, last_of_lock)
        lock_here = lock if at >= first_of_lock else None
        if at >= first_of_batch:
            yield at, last, batch, lock_here, begin, end
        else:
            yield at, last, None, lock_here, at, last
        at = last + 1
        if batch is not None and batch.last_offset < at:
            at_batch += 1
        if lock is not None and lock.last_offset < at:
            lock = next(locks, None)


def _in_flight_end(batches: Sequence[StateBatch], place: int) -> int:
    """The end of an in-flight batch that begins with a batch: neighbours of one state and count are one."""
    batch = batches[place]
    end = batch.last_offset
    for after in range(place + 1, len(batches)):
        following = batches[after]
        if (following.first_offset, following.delivery_state, following.delivery_count) != (
            end + 1,
            batch.delivery_state,
            batch.delivery_count,
        ):
            break
        end = following.last_offset
    return end
