"""The batches of one share-partition: ascending, disjoint, no two neighbours equal. Pure.

The list of a state never changes: an update copies it (35 µs for 10,000 batches) and changes the copy. So a commit that
fails, a second write in the same commit, and a reader in a thread keep the list they had.

    kept       [── a ──]      [──── b ────]      where two cover an offset the higher delivery count wins,
    incoming         [── p ──────]   [q]         then the higher delivery state
    after      [─ a ][ap][ p ][bp][b][bq][b]     Source: Kafka PersisterStateBatchCombiner
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from sharequeue.protocol.state import StateBatch
from sharequeue_share_coordinator.share_state.notes import FINISHED, combined

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


def updated(
    kept: list[StateBatch], incoming: Sequence[StateBatch], start_offset: int, *, in_place: bool = False
) -> list[StateBatch]:
    """The list after a write: another one, or `kept` itself if it is changed `in_place`, because nobody else has it.

    Args:
        incoming: in any order, may overlap: then each is laid over the list after the one before it.
        start_offset: offsets below it are dropped; −1 drops nothing.
    """
    batches = kept if in_place else list(kept)
    incoming = [batch for batch in incoming if batch.first_offset <= batch.last_offset]
    ordered = sorted(incoming, key=_first)
    overlap = any(left.last_offset >= right.first_offset for left, right in itertools.pairwise(ordered))
    for disjoint in [[batch] for batch in incoming] if overlap else [ordered] if ordered else []:
        low = bisect_left(batches, disjoint[0].first_offset - 1, key=_last)
        high = bisect_right(batches, disjoint[-1].last_offset + 1, key=_first)
        batches[low:high] = _laid_over(batches[low:high], disjoint)  # the rest of the list stays
    gone = bisect_left(batches, start_offset, key=_last)
    if gone < len(batches) and batches[gone].first_offset < start_offset:
        batches[gone] = batches[gone].part(start_offset, batches[gone].last_offset)
    del batches[:gone]
    return batches


def from_offset(batches: Sequence[StateBatch], offset: int) -> Sequence[StateBatch]:
    """The batches that end at or behind an offset."""
    return batches[bisect_left(batches, offset, key=_last) :]


def _laid_over(below: list[StateBatch], incoming: Sequence[StateBatch]) -> list[StateBatch]:
    """Lay batches over others; both ascending and disjoint. `below` is of no use afterwards."""
    laid: list[StateBatch] = []
    place = 0
    for batch in incoming:
        untouched = bisect_left(below, batch.first_offset, lo=place, key=_last)
        if place < untouched:
            _add(laid, below[place])
            laid += below[place + 1 : untouched]
        place, at = untouched, batch.first_offset
        while place < len(below) and below[place].first_offset <= batch.last_offset:
            kept = below[place]
            if kept.first_offset < at:
                _add(laid, kept.part(kept.first_offset, at - 1))
            elif kept.first_offset > at:
                _add(laid, _over(None, batch, at, kept.first_offset - 1))
                at = kept.first_offset
            until = min(kept.last_offset, batch.last_offset)
            _add(laid, _over(kept, batch, at, until))
            at = until + 1
            if kept.last_offset > until:
                below[place] = kept.part(at, kept.last_offset)  # the next one of `incoming` may begin in it
                break
            place += 1
        if at <= batch.last_offset:
            _add(laid, _over(None, batch, at, batch.last_offset))
    if place < len(below):
        _add(laid, below[place])
        laid += below[place + 1 :]
    return laid


def _over(kept: StateBatch | None, incoming: StateBatch, first_offset: int, last_offset: int) -> StateBatch:
    """A range that an incoming batch covers, and perhaps a kept one."""
    count, state = incoming.delivery_count, incoming.delivery_state
    if kept is not None:
        count, state = max((count, state), (kept.delivery_count, kept.delivery_state))
    note, old = incoming.note, None if kept is None else kept.note
    if note is not None or old is not None:
        note = combined(
            old,
            note,
            kept_lives=kept is not None and kept.delivery_count == count,
            incoming_lives=incoming.delivery_count == count,
            finished=state in FINISHED,
        )
    return StateBatch(first_offset, last_offset, state, count, note)


def _add(laid: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, joined with the one before it if both can be one."""
    if laid and batch.continues(laid[-1]):
        batch = batch.part(laid.pop().first_offset, batch.last_offset)
    laid.append(batch)
