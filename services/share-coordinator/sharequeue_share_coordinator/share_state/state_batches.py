"""Combines state batches, and the annotations beside them. Pure. Source: Kafka PersisterStateBatchCombiner.

so far     [0──── count 1 ────9]        the higher delivery count wins,
incoming         [4─ count 2 ─6]        then the higher delivery state
combined   [0─ 1 ─3][4─ 2 ─6][7─ 1 ─9]
"""

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sharequeue.protocol.types import StateAnnotation, StateBatch


def combine_state_batches(
    so_far: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Merge two lists of state batches into one: ascending, disjoint, no two neighbours equal.

    Args:
        so_far: n batches. incoming: m batches; both in any order, may overlap. Where two cover an offset the higher
            delivery_count wins, then the higher delivery_state.
        start_offset: int64; offsets below it are dropped, and a batch that contains it is cut; -1 cuts nothing.
    Returns: at most 2(n + m) - 1 batches, last_offset inclusive.
    """
    batches = [*so_far, *incoming]
    if start_offset != -1:
        batches = [
            batch if batch.first_offset >= start_offset else _with_first(batch, start_offset)
            for batch in batches
            if batch.last_offset >= start_offset
        ]
    if len(batches) < 2:
        return batches
    batches.sort()
    if all(left.last_offset < right.first_offset for left, right in itertools.pairwise(batches)):
        return _joined(batches)
    return _joined(_winners(batches))


def _with_first(batch: StateBatch, first_offset: int) -> StateBatch:
    return StateBatch(first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)


def _winners(batches: Sequence[StateBatch]) -> Iterable[StateBatch]:
    """Sweep over sorted batches. Between two offsets where a batch begins or ends, the highest priority wins."""
    places = sorted({batch.first_offset for batch in batches} | {batch.last_offset + 1 for batch in batches})
    covering: list[tuple[int, int, int]] = []
    position = 0
    for first_offset, after in itertools.pairwise(places):
        while position < len(batches) and batches[position].first_offset == first_offset:
            batch = batches[position]
            heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            position += 1
        while covering and covering[0][2] < first_offset:
            heapq.heappop(covering)
        if covering:
            yield StateBatch(first_offset, after - 1, -covering[0][1], -covering[0][0])


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Join adjacent batches of the same delivery state and count."""
    joined: list[StateBatch] = []
    for batch in batches:
        if joined:
            last = joined[-1]
            same = (last.delivery_state, last.delivery_count) == (batch.delivery_state, batch.delivery_count)
            if same and last.last_offset + 1 == batch.first_offset:
                joined[-1] = StateBatch(last.first_offset, batch.last_offset, last.delivery_state, last.delivery_count)
                continue
        joined.append(batch)
    return joined


def combine_annotations(
    so_far: Sequence[StateAnnotation],
    incoming: Sequence[StateAnnotation],
    state_batches: Sequence[StateBatch],
    start_offset: int,
) -> list[StateAnnotation]:
    """Merge two lists of annotations into one: ascending, with every offset covered by a batch of the same count.

    Args:
        so_far, incoming: annotations. One of `incoming` replaces those of `so_far` at the same offsets.
        state_batches: combined, so ascending and disjoint. An annotation is dropped at offsets where the batch has
            another delivery_count.
    The cost is n log n in the length of all three together.
    """
    replaced = _covered(incoming)
    kept = [piece for annotation in incoming for piece in _alive(annotation, state_batches, start_offset)]
    for annotation in so_far:
        for piece in _alive(annotation, state_batches, start_offset):
            kept += _without(piece, replaced)
    return sorted(kept, key=lambda annotation: annotation.first_offset)


def _covered(annotations: Sequence[StateAnnotation]) -> list[tuple[int, int]]:
    """The offsets that annotations cover, as ascending, disjoint ranges."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted((annotation.first_offset, annotation.last_offset) for annotation in annotations):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    return ranges


def _alive(
    annotation: StateAnnotation, state_batches: Sequence[StateBatch], start_offset: int
) -> list[StateAnnotation]:
    """The parts of an annotation at which the state batches have its delivery count."""
    first_offset, last_offset = max(annotation.first_offset, start_offset), annotation.last_offset
    pieces = []
    index = bisect_left(state_batches, first_offset, key=lambda batch: batch.last_offset)
    while index < len(state_batches) and (batch := state_batches[index]).first_offset <= last_offset:
        if batch.delivery_count == annotation.delivery_count:
            first, last = max(first_offset, batch.first_offset), min(last_offset, batch.last_offset)
            pieces.append(_part(annotation, first, last))
        index += 1
    return pieces


def _without(annotation: StateAnnotation, ranges: Sequence[tuple[int, int]]) -> list[StateAnnotation]:
    """The parts of an annotation outside ascending, disjoint ranges."""
    index = bisect_left(ranges, annotation.first_offset, key=lambda covered: covered[1])
    if index == len(ranges) or ranges[index][0] > annotation.last_offset:
        return [annotation]
    parts = []
    first_offset = annotation.first_offset
    while index < len(ranges) and ranges[index][0] <= annotation.last_offset:
        if first_offset < ranges[index][0]:
            parts.append(_part(annotation, first_offset, ranges[index][0] - 1))
        first_offset = ranges[index][1] + 1
        index += 1
    if first_offset <= annotation.last_offset:
        parts.append(_part(annotation, first_offset, annotation.last_offset))
    return parts


def _part(annotation: StateAnnotation, first_offset: int, last_offset: int) -> StateAnnotation:
    return StateAnnotation(
        first_offset, last_offset, annotation.delivery_count, annotation.available_at_ms, annotation.reason
    )
