"""One object for all equal sets of partitions in this process: a topic of 10,000 partitions takes half a MiB once, and
not in each group and at each member."""

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary, ref

LEAST: Final = 64
"""Smaller sets are not shared: to look for them costs more than they do."""

_known: Final[WeakKeyDictionary[frozenset[int], ref[frozenset[int]]]] = WeakKeyDictionary()


def shared(partitions: frozenset[int]) -> frozenset[int]:
    """The set that is kept instead of this equal one. It is forgotten with its last user."""
    if len(partitions) < LEAST:
        return partitions
    known = _known.setdefault(partitions, ref(partitions))()
    return partitions if known is None else known


def shared_all(assignment: Mapping[str, frozenset[int]]) -> Mapping[str, frozenset[int]]:
    """The same assignment, of shared sets."""
    return {topic_id: shared(partitions) for topic_id, partitions in assignment.items()}
