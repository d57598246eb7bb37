"""The share-partitions a gateway leads, found by key, by group, by topic and by partition."""

from collections.abc import Collection, Iterator
from typing import TypeVar

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.led_share_partition import LedSharePartition

Leds = dict[LedSharePartition, None]
K = TypeVar("K")


class LedIndex:
    """Each look-up costs what it finds, however many are led."""

    def __init__(self) -> None:
        self._by_key: dict[SharePartitionKey, LedSharePartition] = {}
        self._by_group: dict[str, Leds] = {}
        self._by_topic: dict[str, dict[int, Leds]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(self._by_key.values())

    def get(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self._by_key.get(key)

    def of_group(self, group_id: str) -> Collection[LedSharePartition]:
        return self._by_group.get(group_id, ())

    def of_topic(self, topic_id: str) -> list[LedSharePartition]:
        return [led for leds in self._by_topic.get(topic_id, {}).values() for led in leds]

    def of_partition(self, topic_id: str, partition: int) -> Collection[LedSharePartition]:
        return self._by_topic.get(topic_id, {}).get(partition, ())

    def add(self, led: LedSharePartition) -> None:
        key = led.key
        self._by_key[key] = led
        self._by_group.setdefault(key.group_id, {})[led] = None
        self._by_topic.setdefault(key.topic_id, {}).setdefault(key.partition, {})[led] = None

    def remove(self, led: LedSharePartition) -> bool:
        """Returns: whether it was there."""
        key = led.key
        if self._by_key.get(key) is not led:
            return False
        del self._by_key[key]
        _remove(self._by_group, key.group_id, led)
        partitions = self._by_topic[key.topic_id]
        _remove(partitions, key.partition, led)
        if not partitions:
            del self._by_topic[key.topic_id]
        return True


def _remove(index: dict[K, Leds], name: K, led: LedSharePartition) -> None:
    leds = index[name]
    del leds[led]
    if not leds:
        del index[name]
