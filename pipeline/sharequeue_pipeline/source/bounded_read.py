"""A bounded read of a group: it ends when each partition has given the records that were there at the start. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.ranges import Range, divided

LATE_FETCHES: Final = 4
"""A partition that gives only later records so many times in a row is not asked again, if the group gives new records
first as long as there are any (`share.redelivery.percent=0`)."""


class BoundedRead:
    """The partitions that may still have such records.

    A partition gives the records that were never delivered in the order of their offsets. When it gives the one that
    was its last at the start, or a later one, the read is done with it. A later record is read as well: giving it back
    would cost it a delivery.

    Records that were delivered before may come after that one: a group gives new records a share of the fetches. So the
    caller looks for them once `left` is empty, and `reopen` asks for those that this read has not had. It has each
    record once: one that its job releases is left to the next read.

    The read asks until they have come. It ends, because with a `share.redelivery.percent` of P one of 99 / P + 1
    fetches begins at the records to deliver again. If that was another member's fetch, they have one delivery less
    left. With 0 no fetch need ever begin there: the read gives up then, and `given_up` says so.
    """

    def __init__(self, bounds: Mapping[tuple[str, int], tuple[int, int]], redelivery_percent: int) -> None:
        """
        Args:
            bounds: log start and log end by (topic, partition), at the start of the read.
            redelivery_percent: the group's `share.redelivery.percent`.
        """
        self._patient = redelivery_percent > 0
        self._ends = {place: end for place, (start, end) in bounds.items() if start < end}
        self._open = set(self._ends)
        self._had: dict[tuple[str, int], list[Range]] = {}
        """What this read has had, in the order in which it came; neighbours are one range."""
        self._late: dict[tuple[str, int], int] = {}
        """How many times in a row a partition gave only later records."""
        self._missing: dict[tuple[str, int], int] = {}
        """How many records are asked for, of a partition that was opened again."""
        self.given_up: list[Range] = []
        """Records that the last `reopen` gave up, because new ones come first."""

    @property
    def places(self) -> Iterable[tuple[str, int]]:
        """The partitions that had records at the start."""
        return self._ends

    def note(self, found: Iterable[Range]) -> None:
        found = [entry._replace(delivery_count=0) for entry in found]
        early = {entry[:2] for entry in found if entry.first_offset < self._ends.get(entry[:2], 0)}
        for place in {entry[:2] for entry in found}:
            self._late[place] = 0 if place in early else self._late.get(place, 0) + 1
        for entry in found:
            place = entry[:2]
            if entry.last_offset + 1 >= self._ends.get(place, 0):
                self._open.discard(place)
                self._missing.pop(place, None)
            had = self._had.setdefault(place, [])
            follows = had and had[-1].last_offset + 1 == entry.first_offset
            had.append(entry._replace(first_offset=had.pop().first_offset) if follows else entry)

    def reopen(self, delivered: Iterable[Range]) -> None:
        """Ask again for records that this read has not had. `delivered`: available now, and delivered before."""
        below = []
        for entry in delivered:
            last = min(entry.last_offset, self._ends.get(entry[:2], 0) - 1)
            if entry.first_offset <= last:
                below.append(entry._replace(last_offset=last, delivery_count=0))
        had = [entry for place in {each[:2] for each in below} for entry in self._had.get(place, ())]
        self.given_up = []
        for entry in divided(below, had)[1]:
            place = entry[:2]
            if not self._patient and self._late.get(place, 0) >= LATE_FETCHES:
                self.given_up.append(entry)
                continue
            self._open.add(place)
            self._missing[place] = self._missing.get(place, 0) + entry.size

    @property
    def most(self) -> int | None:
        """Return how many records a fetch from `left` needs at most; None: as many as it can get."""
        return sum(self._missing.values()) if self._open and self._open == self._missing.keys() else None

    @property
    def left(self) -> list[TopicPartitions]:
        """The partitions to fetch from. Empty: look for records that were delivered before, and `reopen`."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._open):
            topics.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def passed_over(group: str, entries: Sequence[Range]) -> PipelineError:
    """The fault that a bounded read does not get these records."""
    first = entries[0]
    return PipelineError(
        f"{sum(entry.size for entry in entries)} records wait to be delivered again to group {group}, the first at "
        f"{first.topic}-{first.partition} offset {first.first_offset}, and a read of the records that are there may never "
        "get them: share.redelivery.percent is 0, so new records come first. Set it to 1 or more"
    )
