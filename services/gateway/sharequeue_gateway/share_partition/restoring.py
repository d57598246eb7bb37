"""Restores a window from persisted state and from the locks of an earlier leader. Pure. Source: KIP-932."""

import heapq
import itertools
from collections.abc import Sequence

from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import DeliveryState, StateAnnotation, StateBatch
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, TERMINAL, RestoredLock, Run
from sharequeue_gateway.share_partition.window import Window


class InvalidState(ApiError):
    """The persisted state contradicts itself, so the share-partition cannot be loaded."""


def restore(
    window: Window,
    state_batches: Sequence[StateBatch],
    annotations: Sequence[StateAnnotation],
    locks: Sequence[RestoredLock],
    now_ms: int,
) -> None:
    """Fill an empty window.

    A lock is live only where its delivery count is above the persisted one: otherwise its end is already durable. A
    deadline is at most the length of its own lock away: the clock of the earlier leader may have been ahead. A lock
    past its deadline gives an AVAILABLE record with that count, which waits as if its end had been seen in time: the
    backoff counts from the deadline. An ended lock (member "") has the end of that wait as its deadline. At the
    delivery limit both stay due locks, which `expire` ends. Holes become the gap that is read again.
    Raises: InvalidState: a batch that ends before it begins, begins below the start offset, or overlaps another.
    """
    start_offset = window.start_offset
    expected = start_offset
    for batch in sorted(state_batches):
        if batch.last_offset < batch.first_offset or batch.first_offset < expected:
            raise InvalidState(f"persisted state batch {batch.first_offset}-{batch.last_offset} is out of place")
        expected = batch.last_offset + 1
    for first, last, persisted, lock in _pieces(start_offset, sorted(state_batches), locks):
        _add(window, first, last, persisted, lock, now_ms)
    if not window.runs:
        return
    for annotation in annotations:
        _annotate(window, annotation, now_ms)
    _find_gap(window)
    window.mark_all()


def _add(
    window: Window, first: int, last: int, batch: StateBatch | None, lock: RestoredLock | None, now_ms: int
) -> None:
    state = AVAILABLE if batch is None else DeliveryState(batch.delivery_state)
    count = 0 if batch is None else batch.delivery_count
    batch_first, batch_last = (first, last) if batch is None else (batch.first_offset, batch.last_offset)
    run = Run(first, last, state, count, batch_first, batch_last)
    run.durable = lock is None
    if lock is not None:
        run.delivery_count = lock.delivery_count
        run.forgiven = lock.forgiven
        lock_duration_ms = lock.lock_duration_ms or window.config.record_lock_duration_ms
        deadline_ms = max(now_ms, min(lock.deadline_ms, now_ms + lock_duration_ms)) if lock.member_id else now_ms
        if deadline_ms > now_ms or run.attempt >= window.config.delivery_count_limit:
            run.become(ACQUIRED)
            run.member_id = lock.member_id
            run.lock_expires_at_ms = deadline_ms
            run.lock_duration_ms = lock_duration_ms
            window.time_lock(deadline_ms, first, last)
        else:
            ended = not lock.member_id
            _delay(
                window, run, lock.deadline_ms if ended else window.retry_at_ms(run, lock.deadline_ms, now_ms), now_ms
            )
    window.insert(run)
    window.count(run, 1)
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


def _annotate(window: Window, annotation: StateAnnotation, now_ms: int) -> None:
    for run in list(window.overlapping(annotation.first_offset, annotation.last_offset)):
        if annotation.forgiven > run.forgiven and run.state not in TERMINAL:
            run = window.cut_out(run, annotation.first_offset, annotation.last_offset)  # noqa: PLW2901
            run.forgiven = annotation.forgiven
        if run.delivery_count != annotation.delivery_count or run.state is ACQUIRED:
            continue
        part = window.cut_out(run, annotation.first_offset, annotation.last_offset)
        part.reason = annotation.reason
        part.released = annotation.reason is not None  # a lock that ends has none
        if part.state is AVAILABLE:
            window.count(part, -1)
            _delay(window, part, annotation.available_at_ms or 0, now_ms)
            window.count(part, 1)


def _delay(window: Window, run: Run, available_at_ms: int, now_ms: int) -> None:
    """Restore a delay, unless it is over. The caller counts the run."""
    if available_at_ms > now_ms:
        run.available_at_ms = available_at_ms
        window.time_lock(available_at_ms, run.first, run.last)


def _find_gap(window: Window) -> None:
    expected = window.start_offset
    for run in window.runs:
        if run.first > expected:
            window.gap_start, window.gap_end = expected, window.end_offset
            return
        expected = run.last + 1
