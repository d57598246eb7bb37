"""Whose turn it is: share-partitions by when they last gave records, leaders by the fetches of their partitions. Pure.

A share-partition with records is served within as many fetches as there are partitions, in any order of fetches: a
fetch that passes it over serves one that was served longer ago, and each of the others can be that one only once.
Source: KIP-932, a partition that returned records moves to the end.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Final, Protocol, TypeVar


class Served(Protocol):
    """`served_turn`: the number of the turn in which it last gave records; 0 if it never did."""

    served_turn: int


S = TypeVar("S", bound=Served)
Place = TypeVar("Place")
Leader = TypeVar("Leader")

_served_turn: Final = attrgetter("served_turn")


def in_turn(share_partitions: Iterable[S]) -> list[S]:
    """Sort by when each last gave records, the longest ago first; equal ones stay in order."""
    return sorted(share_partitions, key=_served_turn)


def leaders_in_turn(
    places: Sequence[Place], leader_of: Callable[[Place], Leader], turn: int, leaders: int
) -> list[Leader]:
    """The order in which a fetch asks the leaders of its partitions.

    Args:
        turn: of the fetch, among those of the same partitions: the partition with this number, modulo how many there
            are, has its leader asked first, then comes the leader of the next one that has another.
        leaders: how many different ones there are.
    Returns: each leader once. In as many turns as there are partitions each leader is first once for each partition.
    """
    found: dict[Leader, None] = {}
    for step in range(len(places)):
        found[leader_of(places[(turn + step) % len(places)])] = None
        if len(found) == leaders:
            break
    return list(found)


class Turns:
    """Counts turns by key. Keys that are not used are forgotten, and the oldest ones where there are very many.

    `first` gives the number at which an unknown key begins. It should differ from one time to the next.
    """

    def __init__(self, most: int, idle_ms: int, first: Callable[[], int]) -> None:
        self._most = most
        self._idle_ms = idle_ms
        self._first = first
        self._since_ms = 0
        self._used: dict[Hashable, int] = {}
        self._before: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._used) + len(self._before)

    def next(self, key: Hashable, now_ms: int) -> int:
        """The number of this turn."""
        if len(self._used) >= self._most or now_ms - self._since_ms >= self._idle_ms:
            self._before, self._used, self._since_ms = self._used, {}, now_ms
        turn = self._used.get(key)
        if turn is None:
            turn = self._before.pop(key, None)
        if turn is None:
            turn = self._first()
        self._used[key] = turn + 1
        return turn
