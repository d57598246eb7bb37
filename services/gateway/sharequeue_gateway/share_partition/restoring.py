"""Restores a window from persisted state and from the locks of an earlier leader. Pure. Source: KIP-932."""

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from sharequeue.protocol.state_columns import StatePage
from sharequeue.protocol.types import MAX_INT64, DeliveryState, StateAnnotation, StateBatch
from sharequeue_gateway.share_partition.restored_page import (
    NOTHING,
    InvalidState,
    OpenBatch,
    Ranges,
    add_runs,
    ranges_in,
)
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, TERMINAL, Hold, LiveRun, RestoredLock, Run
from sharequeue_gateway.share_partition.window import Window

STEP_RUNS: Final = 200
"""Runs of one step: about 1 ms."""
BULK_RUNS: Final = 1000
"""Runs of one step in a stretch without locks: less than 1 ms."""
TIMED_AT_ONCE: Final = 2048
"""Ends of delays that are sorted at once."""
STATES: Final = {int(state): state for state in DeliveryState}


class Restoring:
    """Fills an empty window from the pages of a state, which come in order, and from the locks.

    A lock is live only where its delivery count is above the persisted one: otherwise its end is already durable. A
    deadline is at most the length of its own lock away: the clock of the earlier leader may have been ahead. A lock
    past its deadline gives an AVAILABLE record with that count, which waits as if its end had been seen in time: the
    backoff counts from the deadline. An ended lock (member "") has the end of that wait as its deadline. At the
    delivery limit both stay due locks, which `expire` ends. Holes become the gap that is read again.
    """

    def __init__(self, window: Window, locks: Sequence[RestoredLock], now_ms: int) -> None:
        self._window = window
        self._locks = sorted(locks)
        self._now_ms = now_ms
        self._expected = window.start_offset
        self._left = NOTHING
        """Batches of a page that a lock touches which reaches into the next page."""
        self._open: OpenBatch | None = None
        """The last in-flight batch of the pages."""
        self._pending = False
        """Whether transactions decide about batches of the pages."""
        self._deadlines: list[tuple[int, int, int]] = []

    def add_page(self, page: StatePage, *, last: bool) -> Iterator[None]:
        """Add a page, in steps of at most BULK_RUNS runs. `last`: it is the last one.

        Batches that no lock touches need no cut. Only those that a lock of the next page touches are held back: an
        in-flight batch that goes on there gets its end when it is known.

        Raises: InvalidState: the page contradicts itself, or begins before the last one ends.
        """
        ranges = ranges_in(page, self._window)
        if ranges.firsts:
            if ranges.firsts[0] < self._expected:
                raise InvalidState(f"persisted state batch {ranges.firsts[0]}-{ranges.lasts[0]} is out of place")
            self._expected = ranges.lasts[-1] + 1
        self._pending = self._pending or bool(page.transactions)
        yield
        ranges = ranges.behind(self._left).in_flight(self._open)
        yield
        self._end_open_batch(ranges, last=last)
        count = stop = len(ranges.firsts)
        place = 0
        for low, high in _locked(self._locks, ranges):
            if high == count and not last:
                stop = low
                break
            yield from self._add_stretch(ranges, place, low)
            until = MAX_INT64 if high == count else ranges.firsts[high]
            yield from self._add_pieces(ranges.part(low, high), until, ranges)
            place = high
        yield from self._add_stretch(ranges, place, stop)
        self._left = ranges.part(stop)
        if stop:
            begin, end, outcome = ranges.begins[stop - 1], ranges.lasts[stop - 1], ranges.outcomes[stop - 1]
            self._open = OpenBatch(begin, end, outcome, begin < ranges.firsts[0])
        if last:
            yield from self._end()

    def _add_stretch(self, ranges: Ranges, start: int, end: int) -> Iterator[None]:
        """Add batches that no lock touches."""
        window, now_ms = self._window, self._now_ms
        for begin in range(start, end, BULK_RUNS):
            some = ranges.part(begin, min(begin + BULK_RUNS, end))
            if self._pending:
                batches, notes = some.state_batches(), iter(some.annotations())
                for batch, noted in zip(batches, some.notes, strict=True):
                    note = None if noted is None else next(notes)
                    in_flight = ranges.in_flight_batch(batch)
                    first, last = batch.first_offset, batch.last_offset
                    _add(window, first, last, batch, None, note, now_ms, in_flight, untold=note is None)
            else:
                add_runs(window, some, now_ms, self._deadlines)
            if len(self._deadlines) >= TIMED_AT_ONCE:
                window.time_locks(self._deadlines)
            yield

    def _end_open_batch(self, ranges: Ranges, *, last: bool) -> None:
        """Tell the runs of the last in-flight batch where it ends, if this page says that and did not begin it."""
        open_batch = self._open
        if open_batch is None:
            return
        end = ranges.ends[0] if ranges.joins(open_batch) else open_batch.last_offset
        goes_on = not last and bool(ranges.firsts) and end == ranges.lasts[-1]
        if goes_on or (end == open_batch.last_offset and not open_batch.spans):
            return
        runs = self._window.runs
        for place in range(self._window.index_of(open_batch.first_offset), len(runs)):
            run = runs[place]
            if isinstance(run, LiveRun) and run.batch_first == open_batch.first_offset:
                run.batch_last = end

    def _end(self) -> Iterator[None]:
        """All pages are added."""
        self._window.time_locks(self._deadlines)
        yield
        if self._window.runs:
            _find_gap(self._window)
            yield
            yield from self._window.mark_all()
            yield

    def _add_pieces(self, some: Ranges, until: int, ranges: Ranges) -> Iterator[None]:
        """Add batches that locks touch. The locks from `until` on wait. `ranges`: the page, with in-flight batches."""
        window, now_ms = self._window, self._now_ms
        notes = iter(some.annotations())
        note = next(notes, None)
        left: list[StateAnnotation] = []
        pieces = Pieces(window.start_offset, some.state_batches(), self._locks, until)
        for number, (first, end, persisted, lock) in enumerate(pieces):
            while note is not None and note.last_offset < first:
                left.append(note)
                note = next(notes, None)
            whole = note is not None and lock is None and note.first_offset == first and note.last_offset == end
            untold = note is None or note.first_offset > end
            in_flight = (first, end) if persisted is None else ranges.in_flight_batch(persisted)
            _add(window, first, end, persisted, lock, note if whole else None, now_ms, in_flight, untold=untold)
            if whole:
                note = next(notes, None)
            if number % STEP_RUNS == 0:
                yield
        self._locks = list(pieces.locks_left)
        if note is not None:
            left.append(note)
        left += notes
        for number, annotation in enumerate(left):
            _annotate(window, annotation, now_ms)
            if number % STEP_RUNS == 0:
                yield


def _locked(locks: Sequence[RestoredLock], ranges: Ranges) -> Iterator[tuple[int, int]]:
    """The places of the batches that locks touch, ascending: from the first of them, to the one behind the last."""
    firsts, lasts = ranges.firsts, ranges.lasts
    at = 0
    while at < len(locks):
        low = high = bisect_left(lasts, locks[at].first_offset)
        reach = locks[at].last_offset
        at += 1
        while True:
            if at < len(locks) and locks[at].first_offset <= reach:
                reach = max(reach, locks[at].last_offset)
                at += 1
            elif high < len(firsts) and firsts[high] <= reach:
                reach = max(reach, lasts[high])
                high += 1
            else:
                break
        yield low, high


class Pieces:
    """The pieces of the window that end below `until`, each with its batch and its live lock, ascending.

    Only where locks lie are batches cut. `locks_left`: those that reach `until`, when the iterator has ended.
    """

    def __init__(
        self, start_offset: int, batches: Sequence[StateBatch], locks: Sequence[RestoredLock], until: int
    ) -> None:
        """`batches`, `locks`: both ascending. The batches end below `until`."""
        self._start_offset = start_offset
        self._until = until
        self._batches = batches
        self.locks_left = locks

    def __iter__(self) -> Iterator[tuple[int, int, StateBatch | None, RestoredLock | None]]:
        batches, locks, until = self._batches, self.locks_left, self._until
        at_batch = at_lock = 0
        while at_batch < len(batches) or at_lock < len(locks):
            batch = batches[at_batch] if at_batch < len(batches) else None
            if batch is not None and (at_lock == len(locks) or batch.last_offset < locks[at_lock].first_offset):
                at_batch += 1
                yield batch.first_offset, batch.last_offset, batch, None
                continue
            next_batch, next_lock, reach = at_batch, at_lock + 1, locks[at_lock].last_offset
            while True:
                if next_lock < len(locks) and locks[next_lock].first_offset <= reach:
                    reach = max(reach, locks[next_lock].last_offset)
                    next_lock += 1
                elif next_batch < len(batches) and batches[next_batch].first_offset <= reach:
                    reach = max(reach, batches[next_batch].last_offset)
                    next_batch += 1
                else:
                    break
            if reach >= until:
                break
            yield from _pieces(self._start_offset, batches[at_batch:next_batch], locks[at_lock:next_lock])
            at_batch, at_lock = next_batch, next_lock
        self.locks_left = locks[at_lock:]


def _add(
    window: Window,
    first: int,
    last: int,
    batch: StateBatch | None,
    lock: RestoredLock | None,
    note: StateAnnotation | None,
    now_ms: int,
    in_flight: tuple[int, int],
    *,
    untold: bool,
) -> None:
    """Add a run. `note`: about exactly this run, if there is one. `untold`: there is none about any part of it.
    `in_flight`: the ends of its in-flight batch."""
    state = AVAILABLE if batch is None else STATES[batch.delivery_state]
    count = 0 if batch is None else batch.delivery_count
    if last == first:
        last = first  # one number in memory: most runs of a large window are single records
    batch_first, batch_last = in_flight
    if in_flight == (first, last):
        batch_first, batch_last = first, last
    if untold and state in TERMINAL:
        run = Run(first, last, state, count)
    else:
        run = LiveRun(first, last, state, count, batch_first, batch_last)
        run.durable = lock is None
    if lock is not None:
        run.delivery_count = lock.delivery_count
        run.forgiven = lock.forgiven
        deadline_ms = max(now_ms, min(lock.deadline_ms, now_ms + lock.lock_duration_ms)) if lock.member_id else now_ms
        if deadline_ms > now_ms or run.attempt >= window.config.delivery_count_limit:
            run.become(ACQUIRED)
            run.member_id = lock.member_id
            run.lock_expires_at_ms = deadline_ms
            run.lock_duration_ms = lock.lock_duration_ms
            window.time_lock(deadline_ms, first, last)
        else:
            ended = not lock.member_id
            _delay(
                window, run, lock.deadline_ms if ended else window.retry_at_ms(run, lock.deadline_ms, now_ms), now_ms
            )
    elif note is not None:
        _note(window, run, note, now_ms)
    window.insert(run)
    window.count(run, 1)
    if not run.delivery_count:
        window.new_from = min(window.new_from, first)
    if state in TERMINAL:
        window.count_terminal(run, 1)


def _pieces(
    start_offset: int, batches: Sequence[StateBatch], locks: Sequence[RestoredLock]
) -> list[tuple[int, int, StateBatch | None, RestoredLock | None]]:
    """Cut offsets where a batch or lock begins or ends. Returns: each piece with its batch and its live lock."""
    cuts = {start_offset}
    for first, last, *_ in locks:
        cuts.update((max(first, start_offset), max(last + 1, start_offset)))
    for batch in batches:
        cuts.update((batch.first_offset, batch.last_offset + 1))
    places = sorted(cuts)
    waiting = sorted(locks, reverse=True)
    open_locks: list[tuple[int, int, int, RestoredLock]] = []
    pieces: list[tuple[int, int, StateBatch | None, RestoredLock | None]] = []
    position = 0
    for first, after in itertools.pairwise(places):
        while waiting and waiting[-1].first_offset <= first:
            lock = waiting.pop()
            heapq.heappush(open_locks, (-lock.delivery_count, -lock.deadline_ms, lock.last_offset, lock))
        while open_locks and open_locks[0][2] < first:
            heapq.heappop(open_locks)
        while position < len(batches) and batches[position].last_offset < first:
            position += 1
        covers = position < len(batches) and batches[position].first_offset <= first
        found = batches[position] if covers else None
        best = open_locks[0][3] if open_locks else None
        terminal = found is not None and found.delivery_state != AVAILABLE
        if best is not None and (terminal or best.delivery_count <= (found.delivery_count if found else 0)):
            best = None
        if found is not None or best is not None:
            pieces.append((first, after - 1, found, best))
    return pieces


def _annotate(window: Window, note: StateAnnotation, now_ms: int) -> None:
    for run in list(window.overlapping(note.first_offset, note.last_offset)):
        part = window.cut_out(run, note.first_offset, note.last_offset)
        window.count(part, -1)
        _note(window, part, note, now_ms)
        window.count(part, 1)


def _note(window: Window, run: Run, note: StateAnnotation, now_ms: int) -> None:
    """What a note says about a run, whose offsets it covers. The caller counts the run.

    The lasting fields hold for an unfinished run. The others belong to one delivery, by its count: if a later one is in
    flight, or ended in memory alone, the reason is an earlier one.
    """
    reason = None
    if note.reason is not None:
        reason = window.reasons.given(note.reason, note.reason_at_ms or 0)
    last = run.delivery_count == note.delivery_count and run.state is not ACQUIRED
    if run.state not in TERMINAL:
        run.forgiven = max(run.forgiven, note.forgiven)
        if note.earlier_reasons or not last:
            run.earlier = window.reasons.history(note.earlier_reasons, None if last else reason)
    if last:
        run.reason = reason
        run.released = reason is not None  # a lock that ends has none
        if run.state is AVAILABLE:
            _delay(window, run, note.available_at_ms or 0, now_ms)
    if note.transaction_id is not None and run.state not in TERMINAL:
        _hold(window, run, note.delivery_count + 1, note.transaction_id, now_ms)


def _hold(window: Window, run: Run, delivery_count: int, transaction_id: str, now_ms: int) -> None:
    """Restore a pending delivery: with its lock, or with one that has ended if there is none.
    The caller counts the run.

    A lock of another delivery is later than the transaction, whose outcome cannot concern it.
    """
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


def _delay(window: Window, run: Run, available_at_ms: int, now_ms: int) -> None:
    """Restore a delay, unless it is over. The caller counts the run."""
    if available_at_ms > now_ms:
        run.available_at_ms = available_at_ms
        window.time_lock(available_at_ms, run.first, run.last)


def _find_gap(window: Window) -> None:
    expected = window.start_offset
    records = window.held_count + window.waiting_count + window.delivery_complete_count
    if records == window.end_offset - window.start_offset + 1:
        return  # the runs cover all offsets
    for run in window.runs:
        if run.first > expected:
            window.gap_start, window.gap_end = expected, window.end_offset
            return
        expected = run.last + 1
