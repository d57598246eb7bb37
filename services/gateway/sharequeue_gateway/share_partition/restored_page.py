"""A page of a state in columns, as a window takes it: checked, and added without an object beside each run. Pure.

Most records of a large state have no lock. They become runs in one pass, without a search and without a cut. A batch
that a lock touches is cut at the ends of the lock, by `restoring.py`.
"""

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.state_columns import (
    STATES,
    StatePage,
    delays_ms_of,
    earlier_reasons_of,
    ranges_of,
    reasons_of,
    transactions_of,
)
from sharequeue.protocol.types import MAX_INT32, DeliveryState, GivenReason, Reason, StateAnnotation, StateBatch
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, TERMINAL, LiveRun, Run
from sharequeue_gateway.share_partition.window import Window

_NUMBERS: Final = frozenset(map(int, DeliveryState))


class InvalidState(ApiError):
    """The persisted state contradicts itself, so the share-partition cannot be loaded."""


Note = tuple[int, GivenReason | None, int, tuple[GivenReason, ...], str | None]
"""The note of a batch: the end of a delay (0 without one), the reason, the deliveries never begun, the
reasons of earlier deliveries, and the transaction. No named tuple: that would take five times as long to make."""


class Ranges(NamedTuple):
    """Batches of a page: lists with an entry for each of them.

    `begins`, `ends`: the ends of its in-flight batch. Neighbours of one state and count are one in-flight batch, whatever
    is noted about them.
    """  # noqa: W505

    firsts: Sequence[int]
    lasts: Sequence[int]
    outcomes: Sequence[int]
    notes: Sequence[Note | None]
    begins: Sequence[int] = ()
    ends: Sequence[int] = ()

    def part(self, start: int, end: int | None = None) -> "Ranges":
        firsts, lasts, outcomes, notes, begins, ends = self
        cut = slice(start, end)
        return Ranges(firsts[cut], lasts[cut], outcomes[cut], notes[cut], begins[cut], ends[cut])

    def behind(self, before: "Ranges") -> "Ranges":
        """These behind others. In-flight batches are not known."""
        if not before.firsts:
            return self
        return Ranges(
            [*before.firsts, *self.firsts],
            [*before.lasts, *self.lasts],
            [*before.outcomes, *self.outcomes],
            [*before.notes, *self.notes],
        )

    def in_flight(self, open_batch: "OpenBatch | None") -> "Ranges":
        """These with their in-flight batches. `open_batch`: the last one of the page before."""
        firsts, lasts, outcomes = self[:3]
        begins, ends = firsts, lasts
        touching: list[int] = []
        if any(map(operator.eq, outcomes, outcomes[1:])):
            pairs = zip(firsts[1:], lasts, outcomes[1:], outcomes, strict=False)
            touching = [
                place
                for place, (first, before, outcome, same) in enumerate(pairs, 1)
                if first == before + 1 and outcome == same
            ]
        joins = self.joins(open_batch)
        if touching or joins:
            begins, ends = list(firsts), list(lasts)
            if joins and open_batch is not None:
                begins[0] = open_batch.first_offset
            for place in touching:
                begins[place] = begins[place - 1]
            for place in reversed(touching):
                ends[place - 1] = ends[place]
        return self._replace(begins=begins, ends=ends)

    def joins(self, open_batch: "OpenBatch | None") -> bool:
        """Whether the first one belongs to the in-flight batch."""
        if open_batch is None or not self.firsts:
            return False
        return (self.firsts[0], self.outcomes[0]) == (open_batch.last_offset + 1, open_batch.outcome)

    def in_flight_batch(self, batch: StateBatch) -> tuple[int, int]:
        """The ends of the in-flight batch of one of these. Of one that is none of these: its own."""
        place = bisect_left(self.firsts, batch.first_offset)
        if place == len(self.firsts):
            return batch.first_offset, batch.last_offset
        return self.begins[place], self.ends[place]

    def state_batches(self) -> list[StateBatch]:
        return [
            StateBatch(first, last, outcome % STATES, outcome // STATES)
            for first, last, outcome in zip(self.firsts, self.lasts, self.outcomes, strict=True)
        ]

    def annotations(self) -> list[StateAnnotation]:
        return [
            annotation_of(first, last, outcome // STATES, note)
            for first, last, outcome, note in zip(self.firsts, self.lasts, self.outcomes, self.notes, strict=True)
            if note is not None
        ]


class OpenBatch(NamedTuple):
    """An in-flight batch that may go on in the next page. `spans`: it began in a page before the last one."""

    first_offset: int
    last_offset: int
    outcome: int
    spans: bool


NOTHING: Final = Ranges((), (), (), ())


def annotation_of(first: int, last: int, delivery_count: int, note: Note) -> StateAnnotation:
    available_at_ms, given, forgiven, earlier, transaction_id = note
    reason, at_ms = (None, None) if given is None else (given.reason, given.at_ms or None)
    return StateAnnotation(
        first, last, delivery_count, available_at_ms or None, reason, forgiven, at_ms, earlier, transaction_id
    )


def ranges_in(page: StatePage, window: Window) -> Ranges:
    """Read the columns of a page. Raises: InvalidState: they contradict themselves."""
    columns = page.columns
    try:
        firsts, lasts = ranges_of(columns)
        for outcome in set(columns.outcomes):
            state, count = outcome % STATES, outcome // STATES
            if state not in _NUMBERS or state == ACQUIRED or count > MAX_INT32:
                raise ValueError(f"no batch has the delivery state {state} and the delivery count {count}")
        notes: Sequence[Note | None] = [None] * len(firsts)
        if columns.delays:
            found = _notes(page, window)
            notes = [next(found) if noted else None for noted in columns.noted]
    except (ValueError, IndexError) as fault:
        raise InvalidState(f"the persisted state cannot be read: {fault}") from fault
    return Ranges(firsts, lasts, columns.outcomes, notes)


def _notes(page: StatePage, window: Window) -> Iterator[Note]:
    """The notes of a page, in order. Raises: ValueError, IndexError: they contradict themselves."""
    columns = page.columns
    texts = [Reason(text) for text in page.reasons]

    def make(number: int, at_ms: int) -> GivenReason:
        return window.reasons.given(texts[number], at_ms)

    delays, reasons = delays_ms_of(columns), reasons_of(columns, make)
    earlier = earlier_reasons_of(columns.history.earlier, make)
    transactions = transactions_of(columns, page.transactions) or [None] * len(delays)
    histories: list[tuple[GivenReason, ...]] = [()] * len(delays)
    for place, given in earlier.items():
        histories[place] = window.reasons.history(given)
    return zip(delays, reasons, columns.forgiven, histories, transactions, strict=True)


def add_runs(window: Window, ranges: Ranges, now_ms: int, deadlines: list[tuple[int, int, int]]) -> None:
    """Add batches behind those of a window: no lock touches them, and no transaction decides about them.

    Args:
        deadlines: gets the ends of delays, which the caller passes to `Window.time_locks`.
    """
    known = {
        outcome: (DeliveryState(outcome % STATES), outcome // STATES, outcome % STATES in TERMINAL)
        for outcome in set(ranges.outcomes)
    }
    runs: list[Run] = []
    append, time_lock = runs.append, deadlines.append
    held = waiting = delayed = finished = 0
    new_from = window.new_from
    for first, last, outcome, note, begin, end in zip(*ranges, strict=True):
        state, count, terminal = known[outcome]
        size = last - first + 1
        if terminal:
            finished += size
        elif state is AVAILABLE:
            waiting += size
        else:
            held += size
        if not count and first < new_from:
            new_from = first
        if note is None:
            append(Run(first, last, state, count) if terminal else LiveRun(first, last, state, count, begin, end, True))
            continue
        available_at_ms, reason, forgiven, earlier, _ = note
        if terminal:
            forgiven, earlier = 0, ()
        if available_at_ms:
            if available_at_ms <= now_ms or state is not AVAILABLE:
                available_at_ms = 0
            else:
                delayed += size
                time_lock((available_at_ms, first, last))
        released = reason is not None  # a lock that ends has none
        append(
            LiveRun(
                first,
                last,
                state,
                count,
                begin,
                end,
                True,
                forgiven,
                0,
                0,
                released,
                None,
                0,
                0,
                available_at_ms,
                reason,
                earlier,
            )
        )
    window.append_runs(runs)
    window.new_from = new_from
    window.held_count += held
    window.waiting_count += waiting
    window.delayed_count += delayed
    window.delivery_complete_count += finished
