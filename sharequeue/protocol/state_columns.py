"""A stretch of a share-partition's state in columns: one list for each field of its batches. Pure.

The parts of a stored snapshot and the pages of a read have this form. So neither end of a read makes an object for a
batch that it only passes on, and its cost is that of a few lists.

    batches    [10-10 ACKNOWLEDGED ×1]  [11-14 AVAILABLE ×2, delayed]  [20-20 ACKNOWLEDGED ×1]      base_offset 10
    gaps       0                        1                              6                            to the batch before
    lengths    0                        3                              0                            last − first
    outcomes   10                       16                             10                           of `outcome_of`
    noted      0                        1                              0
    delays                              90                                                          of those with a note

Numbers are small, because they are distances: of offsets to the batch before, and of times in steps of `STEP_MS`.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from sharequeue.protocol.types import MAX_INT64

AnyReason = TypeVar("AnyReason")

STEP_MS: Final = 100
"""Ends of delays are kept in steps of so many milliseconds, rounded up: never early."""
STATES: Final = 8
"""A bound of the numbers of delivery states."""


class ReasonHistory(Struct, array_like=True, frozen=True):
    """The history of the batches' reasons: the times at which the reasons were given (`times`), and the reasons of
    earlier deliveries (`earlier`). `texts`: the texts of `earlier`, if no other table has them."""

    times: list[int] = []
    earlier: list[int] = []
    texts: list[str] = []


class StateColumns(Struct, array_like=True, frozen=True):
    """See the page of this module. `noted`: 0 without a note; the columns behind it have an entry for each 1 alone.

    `delays`: 0 without one, else the distance to `base_step`. `reasons`, `transactions`: 0 without one, else the number
    of its text from 1 on. `transactions` is empty if no batch has one. A new column comes last, with a default.
    """

    base_offset: int
    base_step: int
    gaps: list[int]
    lengths: list[int]
    outcomes: list[int]
    noted: list[int]
    delays: list[int]
    reasons: list[int]
    forgiven: list[int]
    history: ReasonHistory = ReasonHistory()
    transactions: list[int] = []


class StatePage(Struct, frozen=True):
    """A page of a state, and the texts that its columns refer to."""

    columns: StateColumns
    reasons: list[str] = []
    transactions: list[str] = []


class Ranges(NamedTuple):
    """Offsets, both included. `lasts` is the same list as `firsts` if each range is one offset."""

    firsts: list[int]
    lasts: list[int]


def outcome_of(delivery_state: int, delivery_count: int) -> int:
    """State and count as one number: a higher count is higher, then a higher state."""
    return delivery_count * STATES + delivery_state


def steps(at_ms: int | None) -> int:
    """A time in steps, 0 without one."""
    return -(-(at_ms or 0) // STEP_MS)


def ranges_of(columns: StateColumns) -> Ranges:
    """The ranges of the batches: ascending and disjoint.

    Raises: ValueError: the columns do not belong together, or their ranges are not ascending, or no offsets.
    """
    gaps, lengths, noted = columns.gaps, columns.lengths, columns.noted
    if not len(gaps) == len(lengths) == len(columns.outcomes) == len(noted):
        raise ValueError(
            f"its columns have {len(gaps)} gaps, {len(lengths)} lengths, {len(columns.outcomes)} outcomes and"
            f" {len(noted)} marks of notes: one of each belongs to a batch"
        )
    if not gaps:
        return Ranges([], [])
    if set(noted) - {0, 1}:
        raise ValueError("a mark of a note is neither 0 nor 1")
    notes = sum(noted)
    if not len(columns.delays) == len(columns.reasons) == len(columns.forgiven) == notes or (
        columns.transactions and len(columns.transactions) != notes
    ):
        raise ValueError(f"{notes} batches have notes, but the columns of notes have other lengths")
    if gaps[0] < 0 or min(gaps[1:], default=1) < 1 or min(lengths) < 0 or columns.base_offset < 0:
        raise ValueError("a batch begins before the one before it ends, or ends before it begins")
    if min(columns.outcomes) < 0:
        raise ValueError("a delivery state or count is negative")
    if any(lengths):
        lasts = list(itertools.accumulate(map(operator.add, gaps, lengths), initial=columns.base_offset))[1:]
        firsts = [last - length if length else last for last, length in zip(lasts, lengths, strict=True)]
    else:
        firsts = lasts = list(itertools.accumulate(gaps, initial=columns.base_offset))[1:]
    if lasts[-1] > MAX_INT64:
        raise ValueError(f"a batch ends at {lasts[-1]}, which is no offset")
    return Ranges(firsts, lasts)


def delays_ms_of(columns: StateColumns) -> list[int]:
    """The ends of delays, 0 without one: of the batches with notes. Raises: ValueError: one is negative."""
    base_step = columns.base_step
    if min(columns.delays, default=0) < 0 or base_step < -1:
        raise ValueError("the end of a delay is negative")
    return [(delay + base_step) * STEP_MS if delay else 0 for delay in columns.delays]


def reasons_of(columns: StateColumns, make: Callable[[int, int], AnyReason]) -> list[AnyReason | None]:
    """The reasons of the batches with notes. Raises: ValueError: there is not one time for each of them.

    Args:
        make: makes one of the number of its text, from 0 on, and its time. It is called once for equal reasons.
    """
    numbers = columns.reasons
    if not any(numbers):
        return [None] * len(numbers)
    if min(numbers) < 0:
        raise ValueError("the number of a text is negative")
    times = columns.history.times
    if 0 in numbers:
        known = iter(times_of(times, len(numbers) - numbers.count(0)))
        at_steps = [next(known) if number else 0 for number in numbers]
    else:
        at_steps = times_of(times, len(numbers))
    bits = max(numbers).bit_length()  # one number for both: a pair would take three times as long
    keys = [at_step << bits | number for number, at_step in zip(numbers, at_steps, strict=True)]
    lowest = (1 << bits) - 1
    made = {key: make((key & lowest) - 1, (key >> bits) * STEP_MS) if key & lowest else None for key in set(keys)}
    return [made[key] for key in keys]


def _number_of(entry: int) -> int:
    """The number of a text, from 0 on. Raises: ValueError: it is negative."""
    if entry < 1:
        raise ValueError("the number of a text is negative")
    return entry - 1


def transactions_of(columns: StateColumns, names: Sequence[str]) -> Sequence[str | None]:
    """The transactions of the batches with notes; empty if there are none.
    Raises: IndexError, ValueError: one has no name."""
    return [names[_number_of(entry)] if entry else None for entry in columns.transactions]


def times_of(distances: Sequence[int], count: int) -> list[int]:
    """Times in steps, from their distances; 0: it is not known.

    Raises: ValueError: there is not one for each of `count` reasons.
    """
    if not distances:
        return [0] * count
    if len(distances) != count:
        raise ValueError(f"{len(distances)} times belong to {count} reasons")
    return list(itertools.accumulate(distances))


def time_distances(times_ms: Iterable[int]) -> list[int]:
    """The times of reasons as steps, each as its distance to the one before. Nothing if none is known."""
    at_steps = [-(-at_ms // STEP_MS) for at_ms in times_ms]
    return list(map(operator.sub, at_steps, (0, *at_steps))) if any(at_steps) else []


def earlier_reasons_of(
    numbers: Sequence[int], make: Callable[[int, int], AnyReason]
) -> dict[int, tuple[AnyReason, ...]]:
    """The reasons of earlier deliveries, by the place of their note: of `ReasonHistory.earlier`.

    Of each such note it has the place, how many reasons follow, and of each the number of its text from 0 on and its
    time as the distance to the one before.
    Raises: ValueError: there are none such.
    """
    found: dict[int, tuple[AnyReason, ...]] = {}
    time = position = 0
    while position < len(numbers):
        place, count = numbers[position : position + 2]
        position += 2
        pairs = numbers[position : position + 2 * count]
        if count < 1 or len(pairs) != 2 * count:
            raise ValueError("the reasons of earlier deliveries are cut off")
        reasons = []
        for text, distance in zip(pairs[::2], pairs[1::2], strict=True):
            time += distance
            reasons.append(make(_number_of(text + 1), time * STEP_MS))
        found[place] = tuple(reasons)
        position += 2 * count
    return found
