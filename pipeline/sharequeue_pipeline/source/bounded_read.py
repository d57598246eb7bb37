"""Bounded reads of a group: what was there at the start, and which partitions may have some of it left. Pure."""

from collections.abc import Iterable, Mapping

from sharequeue.protocol.messages import TopicPartitions
from sharequeue_pipeline.ranges import Range


class BoundedRead:
    """The partitions that are still asked for records.

    A partition gives its records in the order of offsets: once one has come that is the last of those there at the
    start, or a later one, it is asked no more. So what came later is never given back, which would count a delivery.
    """

    def __init__(self, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """`bounds`: log start and log end by (topic, partition), at the start of the read."""
        self._ends = {place: end for place, (start, end) in bounds.items() if start < end}

    def note(self, found: Iterable[Range]) -> None:
        """These ranges were acquired."""
        for entry in found:
            place = (entry.topic, entry.partition)
            if place in self._ends and entry.last_offset + 1 >= self._ends[place]:
                del self._ends[place]

    @property
    def left(self) -> list[TopicPartitions]:
        """Where something may be left."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._ends):
            topics.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
