"""Batches as columns, and back: the parts of a large snapshot, what has changed since, and the pages of a read. Pure.

`sharequeue/protocol/state_columns.py` describes each column.
"""

import itertools
import operator
import sys
from collections.abc import Sequence
from typing import Final

from sharequeue.protocol.state_columns import (
    STEP_MS,
    ReasonHistory,
    StateColumns,
    StatePage,
    delays_ms_of,
    earlier_reasons_of,
    ranges_of,
    reasons_of,
    steps,
    time_distances,
    transactions_of,
)
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch
from sharequeue_share_coordinator.share_state.notes import Given, Note, given, make_note

BATCH_BYTES: Final = 16
"""Of a batch in columns, as JSON, roughly; then what a note adds, what its rare fields add, and each earlier reason."""
NOTE_BYTES: Final = 24
REST_BYTES: Final = 16
EARLIER_BYTES: Final = 16


def columns_of(batches: Sequence[NotedBatch], reasons: dict[str, int], transactions: dict[str, int]) -> StateColumns:
    """The columns of batches, ascending and disjoint.

    Args:
        reasons, transactions: the numbers of the texts that the columns refer to. New texts are added.
    """
    firsts = [batch.first_offset for batch in batches]
    lasts = [batch.last_offset for batch in batches]
    notes = [note for batch in batches if (note := batch.note) is not None]
    delayed = [-(-note.available_at_ms // STEP_MS) for note in notes]
    base_step = min(filter(None, delayed), default=0) - 1
    given_last = [note.reason for note in notes]
    times_ms = [reason.at_ms for reason in given_last if reason is not None]
    rests = bool([note for note in notes if note.rest is not None])
    return StateColumns(
        firsts[0] if firsts else 0,
        base_step,
        list(map(operator.sub, firsts, (*firsts[:1], *lasts))),
        list(map(operator.sub, lasts, firsts)),
        [batch.outcome for batch in batches],
        [0 if batch.note is None else 1 for batch in batches],
        [delay and delay - base_step for delay in delayed],
        [0 if reason is None else reasons.setdefault(reason.text, len(reasons)) + 1 for reason in given_last],
        [note.forgiven for note in notes] if rests else [0] * len(notes),
        ReasonHistory(
            time_distances(times_ms),
            earlier_numbers([note.earlier for note in notes], reasons) if rests else [],
        ),
        _numbers_of([note.transaction_id for note in notes], transactions) if rests else [],
    )


def page_from(batches: BatchList, offset: int, size: int) -> tuple[StatePage, int | None]:
    """The batches that end at or behind an offset, up to a size in bytes as JSON, roughly, but at least one.

    Returns: also where the next page begins. None: this is the last one.
    """
    page: list[NotedBatch] = []
    texts: set[str] = set()
    left, next_offset = size, None
    for batch in batches.from_offset(offset):
        if left <= 0:
            next_offset = batch.first_offset
            break
        page.append(batch)
        left -= BATCH_BYTES
        note = batch.note
        if note is not None:
            left -= NOTE_BYTES
            if note.rest is not None:
                left -= REST_BYTES + EARLIER_BYTES * len(note.rest.earlier)
                new = {each.text for each in note.rest.earlier} | {note.rest.transaction_id or ""}
                left -= sum(len(text) for text in new - texts)
                texts |= new
            if note.reason is not None and note.reason.text not in texts:
                left -= len(note.reason.text)
                texts.add(note.reason.text)
    reasons: dict[str, int] = {}
    transactions: dict[str, int] = {}
    columns = columns_of(page, reasons, transactions)
    return StatePage(columns, list(reasons), list(transactions)), next_offset


def batches_of(columns: StateColumns, texts: Sequence[str], transactions: Sequence[str]) -> list[NotedBatch]:
    """The batches of columns. Raises: ValueError, IndexError: these are no columns, or they refer to no text."""
    firsts, lasts = ranges_of(columns)
    notes = iter(_notes(columns, texts, transactions))
    each = [next(notes) if noted else None for noted in columns.noted]
    return list(map(NotedBatch, firsts, lasts, columns.outcomes, each))


def _notes(columns: StateColumns, texts: Sequence[str], transactions: Sequence[str]) -> list[Note]:
    def make(number: int, at_ms: int) -> Given:
        return given(texts[number], at_ms)

    delays, reasons = delays_ms_of(columns), reasons_of(columns, make)
    pending = transactions_of(columns, [sys.intern(name) for name in transactions])
    earlier = earlier_reasons_of(columns.history.earlier, make)
    if not (pending or earlier or any(columns.forgiven)):
        return list(map(Note, delays, reasons))
    rests = zip(columns.forgiven, pending or itertools.repeat(None), strict=False)
    return [
        make_note(delay, reason, forgiven, earlier.get(place, ()), transaction_id)
        for place, (delay, reason, (forgiven, transaction_id)) in enumerate(zip(delays, reasons, rests, strict=True))
    ]


def earlier_numbers(earlier: Sequence[tuple[Given, ...]], texts: dict[str, int]) -> list[int]:
    """The reasons of earlier deliveries as `earlier_reasons_of` reads them. `texts`: as `reasons` of `columns_of`."""
    found: list[int] = []
    time = 0
    for place, reasons in enumerate(earlier):
        if reasons:
            found += (place, len(reasons))
            for reason in reasons:
                at_step = steps(reason.at_ms)
                found += (texts.setdefault(reason.text, len(texts)), at_step - time)
                time = at_step
    return found


def _numbers_of(names: Sequence[str | None], numbers: dict[str, int]) -> list[int]:
    """For each name its number, 0 without one. Nothing if there is none."""
    if all(name is None for name in names):
        return []
    return [0 if name is None else numbers.setdefault(name, len(numbers)) + 1 for name in names]
