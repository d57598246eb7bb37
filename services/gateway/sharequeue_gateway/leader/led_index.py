"""The share-partitions that a gateway leads, found by key, group, topic or partition, or all that a fetch wants."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, TypeVar

from msgspec import Struct

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import KnownTopic, Partitions
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.wake_up import LedTopic, Waiter
from sharequeue_gateway.record_log.removing.readers_store import KEPT, Floor
from sharequeue_gateway.share_partition.fetch_limits import rotate
from sharequeue_gateway.share_partition.turns import in_turn, served_turn_of

Leds = dict[LedSharePartition, None]
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

NOTHING: Final[Mapping[int, LedSharePartition]] = MappingProxyType({})

LISTED: Final = 16
"""Whole topics of up to so many partitions each are listed; for those of more the leader keeps an index."""


class WholeTopics(Sequence[tuple[KnownTopic, int]]):
    """All partitions of some topics: they are listed only if one needs each of them."""

    def __init__(self, topics: Collection[KnownTopic], count: int) -> None:
        self.topics: Final = topics
        self._count: Final = count

    @cached_property
    def _each(self) -> list[tuple[KnownTopic, int]]:
        return [(topic, index) for topic in self.topics for index in range(topic.partitions)]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[KnownTopic, int]]:
        return iter(self._each)

    def __getitem__(self, at: Any) -> Any:
        return self._each[at]


def all_of(topics: Collection[KnownTopic]) -> Partitions:
    count = sum([topic.partitions for topic in topics])
    if count > LISTED * len(topics):
        return WholeTopics(topics, count)
    return [(topic, index) for topic in topics for index in range(topic.partitions)]


def topics_of(partitions: Partitions) -> Collection[KnownTopic]:
    return partitions.topics if type(partitions) is WholeTopics else dict(partitions)


class LedIndex:
    """The cost of a look-up follows the number found, not the number led.

    `by_key`, `by_topic` (then by partition), `by_group` (then by topic and partition): read them; `add` and `remove`
    change them. `timed`: those that may have a lock or a delay. `pending`: those that may have records pending on a
    transaction. `left`: the floors of unloaded share-partitions that `log.readers` does not have yet.
    """

    def __init__(self) -> None:
        self.by_key: Final[dict[SharePartitionKey, LedSharePartition]] = {}
        self.get: Final = self.by_key.get
        self.timed: dict[LedSharePartition, int] = {}
        self.pending: dict[LedSharePartition, None] = {}
        self.left: dict[SharePartitionKey, Floor] = {}
        self.by_group: dict[str, dict[str, dict[int, LedSharePartition]]] = {}
        self._whole: dict[tuple[str, str], LedTopic] = {}
        self.by_topic: dict[str, dict[int, Leds]] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(self.by_key.values())

    def whole_topics(self, group_id: str, topics: Collection[KnownTopic]) -> list[LedTopic]:
        """The index of each topic, made if there is none; an empty list if a partition is not loaded."""
        of_group, found = self.by_group.get(group_id, {}), []
        for topic in topics:
            there, key = of_group.get(topic.topic_id, NOTHING), (group_id, topic.topic_id)
            if len(there) != topic.partitions:
                return []
            if key not in self._whole:
                self._whole[key] = LedTopic([there[index] for index in range(len(there))])
            found.append(self._whole[key])
        return found

    def _end_index(self, key: SharePartitionKey) -> None:
        """A share-partition comes or goes: the fetches of its whole topic find the share-partitions again."""
        whole = self._whole.pop((key.group_id, key.topic_id), None)
        if whole is not None:
            whole.end()

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        return [led for of_topic in self.by_group.get(group_id, {}).values() for led in of_topic.values()]

    def add(self, led: LedSharePartition) -> None:
        key = led.key
        self._end_index(key)
        self.by_key[key] = led
        self.by_group.setdefault(key.group_id, {}).setdefault(key.topic_id, {})[key.partition] = led
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
        self._end_index(key)
        del self.by_key[key]
        self.timed.pop(led, None)
        self.pending.pop(led, None)
        of_group = self.by_group[key.group_id]
        _remove(of_group, key.topic_id, key.partition)
        if not of_group:
            del self.by_group[key.group_id]
        of_topic = self.by_topic[key.topic_id]
        _remove(of_topic, key.partition, led)
        if not of_topic:
            del self.by_topic[key.topic_id]
        return True


def _remove(index: dict[K, dict[V, R]], name: K, member: V) -> None:
    members = index[name]
    del members[member]
    if not members:
        del index[name]


def ready_in_turn(topics: Sequence[LedTopic], turn: int, most: int) -> list[LedSharePartition]:
    """The first share-partitions of these topics that may have records, as `in_turn(rotate(all, turn))` has them."""
    skipped = turn % sum(len(topic.members) for topic in topics)
    ahead: list[LedSharePartition] = []
    behind: list[LedSharePartition] = []
    served: list[list[LedSharePartition]] = []
    for topic in topics:
        places, members = topic.in_turn, topic.members
        first, end = bisect_left(places, (0, skipped)), bisect_left(places, (1, 0))
        skipped = max(skipped - len(members), 0)
        ahead += [members[partition] for _, partition in places[first : min(first + most, end)]]
        behind += [members[partition] for _, partition in places[: min(first, most)]]
        served.append([members[partition] for _, partition in places[end : end + most]])
    return [*ahead, *behind, *islice(merge(*served, key=served_turn_of), most)][:most]


class Sought(Struct, eq=False):
    """The share-partitions that a fetch asks for.

    A fetch of whole topics that are loaded works with the index of each topic: its cost follows the share-partitions
    that may have records. Any other fetch looks at each of its share-partitions.

    `leds`, `missing`: those that are loaded, and the others; without an index. `looked_at`: those from which the fetch
    may have kept others. `waits`: whether it has waited for all of them.
    """

    index: LedIndex
    group_id: str
    partitions: Partitions
    turn: int | None = None
    waits: bool = False
    topics: Sequence[LedTopic] = ()
    leds: list[LedSharePartition] = []
    looked_at: list[LedSharePartition] = []
    missing: Partitions = ()

    def find(self) -> None:
        """Find those that are loaded now; all in order."""
        partitions = self.partitions
        self.topics, self.leds = (), []
        missing: list[tuple[KnownTopic, int]] = []
        self.missing, self.looked_at = missing, self.leds
        if type(partitions) is WholeTopics:
            self.topics = self.index.whole_topics(self.group_id, partitions.topics)
            if self.topics:
                self.looked_at = []
                return
        if self.turn is not None:
            partitions = rotate(partitions, self.turn)
        of_group = self.index.by_group.get(self.group_id, {})
        for place in partitions:
            led = of_group.get(place[0].topic_id, NOTHING).get(place[1])
            if led is None:
                missing.append(place)
            else:
                self.leds.append(led)

    def __iter__(self) -> Iterator[LedSharePartition]:
        """All that are loaded."""
        return chain(self.leds, *(topic.members for topic in self.topics))

    def __len__(self) -> int:
        return len(self.leds) + sum(len(topic.members) for topic in self.topics)

    def ready(self, now_ms: int, most: int | None = None) -> list[LedSharePartition]:
        """The first ones that may have records, in turn. All of them stay loaded."""
        if self.topics:
            for topic in self.topics:
                topic.used_at_ms = now_ms
            return ready_in_turn(self.topics, self.turn or 0, most or len(self))
        there = []
        for led in self.leds:
            led.used_at_ms = now_ms
            if led.empty_until_ms <= now_ms:
                there.append(led)
        return in_turn(there) if len(there) > 1 else there

    def unloaded(self) -> bool:
        """Return whether one of them was unloaded since they were found, and must be loaded again."""
        return any(each.fenced for each in self.topics or self.leds)

    def add_waiter(self, waiter: Waiter) -> None:
        self.waits = True
        for each in self.topics or self.leds:
            each.add_waiter(waiter)

    def remove_waiter(self, waiter: Waiter) -> None:
        for each in self.topics or self.leds:
            each.remove_waiter(waiter)
