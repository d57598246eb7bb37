"""Acquires records for a fetch: limits, both modes, read gaps, throttled redelivery. Pure. Source: KIP-932,
KIP-1206."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.types import MAX_INT64, AcquireMode, DeliveryState, OffsetRange
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, LogBatch, Run
from sharequeue_gateway.share_partition.window import Window


class AcquiredRange(NamedTuple):
    """A range that one member holds, the time at which its lock ends, and the length of the lock.

    `forgiven`: how many of its deliveries were never begun. The others are its attempts.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    lock_expires_at_ms: int
    lock_duration_ms: int
    forgiven: int = 0


class Acquisition:
    """The acquisition of one fetch from a share-partition, from one or more reads of the log.

    `acquired`: ascending and disjoint. `left`: the number of records that the limits of the last read still allow.
    """

    def __init__(
        self,
        window: Window,
        member_id: str,
        mode: AcquireMode,
        batch_size: int,
        now_ms: int,
        lock_duration_ms: int | None = None,
    ) -> None:
        """`lock_duration_ms`: the length of the locks; None: as the group's setting says."""
        self._window = window
        self._member_id = member_id
        self._mode = mode
        self._batch_size = batch_size
        self._batches: Sequence[LogBatch] = ()
        self._lasts: list[int] | None = None
        self._lock_duration_ms = lock_duration_ms or window.config.record_lock_duration_ms
        self._deadline_ms = now_ms + self._lock_duration_ms
        self._limit = window.config.delivery_count_limit
        self._spares_released = not window.config.throttle_released
        self._alone = False
        self._most_new = 0
        self.left = 0
        self.acquired: list[AcquiredRange] = []

    @property
    def over(self) -> bool:
        """Return whether nothing more may be acquired: the limits are used up, or throttled redelivery ends the
        call."""
        return self.left <= 0 or self._alone

    def acquire(
        self, batches: Sequence[LogBatch], *, fetch_offset: int, max_records: int, absent: Sequence[OffsetRange] = ()
    ) -> int:
        """Acquire records of the batches that were read from `fetch_offset` on, behind all earlier reads.

        Args:
            absent: offsets without a record. They are archived, in memory only, and cut out of the answer.
        Returns: how many more records the member holds now.
        """
        window = self._window
        self.left = 0
        if max_records <= 0 or not batches:
            return 0
        base, last = batches[0].base_offset, batches[-1].last_offset
        if last < window.start_offset:
            return 0
        left, self._most_new = room(window, fetch_offset)
        left = min(max_records, left)
        if left <= 0:
            return 0
        self.left = left
        if window.runs:
            if base > fetch_offset:
                window.discard(fetch_offset, base - 1)
                window.move_gap(base)
            next_offset = window.next_fetch_offset()  # nothing before it can be acquired
            base = max(base, next_offset if next_offset <= last else window.start_offset)
            if window.gap_start < 0:
                base = max(base, fetch_offset)  # what lies before it is left to the fetches that begin there
        else:
            base = max(base, window.end_offset)
        if not self._most_new:
            last = min(last, window.end_offset)
        self._batches, self._lasts = batches, None
        before = max(len(self.acquired) - 1, 0)  # the last one may grow
        if not window.runs or base > window.runs[-1].last:
            if base <= last:
                self.acquire_new(base, last)
        else:
            _walk(window, self, base, last)
        if absent:
            self._cut_absent(before, absent)
        return left - self.left

    # Records in the window

    def redeliver(self, acquirable: Sequence[Run], first: int, last: int) -> None:
        """Acquire the available records of one in-flight batch in first..last, throttled after many attempts."""
        most = self.left if self._mode is AcquireMode.RECORD_LIMIT else MAX_INT64  # batch_optimized takes whole batches
        threshold = max(2, -(-self._limit // 2))
        if max(run.delivery_count - run.forgiven for run in acquirable) >= threshold and any(
            self._failures(run) >= threshold for run in acquirable
        ):
            if not self.acquired:
                self._redeliver_throttled(acquirable, first, last, most, threshold)
            self._alone = True
            return
        for run in acquirable:
            begin = max(run.first, first)
            end = min(run.last, last, begin + most - 1)
            if end < begin:
                return
            most -= end - begin + 1
            self._take(run, begin, end)

    def _failures(self, run: Run) -> int:
        """Return how many attempts throttle a run: 0 if a living worker released it and the group spares such
        records."""
        return 0 if self._spares_released and run.released else run.attempt

    def _redeliver_throttled(self, acquirable: Sequence[Run], first: int, last: int, most: int, threshold: int) -> None:
        """Halve the deliveries of a batch with each further failure; a record's last delivery comes alone."""
        taken = 0
        last_attempt = self._limit - 1 if self._limit > 2 else -1
        bounded = False
        for run in acquirable:
            begin, end = max(run.first, first), min(run.last, last)
            failures = self._failures(run)
            if failures == last_attempt:
                if not taken:
                    self._take(run, begin, begin)
                return
            if not bounded and failures >= threshold:
                size = run.batch_last - run.batch_first + 1
                most = min(most, max(1, size >> (failures - threshold + 1)))
                bounded = True
            end = min(end, begin + most - taken - 1)
            if end < begin:
                return
            taken += end - begin + 1
            self._take(run, begin, end)

    def _take(self, run: Run, first: int, last: int) -> None:
        window = self._window
        run = window.cut_out(run, first, last)
        window.mark_taken(first)
        window.waiting_count -= run.size
        run.become(ACQUIRED)
        run.delivery_count += 1
        run.durable = False
        run.member_id = self._member_id
        run.lock_expires_at_ms = self._deadline_ms
        run.lock_duration_ms = self._lock_duration_ms
        if run.reason is not None:
            run.earlier, run.reason = window.reasons.history(run.earlier, run.reason), None
        window.held_count += run.size
        window.time_lock(self._deadline_ms, first, last)
        self.left -= last - first + 1
        if self.acquired:
            before = self.acquired[-1]
            same_batch = run.batch_first <= before.first_offset
            same_count = (before.delivery_count, before.forgiven) == (run.delivery_count, run.forgiven)
            if same_batch and before.last_offset + 1 == first and same_count:
                self.acquired[-1] = before._replace(last_offset=last)
                return
        self.acquired.append(
            AcquiredRange(first, last, run.delivery_count, self._deadline_ms, self._lock_duration_ms, run.forgiven)
        )

    # Records new to the window

    def acquire_new(self, first: int, last: int) -> int:
        """Acquire first..last as new batches, cut at the end of the log batch that reaches the limit.

        Returns: the last offset that came into the window.
        """
        window = self._window
        behind_end = not window.runs or first > window.runs[-1].last
        most = min(self.left, self._most_new) if behind_end else self.left
        if last - first + 1 > most:
            last = min(last, self._log_batch_end(first + most - 1))
        was_first = not window.runs or first < window.runs[0].first
        if self._mode is AcquireMode.RECORD_LIMIT:
            end = min(last, first + most - 1)
            self._insert(first, end, ACQUIRED, first, last)
            if end < last:
                self._insert(end + 1, last, AVAILABLE, first, last)
        else:
            for begin, end in self._entries(first, last):
                self._insert(begin, end, ACQUIRED, begin, end)
        if was_first:
            window.start_offset = first
        return last

    def _insert(self, first: int, last: int, state: DeliveryState, batch_first: int, batch_last: int) -> None:
        window = self._window
        if state is ACQUIRED:
            run = Run(first, last, ACQUIRED, 1, batch_first, batch_last)
            run.member_id = self._member_id
            run.lock_expires_at_ms = self._deadline_ms
            run.lock_duration_ms = self._lock_duration_ms
            window.held_count += last - first + 1
            window.time_lock(self._deadline_ms, first, last)
            self.left -= last - first + 1
            self.acquired.append(AcquiredRange(first, last, 1, self._deadline_ms, self._lock_duration_ms))
        else:
            run = Run(first, last, AVAILABLE, 0, batch_first, batch_last)
            window.waiting_count += last - first + 1
            window.mark_available(first)
            window.new_from = min(window.new_from, first)
        window.insert(run)

    def _log_batch_end(self, offset: int) -> int:
        """The last offset of the log batch that holds `offset`; `offset` itself if no batch holds it."""
        if self._lasts is None:
            self._lasts = [batch.last_offset for batch in self._batches]
        index = bisect_left(self._lasts, offset)
        if index == len(self._lasts) or self._batches[index].base_offset > offset:
            return offset
        return self._lasts[index]

    def _entries(self, first: int, last: int) -> list[tuple[int, int]]:
        """Split at log batch boundaries into entries of at least `batch_size` offsets."""
        batch_size = self._batch_size
        if last - first + 1 <= batch_size:
            return [(first, last)]
        entries = []
        begin = first
        for batch in self._batches:
            if batch.last_offset < first:
                continue
            if batch.base_offset > last:
                break
            if batch.base_offset - begin >= batch_size:
                entries.append((begin, batch.base_offset - 1))
                begin = batch.base_offset
        entries.append((begin, last))
        return entries

    # Offsets without a record

    def _cut_absent(self, before: int, absent: Sequence[OffsetRange]) -> None:
        """Archive offsets without a record, except those that other members hold and may still acknowledge."""
        window, acquired = self._window, self.acquired[before:]
        for first, last in absent:
            for run in list(window.overlapping(first, last)):
                if run.acquirable or _covered(run.first, acquired):
                    window.archive(window.cut_out(run, first, last))
        window.advance()
        kept = cut(acquired, absent)
        self.acquired[before:] = kept
        self.left += _size(acquired) - _size(kept)


def can_acquire(window: Window) -> bool:
    """Return whether a fetch may acquire: the group is not paused, and the limits leave room or records wait to be
    delivered again."""
    if window.config.paused:
        return False
    left, new = room(window, window.end_offset + 1)
    if new > 0:
        return True
    fetch_offset = window.next_fetch_offset()
    if fetch_offset > window.end_offset:
        return False
    left, _ = room(window, fetch_offset)
    return left > 0


def room(window: Window, fetch_offset: int) -> tuple[int, int]:
    """Return how many more records the limits allow, and how many of them may be new: from behind the end.

    The lock limit counts what is held, but for records that the log has lost. What waits has a bound of its own, which
    stops new records alone: every record that was taken may be released. `bounds.limited_by` names the limit that is in
    the way.
    """
    config = window.config
    if config.count_span:
        left = config.partition_max_record_locks - window.span
        if left > 0:
            return left, left
        return (window.end_offset - fetch_offset + 1, 0) if fetch_offset <= window.end_offset else (0, 0)
    left = config.partition_max_record_locks - window.held_count
    if left <= 0 and window.runs and len(window.runs) < config.max_runs:
        left += window.lost_held_count()
    if left <= 0:
        return 0, 0
    if not window.span:  # it is empty, or all of it lies below the start offset, so all that is read is new
        return left, left
    new = left + config.partition_max_delayed_records - window.waiting_count
    if (
        new <= 0
        or window.crowded
        or len(window.runs) >= config.max_runs
        or window.end_offset - window.start_offset >= config.max_span
    ):
        return left, 0
    return left, min(left, new)


def _walk(window: Window, acquisition: Acquisition, base: int, last: int) -> None:
    """Acquire from the in-flight batches that overlap base..last, from unread holes, and then behind the window."""
    position = base
    while position <= last and not acquisition.over:
        index = window.index_of(position)
        if index < 0 or window.runs[index].last < position:
            index += 1
        if index == len(window.runs):
            acquisition.acquire_new(position, last)
            position = last + 1
            break
        run = window.runs[index]
        if run.first > last:
            if position == base:
                acquisition.acquire_new(position, last)
            elif 0 <= window.gap_start < run.first:
                _fill(window, acquisition, position, last)
            position = last + 1 if not acquisition.over else position
            break
        if run.first > position and 0 <= window.gap_start < run.first:
            position = _fill(window, acquisition, position, run.first - 1)
            continue
        acquirable = window.available_of_batch(index, last)
        end = run.last
        if acquirable:
            end = acquirable[-1].last
            acquisition.redeliver(acquirable, base, last)
        if acquisition.over:
            break
        position = window.acquirable_from(end + 1)
    if window.gap_start >= 0:
        reached = acquisition.acquired[-1].last_offset + 1 if acquisition.acquired else window.gap_start
        window.move_gap(reached if acquisition.over else max(reached, position))


def _fill(window: Window, acquisition: Acquisition, first: int, last: int) -> int:
    """Acquire an unread hole. Returns: the offset at which to continue."""
    first = max(first, window.gap_start)
    if first > last:
        return last + 1
    return acquisition.acquire_new(first, last) + 1 if not acquisition.over else first


def _covered(offset: int, acquired: Sequence[AcquiredRange]) -> bool:
    index = bisect_right(acquired, offset, key=lambda entry: entry.first_offset) - 1
    return index >= 0 and offset <= acquired[index].last_offset


def cut(acquired: Sequence[AcquiredRange], absent: Sequence[OffsetRange]) -> list[AcquiredRange]:
    """Remove ranges from acquired ones. Both ascend and are disjoint."""
    kept = []
    for entry in acquired:
        first = entry.first_offset
        for gone_first, gone_last in absent:
            if gone_last < first or gone_first > entry.last_offset:
                continue
            if gone_first > first:
                kept.append(entry._replace(first_offset=first, last_offset=gone_first - 1))
            first = gone_last + 1
        if first <= entry.last_offset:
            kept.append(entry._replace(first_offset=first))
    return kept


def _size(ranges: Sequence[AcquiredRange]) -> int:
    return sum(entry.last_offset - entry.first_offset + 1 for entry in ranges)
