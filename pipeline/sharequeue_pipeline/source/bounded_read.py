"""A bounded read of a group: it ends when each partition has given the records that were there at the start. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue_pipeline.ranges import Range, divided

LATE_FETCHES: Final = 4
"""A partition that gives only later records so many times in a row is not asked again. With
`share.redelivery.percent` of 25 or more, one of so many fetches begins at the records to deliver again."""


class BoundedRead:
    """The partitions that may still have such records.

    A partition gives the records that were never delivered in the order of their offsets. When it gives the one that was
    its last at the start, or a later one, the read is done with it. A later record is read as well: giving it back would
    cost it a delivery.

    Records that were delivered before may come after that one: a group gives new records a share of the fetches. So the
    caller looks for them once `left` is empty, and `reopen` asks for those that this read has not had. It has each record
    once: one that its job releases is left to the next read.
    """

    def __init__(self, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """`bounds`: log start and log end by (topic, partition), at the start of the read."""
        self._ends = {place: end for place, (start, end) in bounds.items() if start < end}
        self._open = set(self._ends)
        self._had: dict[tuple[str, int], list[Range]] = {}
        """What this read has had, in the order in which it came; neighbours are one range."""
        self._late: dict[tuple[str, int], int] = {}
        """How many times in a row a partition gave only later records."""

    @property
    def places(self) -> Iterable[tuple[str, int]]:
        """The partitions that had records at the start."""
        return self._ends

    def note(self, found: Iterable[Range]) -> None:
        """Note acquired ranges."""
        found = [entry._replace(delivery_count=0) for entry in found]
        early = {entry[:2] for entry in found if entry.first_offset < self._ends.get(entry[:2], 0)}
        for place in {entry[:2] for entry in found}:
            self._late[place] = 0 if place in early else self._late.get(place, 0) + 1
        for entry in found:
            place = entry[:2]
            if entry.last_offset + 1 >= self._ends.get(place, 0):
                self._open.discard(place)
            had = self._had.setdefault(place, [])
            follows = had and had[-1].last_offset + 1 == entry.first_offset
            had.append(entry._replace(first_offset=had.pop().first_offset) if follows else entry)

    def reopen(self, delivered: Iterable[Range]) -> None:
        """Ask again for records that this read has not had. `delivered`: available now, and delivered before."""
        below = []
        for entry in delivered:
            last = min(entry.last_offset, self._ends.get(entry[:2], 0) - 1)
            if entry.first_offset <= last and self._late.get(entry[:2], 0) < LATE_FETCHES:
                below.append(entry._replace(last_offset=last, delivery_count=0))
        places = {entry[:2] for entry in below}
        had = disjoint(entry for place in places for entry in self._had.get(place, ()))
        self._open |= {entry[:2] for entry in divided(below, had)[1]}

    @property
    def left(self) -> list[TopicPartitions]:
        """The partitions to fetch from. Empty: look for records that were delivered before, and `reopen`."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._open):
            topics.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def disjoint(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, each once, in order."""
    result: list[Range] = []
    for entry in sorted(ranges):
        last = result[-1] if result else None
        if last is not None and last[:2] == entry[:2] and entry.first_offset <= last.last_offset + 1:
            result[-1] = last._replace(last_offset=max(last.last_offset, entry.last_offset))
        else:
            result.append(entry)
    return result
