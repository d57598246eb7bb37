"""A bounded read of a group: it ends when each partition has given the records that were there at the start. Pure."""

from collections.abc import Iterable, Mapping

from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue_pipeline.ranges import Range


class BoundedRead:
    """The partitions that may still have such records.

    A partition gives its records in the order of offsets. When it gives the record that was its last one at the start,
    or a later one, the read is done with it. A later record is read as well: giving it back would cost it a delivery.
    """

    def __init__(self, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """`bounds`: log start and log end by (topic, partition), at the start of the read."""
        self._ends = {place: end for place, (start, end) in bounds.items() if start < end}

    def note(self, found: Iterable[Range]) -> None:
        """Note acquired ranges."""
        for entry in found:
            place = (entry.topic, entry.partition)
            if place in self._ends and entry.last_offset + 1 >= self._ends[place]:
                del self._ends[place]

    @property
    def left(self) -> list[TopicPartitions]:
        """The partitions to fetch from. Empty: the read is complete."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._ends):
            topics.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
