"""Writes of locks share round trips, each of a bounded size."""

from collections.abc import Sequence

import msgspec
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks.lock_calls import LOCKS_PER_ENTRY, LOCKS_PER_WRITE, MOST_LOCKS, Call, LockWrite
from sharequeue_gateway.locks.lock_writer import round_trips

from sharequeue.protocol.types import RestoredLock, SharePartitionKey

KEY = SharePartitionKey("g", "t", 0)


def write_of(entries: Sequence[int], fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
    locks = [RestoredLock(number, number, "m", 1, 7, 30_000) for number in entries]
    return LockWrite(KEY, 3, 1, locks, False, fetch)


def trips_of(*writes: LockWrite) -> list[list[Call]]:
    return list(round_trips(writes, RedisKeys("c")))


def test_small_writes_share_a_round_trip_and_answers_of_fetches_come_last() -> None:
    fetch = ("f", b"answer", 1000)
    (trip,) = trips_of(write_of([1], fetch), write_of([]))
    assert [call.command[0] for call in trip] == ["RPUSHX", "RPUSHX", "HSET", "PEXPIRE"]
    assert [call.write for call in trip] == [0, 1, None, None]
    half = MOST_LOCKS // 2 - LOCKS_PER_WRITE
    trips = trips_of(write_of(range(half)), write_of(range(half)), write_of([]))
    assert [[call.write for call in trip] for trip in trips] == [[0, 1], [2]]
    trips = trips_of(write_of([1]), write_of(range(2 * MOST_LOCKS)), write_of([2]))
    assert [[call.write for call in trip] for trip in trips] == [[0], [1], [2]]


def test_a_round_trip_of_small_writes_is_short() -> None:
    """All locks of thousands of share-partitions are written again: the event loop stands still for one at a time."""
    trips = trips_of(*[write_of([1])] * 1000)
    assert max(len(trip) for trip in trips) <= 200
    assert sum(len(trip) for trip in trips) == 1000


def test_locks_in_place_of_all_others_are_added_before_the_others_go() -> None:
    """Otherwise a gateway that dies in between leaves none."""
    (trip,) = trips_of(msgspec.structs.replace(write_of(range(3)), whole=True))
    assert [call.command[0] for call in trip] == ["RPUSHX", "LTRIM", "PEXPIRE", "PEXPIRE"]
    assert trip[1].command[2:] == [-1, -1]
    assert [call.write for call in trip] == [0, None, None, 0]


def test_many_locks_are_several_entries_of_one_command() -> None:
    """The next leader decodes each in a turn of its event loop."""
    (trip,) = trips_of(msgspec.structs.replace(write_of(range(2 * LOCKS_PER_ENTRY + 1)), whole=True))
    push, trim, *_ = trip
    assert [len(msgspec.json.decode(entry)) for entry in push.command[2:]] == [LOCKS_PER_ENTRY] * 2 + [1]
    assert trim.command[2:] == [-3, -1]
