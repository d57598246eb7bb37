"""Combines state batches. Pure. Source: Kafka PersisterStateBatchCombiner.

so far     [0──── count 1 ────9]        the higher delivery count wins,
incoming         [4─ count 2 ─6]        then the higher delivery state
combined   [0─ 1 ─3][4─ 2 ─6][7─ 1 ─9]
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence

from sharequeue.protocol.types import StateBatch


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
