"""The order of share-partitions, by the time they last gave records, and of leaders and topics, by the number of
fetches. Pure.

A share-partition with records is served within as many fetches as there are partitions, in any order of fetches. A
fetch that passes over it serves another one, which was served longer ago, and each other one can do so only once.
Source: KIP-932, a partition that returned records moves to the end.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from sharequeue_gateway.share_partition.fetch_limits import rotate

LEVELS: Final = 10
"""The levels of a fetch with `priority`: a topic each, and the last level for all further topics."""
SHARE: Final = 10
"""One of so many fetches with `priority` begins at a lower topic."""
NO_DEADLINE_MS: Final = 1 << 62


Place = TypeVar("Place")
Leader = TypeVar("Leader")
T = TypeVar("T")

served_turn_of: Final = attrgetter("served_turn")


def in_turn(share_partitions: Iterable[T]) -> list[T]:
    """Sort by `served_turn`: the number of the turn in which each last gave records, 0 if it never did. Equal ones keep
    their order."""
    return sorted(share_partitions, key=served_turn_of)


def leaders_in_turn(
    places: Sequence[Place], leader_of: Callable[[Place], Leader], turn: int, leaders: int
) -> list[Leader]:
    """The order in which a fetch asks the leaders of its partitions.

    Args:
        turn: the number of the fetch among those of the same partitions. Modulo the number of partitions, it chooses
            one: its leader is asked first, then the leaders of the partitions behind it.
        leaders: the number of different leaders.
    Returns: each leader once. In as many turns as there are partitions, each leader is first once for each of its
        partitions.
    """
    found: dict[Leader, None] = {}
    for step in range(len(places)):
        found[leader_of(places[(turn + step) % len(places)])] = None
        if len(found) == leaders:
            break
    return list(found)


def by_priority(topics: Sequence[T], turn: int) -> list[T]:
    """The order in which a fetch looks at topics, which come in the order of priority.

    One of `SHARE` fetches begins at a lower topic, at the next one each time, and looks at the first topic last.
    """
    if turn % SHARE or not topics:
        return list(topics)
    return [*rotate(topics[1:], turn // SHARE), topics[0]]


def levels_of(topics: Iterable[T]) -> dict[T, int]:
    """The level of each topic. `topics`: in the order of looking, repeats allowed."""
    return {topic: min(index, LEVELS - 1) for index, topic in enumerate(dict.fromkeys(topics))}


def by_level(items: Iterable[T], level_of: Callable[[T], int]) -> list[list[T]]:
    """The items of each level, the first level first. Within a level they keep their order."""
    found: dict[int, list[T]] = {}
    for item in items:
        found.setdefault(level_of(item), []).append(item)
    return [found[level] for level in sorted(found)]


class Turns:
    """Counts turns by key, of at most `most` keys: the one that was used longest ago is dropped for a new one.

    `first` returns the first number of an unknown key. It should differ from call to call.
    """

    def __init__(self, most: int, first: Callable[[], int]) -> None:
        self._most = most
        self._first = first
        self._next: OrderedDict[Hashable, int] = OrderedDict()

    def next(self, key: Hashable) -> int:
        """The number of this turn."""
        turn = self._next[key] if key in self._next else self._first()
        self._next[key] = turn + 1
        self._next.move_to_end(key)
        if len(self._next) > self._most:
            self._next.popitem(last=False)
        return turn
