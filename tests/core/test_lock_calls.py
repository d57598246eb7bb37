"""Writes of locks share round trips, each of a bounded size."""

from collections.abc import Sequence

import msgspec
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks.lock_calls import MOST_FIELDS, Call, LockWrite
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
    assert [call.command[0] for call in trip] == ["EVALSHA", "EVALSHA", "HSET", "PEXPIRE"]
    assert [call.write for call in trip] == [0, 1, None, None]
    half = MOST_FIELDS // 2
    trips = trips_of(write_of(range(half)), write_of(range(half)), write_of([]))
    assert [[call.write for call in trip] for trip in trips] == [[0, 1], [2]]
    trips = trips_of(write_of([1]), write_of(range(2 * MOST_FIELDS)), write_of([2]))
    assert [[call.write for call in trip] for trip in trips] == [[0], [1], [1], [2]]


def test_no_script_writes_more_than_a_round_trip_of_fields() -> None:
    """Redis answers no gateway while it runs one, and a gateway that waits too long works without Redis."""
    trips = trips_of(msgspec.structs.replace(write_of(range(3 * MOST_FIELDS)), whole=True))
    assert [len(call.command) for trip in trips for call in trip] == [7 + 2 * MOST_FIELDS] * 3 + [7]
