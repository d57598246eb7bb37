"""The share-partitions that a gateway leads, found by key, group, topic or partition."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import KnownTopic
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.removing.readers_store import KEPT, Floor

Leds = dict[LedSharePartition, None]
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

NOTHING: Final[Mapping[int, LedSharePartition]] = MappingProxyType({})


class LedIndex:
    """The cost of a look-up follows the number found, not the number led.

    `by_key`, `by_topic` (then by partition): read them; `add` and `remove` change them. `timed`: those that may have a
    lock or a delay. `pending`: those that may have records pending on a transaction. `left`: the floors of unloaded
    share-partitions that `log.readers` does not have yet.
    """

    def __init__(self) -> None:
        self.by_key: dict[SharePartitionKey, LedSharePartition] = {}
        self.timed: dict[LedSharePartition, int] = {}
        self.pending: dict[LedSharePartition, None] = {}
        self.left: dict[SharePartitionKey, Floor] = {}
        self._by_group: dict[str, dict[str, dict[int, LedSharePartition]]] = {}
        self.by_topic: dict[str, dict[int, Leds]] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(self.by_key.values())

    def get(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self.by_key.get(key)

    def find(
        self, group_id: str, partitions: Sequence[tuple[KnownTopic, int]]
    ) -> tuple[list[LedSharePartition], Sequence[tuple[KnownTopic, int]]]:
        """Returns: the loaded share-partitions of a group, and the partitions that are not loaded; both in order."""
        of_group = self._by_group.get(group_id)
        if of_group is None:
            return [], partitions
        found: list[LedSharePartition] = []
        missing: list[tuple[KnownTopic, int]] = []
        for place in partitions:
            led = of_group.get(place[0].topic_id, NOTHING).get(place[1])
            if led is None:
                missing.append(place)
            else:
                found.append(led)
        return found, missing

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        return [led for of_topic in self._by_group.get(group_id, {}).values() for led in of_topic.values()]

    def of_topic(self, topic_id: str) -> list[LedSharePartition]:
        return [led for leds in self.by_topic.get(topic_id, {}).values() for led in leds]

    def add(self, led: LedSharePartition) -> None:
        key = led.key
        self.by_key[key] = led
        self._by_group.setdefault(key.group_id, {}).setdefault(key.topic_id, {})[key.partition] = led
        self.by_topic.setdefault(key.topic_id, {}).setdefault(key.partition, {})[led] = None
        self.timed[led] = 0
        if led.machine.holds:
            self.pending[led] = None
            metrics.PENDING_LOADED.inc(len(led.machine.holds))

    def note_left(self, led: LedSharePartition) -> None:
        """Note that it is unloaded: keep how far its group has finished it, for the next raise of floors. What is ahead
        of the floor is for the next leader to say."""
        if led.stored_start > led.floor:
            self.left[led.key] = Floor(led.key, led.machine.state_epoch, led.stored_start, KEPT, KEPT)

    def remove(self, led: LedSharePartition) -> bool:
        """Returns: whether it was there."""
        key = led.key
        if self.by_key.get(key) is not led:
            return False
        del self.by_key[key]
        self.timed.pop(led, None)
        self.pending.pop(led, None)
        of_group = self._by_group[key.group_id]
        _remove(of_group, key.topic_id, key.partition)
        if not of_group:
            del self._by_group[key.group_id]
        partitions = self.by_topic[key.topic_id]
        _remove(partitions, key.partition, led)
        if not partitions:
            del self.by_topic[key.topic_id]
        return True


def _remove(index: dict[K, dict[V, R]], name: K, member: V) -> None:
    members = index[name]
    del members[member]
    if not members:
        del index[name]
