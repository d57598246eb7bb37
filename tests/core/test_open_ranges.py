"""What is left of a range of open dead letters when some are closed: what sets of offsets say."""

import itertools
import random
from collections import Counter

from sharequeue_gateway.record_log.dead_letters.open_ranges import OpenRange, without

from sharequeue.protocol.types import OffsetRange, SharePartitionKey


def test_od_201_ranges_are_what_sets_of_offsets_say() -> None:
    chance = random.Random(932)
    source = SharePartitionKey("g", "t", 0)
    for _ in range(2_000):
        first = chance.randrange(6)
        opened = OpenRange(first, first + chance.randrange(8), source)
        closed, position = [], 0
        for _ in range(chance.randrange(5)):
            begin = position + chance.randrange(4)
            closed.append(OffsetRange(begin, begin + chance.randrange(4)))
            position = closed[-1].last_offset + 1
        left = without(opened, closed)
        removed = {offset for one, last in closed for offset in range(one, last + 1)}
        said = Counter(offset for one, last, _ in left for offset in range(one, last + 1))
        assert said == Counter(
            offset for offset in range(opened.first_offset, opened.last_offset + 1) if offset not in removed
        )
        assert sum(each.records for each in left) == said.total()
        assert all(a.last_offset + 1 < b.first_offset for a, b in itertools.pairwise(left))
