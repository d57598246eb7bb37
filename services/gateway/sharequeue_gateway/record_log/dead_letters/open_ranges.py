"""Ranges of a dead-letter topic that are open, and what is left when some of their dead letters are closed. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from sharequeue.protocol.types import OffsetRange, SharePartitionKey


class OpenRange(NamedTuple):
    """Open dead letters of one share-partition, by their offsets in the dead-letter topic, both inclusive."""

    first_offset: int
    last_offset: int
    source: SharePartitionKey

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


def without(opened: OpenRange, closed: Iterable[OffsetRange]) -> list[OpenRange]:
    """Return what is left of a range. `closed`: ascending and disjoint."""
    left = []
    position = opened.first_offset
    for first_offset, last_offset in closed:
        if first_offset > opened.last_offset:
            break
        if position < first_offset:
            left.append(opened._replace(first_offset=position, last_offset=first_offset - 1))
        position = max(position, last_offset + 1)
    if position <= opened.last_offset:
        left.append(opened._replace(first_offset=position))
    return left
