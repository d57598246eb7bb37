"""Combining state batches, and the annotations kept beside them. Pure. Source: Kafka PersisterStateBatchCombiner."""

import heapq
import itertools
from collections.abc import Iterable, Sequence

from sharequeue.protocol.types import StateAnnotation, StateBatch


def combine_state_batches(
    so_far: Sequence[StateBatch], incoming: Sequence[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Merge two lists of state batches into one: ascending, disjoint, no two neighbours equal.

    Args:
        so_far: n batches. incoming: m batches; both in any order, may overlap. Where two cover an offset the higher
            delivery_count wins, then the higher delivery_state.
        start_offset: int64; offsets below it are dropped, a batch across it is cut; -1 cuts nothing.
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
    """Sweep over sorted batches; between two places where one begins or ends the highest priority wins."""
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
    """Join neighbours that touch and agree."""
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
    """Keep the annotations that still say something of the combined state batches.

    Args:
        so_far, incoming: annotations, newer ones in `incoming`; a newer one replaces an older one at the same offsets.
        state_batches: the combined batches; an annotation lives only where its delivery_count is theirs.
    """
    kept: list[StateAnnotation] = []
    for annotation in incoming:
        kept += _alive(annotation, state_batches, start_offset)
    for annotation in so_far:
        pieces = _alive(annotation, state_batches, start_offset)
        for newer in incoming:
            pieces = [part for piece in pieces for part in _without(piece, newer.first_offset, newer.last_offset)]
        kept += pieces
    return sorted(kept, key=lambda annotation: annotation.first_offset)


def _alive(
    annotation: StateAnnotation, state_batches: Sequence[StateBatch], start_offset: int
) -> list[StateAnnotation]:
    pieces = []
    for batch in state_batches:
        first = max(annotation.first_offset, batch.first_offset, start_offset)
        last = min(annotation.last_offset, batch.last_offset)
        if first <= last and batch.delivery_count == annotation.delivery_count:
            pieces.append(_part(annotation, first, last))
    return pieces


def _without(annotation: StateAnnotation, first_offset: int, last_offset: int) -> list[StateAnnotation]:
    if last_offset < annotation.first_offset or first_offset > annotation.last_offset:
        return [annotation]
    parts = []
    if annotation.first_offset < first_offset:
        parts.append(_part(annotation, annotation.first_offset, first_offset - 1))
    if annotation.last_offset > last_offset:
        parts.append(_part(annotation, last_offset + 1, annotation.last_offset))
    return parts


def _part(annotation: StateAnnotation, first_offset: int, last_offset: int) -> StateAnnotation:
    return StateAnnotation(
        first_offset, last_offset, annotation.delivery_count, annotation.available_at_ms, annotation.reason
    )
