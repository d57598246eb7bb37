"""The state batches of one share-partition, with their notes: ascending, disjoint, no two neighbours equal. Pure.

The list is cut into blocks of at most `BLOCK` batches. A list never changes: an update makes another list, which shares
every block that the update does not touch. So an update of m batches to n costs m searches and a copy of the blocks it
touches, and an older list stays valid for its readers: a commit that fails, a snapshot, a page of a read.

    list         [ block 0 ][ block 1 ][ block 2 ][ block 3 ]
    update                       ▲ two batches
    new list     [ block 0 ][ block 1'][ block 2 ][ block 3 ]      only block 1' is new

Which batch wins where two cover an offset: `state_batches.py`. What becomes of the notes: `notes.py`.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from sharequeue.protocol.state_columns import STATES, outcome_of
from sharequeue.protocol.types import StateAnnotation, StateBatch
from sharequeue_share_coordinator.share_state.notes import FINISHED, Note, annotation_of, combined, note_of
from sharequeue_share_coordinator.share_state.state_batches import combine_state_batches

BLOCK: Final = 512


class NotedBatch(Struct, frozen=True, gc=False):
    """The state of a range of offsets, `last_offset` inclusive, and what is noted about it.

    There may be hundreds of thousands: with a field more each would take 16 bytes more. So state and count are one
    number, which `outcome_of` makes.
    """

    first_offset: int
    last_offset: int
    outcome: int
    note: Note | None = None

    @property
    def delivery_state(self) -> int:
        return self.outcome % STATES

    @property
    def delivery_count(self) -> int:
        return self.outcome // STATES


class Patch(NamedTuple):
    """What a write says about a range: a state batch, a note with the delivery count it belongs to, or both."""

    first_offset: int
    last_offset: int
    batch: StateBatch | None
    note: Note | None
    note_count: int


Block = tuple[NotedBatch, ...]

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


def _block_first(block: Block) -> int:
    return block[0].first_offset


def _block_last(block: Block) -> int:
    return block[-1].last_offset


class BatchList:
    """See the page of this module. `blocks`: none of them empty."""

    __slots__ = ("blocks",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, blocks: tuple[Block, ...] = ()) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[NotedBatch]:
        for block in self.blocks:
            yield from block

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchList) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"BatchList({list(self)})"

    def from_offset(self, offset: int) -> Iterator[NotedBatch]:
        """The batches that end at or behind an offset."""
        index = bisect_left(self.blocks, offset, key=_block_last)
        for place, block in enumerate(self.blocks[index:]):
            yield from block[bisect_left(block, offset, key=_last) :] if place == 0 else block

    def state_batches(self) -> list[StateBatch]:
        """The batches without their notes; neighbours that differ in the note alone are one."""
        found: list[StateBatch] = []
        first, end, outcome = 0, -1, -1
        for batch in self:
            if batch.first_offset == end and batch.outcome == outcome:
                found.pop()
            else:
                first, outcome = batch.first_offset, batch.outcome
            end = batch.last_offset + 1
            found.append(StateBatch(first, batch.last_offset, outcome % STATES, outcome // STATES))
        return found

    def reasons(self) -> frozenset[str]:
        """The different reasons that are noted."""
        notes = [note for block in self.blocks for batch in block if (note := batch.note) is not None]
        last = {reason.text for note in notes if (reason := note.reason) is not None}
        return frozenset(last.union(each.text for note in notes if note.rest is not None for each in note.rest.earlier))

    def annotations(self) -> list[StateAnnotation]:
        """The notes; neighbours with an equal note and delivery count are one."""
        found: list[StateAnnotation] = []
        first, end, last_note, count = 0, -1, None, -1
        for batch in self:
            if batch.note is None:
                continue
            if batch.first_offset == end and batch.delivery_count == count and batch.note == last_note:
                found[-1] = annotation_of(first, batch.last_offset, count, batch.note)
            else:
                first, last_note, count = batch.first_offset, batch.note, batch.delivery_count
                found.append(annotation_of(first, batch.last_offset, count, batch.note))
            end = batch.last_offset + 1
        return found

    def updated(
        self, batches: Sequence[StateBatch], annotations: Sequence[StateAnnotation], start_offset: int
    ) -> "BatchList":
        """The list after a write.

        Args:
            batches, annotations: in any order, may overlap. Of several annotations of one offset the last one counts.
            start_offset: offsets below it are dropped; −1 drops nothing.
        """
        layers = _layers(combine_state_batches([], batches, start_offset), annotations, start_offset)
        updated = self.from_start(start_offset)
        for layer in layers:
            updated = updated._patched(layer)
        return updated

    def from_start(self, start_offset: int) -> "BatchList":
        """The list without the offsets below a start offset."""
        if not self.blocks or self.blocks[0][0].first_offset >= start_offset:
            return self
        index = bisect_left(self.blocks, start_offset, key=_block_last)
        if index == len(self.blocks):
            return BatchList()
        block = self.blocks[index]
        kept = list(block[bisect_left(block, start_offset, key=_last) :])
        if kept[0].first_offset < start_offset:
            kept[0] = _part(kept[0], start_offset, kept[0].last_offset)
        return BatchList((tuple(kept), *self.blocks[index + 1 :]))

    def _patched(self, patches: Sequence[Patch]) -> "BatchList":
        """`patches`: ascending, disjoint. Those that touch the same blocks are laid over them together."""
        old, new = self.blocks, list[Block]()
        done = place = 0
        while place < len(patches):
            low = high = bisect_left(old, patches[place].first_offset - 1, lo=done, key=_block_last)
            begun, reached = place, patches[place].first_offset
            while place < len(patches) and patches[place].first_offset - 1 <= reached:
                last_offset = patches[place].last_offset
                high = max(high, bisect_right(old, last_offset + 1, lo=low, key=_block_first))
                reached = max(last_offset, _block_last(old[high - 1])) if high > low else last_offset
                place += 1
            new += old[done:low]
            touched = old[low] if high == low + 1 else [batch for block in old[low:high] for batch in block]
            _add_blocks(new, _laid_over(touched, patches[begun:place]))
            done = high
        new += old[done:]
        return BatchList(tuple(new))


def batch_list(batches: Iterable[StateBatch], annotations: Sequence[StateAnnotation] = ()) -> BatchList:
    """A list of these batches and annotations, in any order."""
    return BatchList().updated(list(batches), annotations, -1)


def in_blocks(batches: Sequence[NotedBatch]) -> BatchList:
    """A list of batches that are ascending and disjoint, with no two equal neighbours."""
    return BatchList(tuple(tuple(batches[start : start + BLOCK]) for start in range(0, len(batches), BLOCK)))


def _part(batch: NotedBatch, first_offset: int, last_offset: int) -> NotedBatch:
    return NotedBatch(first_offset, last_offset, batch.outcome, batch.note)


def _layers(
    batches: Sequence[StateBatch], annotations: Sequence[StateAnnotation], start_offset: int
) -> list[list[Patch]]:
    """What a write says, as lists of ascending, disjoint patches to lay over a state one after another."""
    batches = [batch for batch in batches if batch.first_offset <= batch.last_offset]
    notes = [
        Patch(first, annotation.last_offset, None, note_of(annotation), annotation.delivery_count)
        for annotation in annotations
        if (first := max(annotation.first_offset, start_offset)) <= annotation.last_offset
    ]
    ordered = sorted(notes, key=_first)
    if any(left.last_offset >= right.first_offset for left, right in itertools.pairwise(ordered)):
        return [_patches(batches, ()), *([note] for note in notes)]
    return [_patches(batches, ordered)]


def _patches(batches: Sequence[StateBatch], notes: Sequence[Patch]) -> list[Patch]:
    """Ascending, disjoint batches and notes, cut where one of them begins or ends."""
    if not notes:
        return [Patch(batch.first_offset, batch.last_offset, batch, None, -1) for batch in batches]
    both: list[StateBatch | Patch] = [*batches, *notes]
    places = sorted({place for item in both for place in (item.first_offset, item.last_offset + 1)})
    patches = []
    at_batch = at_note = 0
    for first, after in itertools.pairwise(places):
        while at_batch < len(batches) and batches[at_batch].last_offset < first:
            at_batch += 1
        while at_note < len(notes) and notes[at_note].last_offset < first:
            at_note += 1
        batch = batches[at_batch] if at_batch < len(batches) and batches[at_batch].first_offset <= first else None
        note = notes[at_note] if at_note < len(notes) and notes[at_note].first_offset <= first else None
        if note is not None:
            patches.append(Patch(first, after - 1, batch, note.note, note.note_count))
        elif batch is not None:
            patches.append(Patch(first, after - 1, batch, None, -1))
    return patches


def _add_blocks(blocks: list[Block], batches: list[NotedBatch]) -> None:
    """Append batches in blocks of equal length. If the last block has room for all of them, they join it."""
    if blocks and len(blocks[-1]) + len(batches) <= BLOCK:
        batches = [*blocks.pop(), *batches]
    if batches:
        length = -(-len(batches) // -(-len(batches) // BLOCK))
        blocks += [tuple(batches[start : start + length]) for start in range(0, len(batches), length)]


def _laid_over(below: Sequence[NotedBatch], patches: Sequence[Patch]) -> list[NotedBatch]:
    """`below` with `patches` laid over it; both ascending and disjoint.

    below      [── a ──]      [──── b ────]
    patches          [──── p ────]   [q]
    laid over  [─ a ][ap][ p ][bp][b][bq][b]
    """
    laid: list[NotedBatch] = []
    position = 0
    cut: NotedBatch | None = None  # the rest of below[position], behind the patches so far
    for patch in patches:
        first, last = patch.first_offset, patch.last_offset
        if cut is not None and cut.last_offset < first:
            _add(laid, cut)
            cut, position = None, position + 1
        if cut is None:
            index = bisect_left(below, first, lo=position, key=_last)
            _add_all(laid, below, position, index)
            position = index
        at = first
        while position < len(below):
            batch = below[position] if cut is None else cut
            if batch.first_offset > last:
                break
            if batch.first_offset < at:
                _add(laid, _part(batch, batch.first_offset, at - 1))
            elif batch.first_offset > at:
                _add(laid, _over(None, patch, at, batch.first_offset - 1))
                at = batch.first_offset
            until = min(batch.last_offset, last)
            _add(laid, _over(batch, patch, at, until))
            at = until + 1
            if batch.last_offset > last:
                cut = _part(batch, at, batch.last_offset)
                break
            cut, position = None, position + 1
        if at <= last:
            _add(laid, _over(None, patch, at, last))
    if cut is not None:
        _add(laid, cut)
        position += 1
    _add_all(laid, below, position, len(below))
    return laid


def _over(below: NotedBatch | None, patch: Patch, first_offset: int, last_offset: int) -> NotedBatch | None:
    """A range that a patch covers, and perhaps a batch below it. None: there is only a note, but no batch."""
    if patch.batch is not None:
        outcome = outcome_of(patch.batch.delivery_state, patch.batch.delivery_count)
        if below is not None:
            outcome = max(outcome, below.outcome)
    elif below is not None:
        outcome = below.outcome
    else:
        return None
    state, count = outcome % STATES, outcome // STATES
    note = combined(
        None if below is None else below.note,
        patch.note,
        kept_lives=below is not None and below.delivery_count == count,
        incoming_lives=patch.note_count == count,
        finished=state in FINISHED,
    )
    return NotedBatch(first_offset, first_offset if first_offset == last_offset else last_offset, outcome, note)


def _add(laid: list[NotedBatch], batch: NotedBatch | None) -> None:
    """Append a batch, joined with the one before it if they touch and are equal."""
    if batch is None:
        return
    if laid:
        before = laid[-1]
        if (
            before.last_offset + 1 == batch.first_offset
            and before.outcome == batch.outcome
            and before.note == batch.note
        ):
            laid[-1] = _part(before, before.first_offset, batch.last_offset)
            return
    laid.append(batch)


def _add_all(laid: list[NotedBatch], batches: Sequence[NotedBatch], start: int, end: int) -> None:
    if start < end:
        _add(laid, batches[start])
        laid += batches[start + 1 : end]
