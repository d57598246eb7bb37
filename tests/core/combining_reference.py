"""The reference for `BatchList`: annotations combined with state batches by looking at all of them, as a list alone.

It knows the fields of one delivery. A lasting field is not among them.
"""

from bisect import bisect_left
from collections.abc import Sequence

from sharequeue.protocol.types import StateAnnotation, StateBatch


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
