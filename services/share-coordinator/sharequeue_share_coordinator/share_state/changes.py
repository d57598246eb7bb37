"""What has changed between two lists of batches. Pure.

A list shares every block and every batch with an earlier one that no update between them has touched (`batch_list.py`).
So the objects themselves say what has changed, and finding it costs what the changed blocks hold.

    before    [ a  b  c ][ d  e  f ][ g  h ]
    after     [ a  b  c ][ d  e' i ][ g  h ]        gone: e, f        added: e', i
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Final, NamedTuple

from sharequeue_share_coordinator.share_state.batch_list import BLOCK, BatchList, Block, NotedBatch, in_blocks

_first = attrgetter("first_offset")
BEHIND_ALL: Final = 1 << 64
"""No offset is as high."""


class Changes(NamedTuple):
    """`gone`: the first offsets of the batches that the later list does not have. `added`: those that it alone has."""

    gone: list[int]
    added: list[NotedBatch]


def changes_between(before: BatchList, after: BatchList) -> Changes:
    """What leads from a list to a later one, ascending. An equal batch that is another object may be in it."""
    shared = set(map(id, before.blocks)) & set(map(id, after.blocks))
    old = [batch for block in before.blocks if id(block) not in shared for batch in block]
    new = [batch for block in after.blocks if id(block) not in shared for batch in block]
    kept = set(map(id, old)) & set(map(id, new))
    return Changes(
        [batch.first_offset for batch in old if id(batch) not in kept],
        [batch for batch in new if id(batch) not in kept],
    )


def with_changes(before: BatchList, changes: Changes) -> BatchList:
    """The list that changes lead to. It shares the blocks that they do not touch."""
    gone, added = changes
    if not before.blocks:
        return in_blocks(added)
    blocks: list[Block] = []
    at_gone = at_added = 0
    ends = [*(block[0].first_offset for block in before.blocks[1:]), BEHIND_ALL]
    for block, end in zip(before.blocks, ends, strict=True):
        gone_here = gone[at_gone : (at_gone := bisect_left(gone, end, lo=at_gone))]
        added_here = added[at_added : (at_added := bisect_left(added, end, lo=at_added, key=_first))]
        if not gone_here and not added_here:
            blocks.append(block)
            continue
        left_out = set(gone_here)
        kept = [batch for batch in block if batch.first_offset not in left_out]
        batches = sorted([*kept, *added_here], key=_first)
        blocks += [tuple(batches[start : start + BLOCK]) for start in range(0, len(batches), BLOCK)]
    return BatchList(tuple(blocks))
