"""The window of a share-partition: its runs, its offsets and its counts. Pure. Source: KIP-932.

`start_offset` (SPSO): the first offset that is not finished. `end_offset`: the last offset that was ever fetched into
the window; both are the next offset to fetch while the window is empty. Offsets between two runs are a hole. The log
has no record in a natural hole. After a load, holes between `gap_start` and `gap_end` are unread: records may lie
there. The page of this folder draws a window with both.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import MAX_INT64
from sharequeue_gateway.share_partition import backoff
from sharequeue_gateway.share_partition.reasons import Reasons
from sharequeue_gateway.share_partition.runs import ARCHIVED, AVAILABLE, REJECTED, DeadLetter, Hold, Run

_first = attrgetter("first")
_HEAP_SLACK = 64
_NEAR = 32
"""One read covers up to this many offsets that cannot be acquired. If there are more, two reads go around them."""


@dataclass(slots=True, eq=False)
class Window:
    """Runs in flight. Its methods keep the counts correct; they decide no rule of the protocol."""

    config: ShareGroupConfig
    start_offset: int
    jitter_seed: int = 0
    """See `backoff.py`."""
    end_offset: int = field(init=False)
    memory_start: int = field(init=False)
    """Ends below it may stand in memory alone, until a start offset of at least this is durable."""
    removed_unread: int = field(init=False, default=0)
    """Offsets that left the log before a member got them, or while they waited for another delivery."""
    runs: list[Run] = field(init=False, default_factory=list)
    holds: dict[str, dict[Hold, None]] = field(init=False, default_factory=dict)
    """The holds by their transaction: see `pending.py`."""
    delivery_complete_count: int = field(init=False, default=0)
    held_count: int = field(init=False, default=0)
    """Records that a member holds, that are ARCHIVING, or whose change of state is not durable yet."""
    waiting_count: int = field(init=False, default=0)
    """Records that are AVAILABLE and nobody holds: those with a delay, and those to deliver (again)."""
    delayed_count: int = field(init=False, default=0)
    """Those of `waiting_count` whose delay has not ended."""
    crowded: bool = field(init=False, default=False)
    """Whether the gateway has too many runs, and this window more than its part: new records wait."""
    new_turn: int = field(init=False, default=0)
    """How far fetches have come towards one that begins at new records, in percent. See `new_records.py`."""
    new_from: int = field(init=False, default=MAX_INT64)
    """No run before it is AVAILABLE and was never delivered."""
    gap_start: int = field(init=False, default=-1)
    """-1 if there is no gap: every hole is natural."""
    gap_end: int = field(init=False, default=-1)
    _available: list[int] = field(init=False, default_factory=list)
    """The first offsets of the runs that can be acquired, ascending."""
    _deadlines: list[tuple[int, int, int]] = field(init=False, default_factory=list)
    """A heap of (deadline, first offset, last offset)."""
    _reasons: Reasons | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.end_offset = self.memory_start = self.start_offset

    # The present state

    @property
    def span(self) -> int:
        """Offsets from start to end, gaps and finished ones included: Kafka's in-flight count."""
        return self.end_offset - self.start_offset + 1 if self.runs and self.runs[-1].last >= self.start_offset else 0

    def index_of(self, offset: int) -> int:
        """Index of the last run that begins at or before `offset`; -1 if none does."""
        return bisect_right(self.runs, offset, key=_first) - 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that share an offset with first..last. Each is looked up when the iterator reaches it."""
        index = max(self.index_of(first), 0)
        while index < len(self.runs) and self.runs[index].first <= last:
            run = self.runs[index]
            index += 1
            if run.last >= first:
                yield run

    def cut_out(self, run: Run, first: int, last: int) -> Run:
        """Split `run` so that one run is exactly its part in first..last. Returns: that run."""
        if run.first < first:
            run = self._split(run, first)
        if run.last > last:
            self._split(run, last + 1)
        return run

    def _split(self, run: Run, offset: int) -> Run:
        right = run.split(offset)
        self.runs.insert(self.index_of(run.first) + 1, right)
        if right.state is AVAILABLE and right.acquirable:
            self.mark_available(offset)
        return right

    def insert(self, run: Run) -> None:
        """Add a run of offsets that no other run covers. The caller counts it."""
        if not self.runs or run.first > self.runs[-1].last:
            self.runs.append(run)
        else:
            self.runs.insert(self.index_of(run.first) + 1, run)
        self.end_offset = max(self.end_offset, run.last)
        if self.gap_start >= 0 and run.last > self.gap_end:
            self.gap_start = self.gap_end = -1

    def restore(self, runs: list[Run], available: list[int], deadlines: list[tuple[int, int, int]]) -> None:
        """Take the runs of an earlier leader, ascending; the first offsets of those that can be acquired; and the ends
        of locks and delays. The caller counts the runs."""
        self.runs, self._available, self._deadlines = runs, available, deadlines
        heapq.heapify(deadlines)
        if runs:
            self.end_offset = runs[-1].last
            self.gap_end = self.end_offset if self.gap_start >= 0 else -1

    # Next fetch offset

    def mark_available(self, first: int) -> None:
        """The run that begins at `first` can be acquired from now on."""
        index = bisect_left(self._available, first)
        if index == len(self._available) or self._available[index] != first:
            self._available.insert(index, first)

    def mark_taken(self, first: int) -> None:
        """The run that begins at `first` cannot be acquired any more. It need not have been acquirable."""
        index = bisect_left(self._available, first)
        if index < len(self._available) and self._available[index] == first:
            del self._available[index]

    def available_of_batch(self, index: int, last: int) -> list[Run]:
        """The acquirable runs of one in-flight batch, from the run at `index` up to the offset `last`."""
        found = []
        batch_first = self.runs[index].batch_first
        for run in self._available_from(self.runs[index].first, index):
            if run.first > last or run.batch_first != batch_first:
                break
            found.append(run)
        return found

    def _available_from(self, offset: int, index: int) -> Iterator[Run]:
        """The runs that can be acquired and begin at or behind an offset, whose run is at `index`."""
        runs, available = self.runs, self._available
        for place in range(bisect_left(available, offset), len(available)):
            first = available[place]
            if runs[index].first != first:
                index += 1
                if runs[index].first != first:
                    index = self.index_of(first)
            yield runs[index]

    def next_fetch_offset(self) -> int:
        """The offset at which the log is read next: the first unread hole or AVAILABLE record, else the one behind the
        end."""
        hole = self._first_hole() if self.gap_start >= 0 else None
        if self._available:
            return self._available[0] if hole is None else min(hole, self._available[0])
        if hole is not None:
            return hole
        if not self.runs or self.start_offset > self.runs[-1].last:
            return self.end_offset
        return self.end_offset + 1

    def ahead(self) -> tuple[int | None, int | None]:
        """The first offset that a fetch would get (None: the start offset), and the first delayed one (None: there is
        none)."""
        ready = self.next_fetch_offset()
        delayed = next((run.first for run in self.runs if run.available_at_ms), None) if self.delayed_count else None
        return ready if ready > self.start_offset else None, delayed

    def first_new(self) -> int:
        """The first offset that was never delivered: of a run that can be acquired, or the one behind the end.

        `new_from` moves up to it, so that the next call begins there.
        """
        for run in self._available_from(self.new_from, self.index_of(self.new_from)):
            if not run.delivery_count:
                self.new_from = run.first
                return run.first
        self.new_from = MAX_INT64
        return self.end_offset + 1

    def acquirable_from(self, offset: int) -> int:
        """`offset`, or a later one if the window has nothing to acquire between the two."""
        index = bisect_left(self._available, offset)
        found = self._available[index] if index < len(self._available) else self.end_offset + 1
        if self.gap_start >= 0:
            hole = self._first_hole()
            found = found if hole is None else min(found, hole)
        return max(found, offset)

    def _first_hole(self) -> int | None:
        """The first offset of the gap that no run covers, so that it is unread. The gap then begins there.

            offsets   0       5       10      15      20
            runs      [ run ] [ run ]         [ run ]
            gap       ├───────────────────────────────┤        gap_start = 0
                      ╰──────────────▶ expected = 10           10 is returned; gap_start = 10

        `expected` is the offset behind the runs so far. A run that begins later leaves a hole at `expected`. Without
        any hole the gap is over.
        """
        expected = max(self.gap_start, self.start_offset)
        for index in range(max(self.index_of(expected), 0), len(self.runs)):
            run = self.runs[index]
            if run.first > expected:
                self.gap_start = expected
                return expected
            expected = max(expected, run.last + 1)
        self.gap_start = self.gap_end = -1
        return None

    def reach(self, offset: int, most: int) -> int:
        """The number of offsets to read from the next fetch offset, to get `most` records that can be acquired.

        The read stops before a long stretch of records that cannot be acquired, and then brings fewer.
        """
        if self.gap_start >= 0 or not self._available or offset != self._available[0]:
            return most
        last, found = offset - 1, 0
        for run in self._available_from(offset, self.index_of(offset)):
            if run.first - last > _NEAR:
                return last - offset + 1
            last = run.last
            found += run.size
            if found >= most:
                return last - offset + 1
        if self.end_offset - last < _NEAR:
            return self.end_offset - offset + 1 + most - found
        return last - offset + 1

    def move_gap(self, offset: int) -> None:
        """Everything below `offset` has been read."""
        if 0 <= self.gap_start < offset:
            self.gap_start = offset
            if offset > self.gap_end:
                self.gap_start = self.gap_end = -1

    # Time

    def time_lock(self, deadline_ms: int, first: int, last: int) -> None:
        if len(self._deadlines) > _HEAP_SLACK + 2 * len(self.runs):
            self._deadlines = [
                (run.lock_expires_at_ms or run.available_at_ms, run.first, run.last)
                for run in self.runs
                if run.lock_expires_at_ms or run.available_at_ms
            ]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline_ms, first, last))

    def next_deadline_ms(self) -> int | None:
        """The time at which the next lock or delay may end. It is never late, but may be of a lock that has already
        ended."""
        if not self.held_count and not self.delayed_count:
            self._deadlines.clear()
        return self._deadlines[0][0] if self._deadlines else None

    def pop_due(self, now_ms: int) -> tuple[int, int] | None:
        """A range in which something may be due."""
        heap = self._deadlines
        if not heap or heap[0][0] > now_ms:
            return None
        _, first, last = heapq.heappop(heap)
        return first, last

    # Changes that need no write

    def is_last_attempt(self, run: Run) -> bool:
        """Return whether the delivery limit, as it is now, allows no delivery after the last one of these records."""
        return run.attempt >= self.config.delivery_count_limit

    def retry_at_ms(self, run: Run, ended_at_ms: int, now_ms: int) -> int:
        """The end of the wait after a delivery that ended; 0: there is none, or it is over."""
        at_ms = backoff.retry_at_ms(self.config, self.jitter_seed, run.batch_first, run.attempt, ended_at_ms)
        return at_ms if at_ms > now_ms else 0

    @property
    def reasons(self) -> Reasons:
        if self._reasons is None:
            self._reasons = Reasons()
        return self._reasons

    def offer(self, run: Run) -> bool:
        """A run that was held is AVAILABLE now, for good. Returns: whether it can be acquired: it is not delayed."""
        self.held_count -= run.size
        self.waiting_count += run.size
        if run.available_at_ms:
            self.delayed_count += run.size
            self.time_lock(run.available_at_ms, run.first, run.last)
            return False
        self.mark_available(run.first)
        return True

    def end_delay(self, run: Run) -> None:
        """A delayed release takes effect: its records can be acquired."""
        run.available_at_ms = 0
        self.delayed_count -= run.size
        self.mark_available(run.first)

    def count(self, run: Run, sign: int) -> None:
        """Count the records of a run as held or waiting: 1 before its state counts, -1 before it changes."""
        records = sign * run.size
        if run.held:
            self.held_count += records
        elif run.state is AVAILABLE:
            self.waiting_count += records
            if run.available_at_ms:
                self.delayed_count += records

    def lost_held_count(self) -> int:
        """Return how many held records lie below the start offset: the log has lost them, and their locks have not
        ended."""
        lost = 0
        for run in self.runs:
            if run.first >= self.start_offset:
                break
            lost += (min(run.last, self.start_offset - 1) - run.first + 1) if run.held else 0
        return lost

    def count_terminal(self, run: Run, sign: int) -> None:
        """Count the part of a run at or above the start offset that becomes terminal. `sign`: -1 for a roll-back."""
        self.delivery_complete_count += sign * max(0, run.last - max(run.first, self.start_offset) + 1)

    def discard(self, first: int, last: int) -> None:
        """Archive AVAILABLE records of a range that the log has lost, in memory only."""
        for run in list(self.overlapping(first, last)):
            if run.state is AVAILABLE:
                part = self.cut_out(run, first, last)
                self.removed_unread += part.size
                self.archive(part)

    def archive(self, run: Run) -> None:
        """Archive a run without a record, in memory only."""
        self.mark_taken(run.first)
        self.count(run, -1)
        run.write = None
        run.available_at_ms = 0
        run.unlock()
        run.become(ARCHIVED)
        self.count_terminal(run, 1)

    def advance(self) -> bool:
        """Move the start offset over the finished runs at the head and drop them. Returns: whether it moved.

            runs      [finished][finished]  hole  [finished][ held ][finished]
                      ▲
            natural hole: the start moves over it         ────────▶ up to the held run
            unread hole (gap_start before the run behind it): ────▶ up to gap_start, where records may lie

        A window whose runs are all finished is empty afterwards, and its gap is over.
        """
        runs = self.runs
        if not runs:
            return False
        first = runs[0]
        if not first.finished or 0 <= self.gap_start < first.first:
            return False
        start_offset = self.start_offset
        count = 0
        expected = first.first
        for run in runs:
            if run.first > expected and 0 <= self.gap_start < run.first:
                expected = max(expected, self.gap_start)
                break
            if not run.finished:
                expected = run.first
                break
            count += 1
            expected = run.last + 1
        for run in runs[:count]:
            if run.delivery_count and not run.durable:
                self.memory_start = run.last + 1
            self.count_terminal(run, -1)
        if count == len(runs):
            self.start_offset = self.end_offset = max(expected, start_offset)
            self.gap_start = self.gap_end = -1
            self.delivery_complete_count = 0
        else:
            self.start_offset = max(start_offset, expected)
            self.move_gap(self.start_offset)
        del runs[:count]
        return self.start_offset != start_offset

    def merge_finished(self, run: Run) -> None:
        """Join a finished run with equal neighbours, so that a window behind a long lock stays small."""
        index = self.index_of(run.first)
        if index < 0 or self.runs[index] is not run or not run.finished:
            return
        for neighbour in (index + 1, index - 1):
            if 0 <= neighbour < len(self.runs):
                left, right = sorted((self.runs[index], self.runs[neighbour]), key=_first)
                same = (left.state, left.delivery_count, left.durable) == (
                    right.state,
                    right.delivery_count,
                    right.durable,
                )
                if same and left.last + 1 == right.first and left.finished and right.finished:
                    left.last = right.last
                    low = min(index, neighbour)
                    del self.runs[low + 1]
                    index = low

    def dead_letter(self, run: Run) -> DeadLetter:
        return DeadLetter(run.first, run.last, run.delivery_count, run.cause or REJECTED, run.reason, run.earlier)
