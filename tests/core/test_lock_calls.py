"""Large writes of locks, call by call: what Redis holds after each of them is safe for the next leader."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks.lock_calls import MOST_FIELDS, Call, LockEntry, LockWrite, encode
from sharequeue_gateway.locks.lock_writer import round_trips

from sharequeue.protocol.types import SharePartitionKey

KEY = SharePartitionKey("g", "t", 0)
LOCK = LockEntry("m", 1, 7, 1, 30_000, 0)
STAGED = "sharequeue:c:locks:t:0:g:staged:3"


def write_of(
    entries: Sequence[int], over: Sequence[int] | None, fetch: tuple[str, bytes, int] | None = None
) -> LockWrite:
    names = None if over is None else [(number, number) for number in over]
    return LockWrite(KEY, 3, 99, {(number, number): LOCK for number in entries}, names, fetch)


def trips_of(*writes: LockWrite) -> list[list[Call]]:
    return list(round_trips(writes, RedisKeys("c"), "n"))


class Hashes:
    """What the calls leave in Redis, as the script does it. `answers`: of the calls that check a leader epoch."""

    def __init__(self, *names: int) -> None:
        self.locks = dict.fromkeys(map(_field, names), b"old")
        self.staged = {"of a write that was not finished": b"old"}
        self.answers: list[int] = []

    def run(self, call: Call) -> None:
        command = list(call.command)
        if command[0] == "UNLINK":
            assert command == ["UNLINK", STAGED]
            self.staged.clear()
        elif command[0] == "HSET":
            assert command[1] == STAGED
            self.staged.update(_pairs(command[2:]))
        elif command[0] == "EVALSHA":
            assert command[2:7] == [4, "sharequeue:c:locks:t:0:g", "sharequeue:c:due:n", "sharequeue:c:due", STAGED]
            assert command[7:10] == [3, encode(KEY), 99]
            over, staged, rest = command[11], command[12], command[13:]
            if staged:
                assert len(self.staged) == staged
                self.locks, self.staged = self.staged, {}
            elif over == "":
                self.locks = {}
            for name in rest[: over or 0]:
                self.locks.pop(name, None)
            self.locks.update(_pairs(rest[over or 0 :]))


def _field(number: int) -> str:
    return f"{number}-{number}"


def _pairs(parts: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
    return zip(parts[::2], parts[1::2], strict=True)


SIZES = (0, 1, MOST_FIELDS - 1, MOST_FIELDS, MOST_FIELDS + 1, 2 * MOST_FIELDS, 2 * MOST_FIELDS + 1)


@pytest.mark.parametrize("ended", [*SIZES, None])
@pytest.mark.parametrize("new", SIZES)
def test_what_a_large_write_leaves_after_each_call_is_safe(new: int, ended: int | None) -> None:
    old = range(10_000, 10_000 + max(SIZES))
    entries = range(new) if ended is not None else [*range(new), *old[:5]]
    hashes = Hashes(*old)
    kept = {_field(number) for number in (old[ended:] if ended is not None else old[:5])}
    for trip in trips_of(write_of(entries, None if ended is None else old[:ended])):
        assert sum(call.fields for call in trip) <= MOST_FIELDS
        for call in trip:
            hashes.run(call)
            assert hashes.locks.keys() >= kept, "a lock that is held is always there"
            if ended is None:
                assert hashes.locks.keys() in ({_field(number) for number in old}, set(map(_field, entries)))
    assert hashes.locks.keys() == kept | set(map(_field, entries))


def test_a_name_that_ended_and_is_taken_again_stays() -> None:
    many = range(MOST_FIELDS + 1)
    hashes = Hashes(*many)
    for trip in trips_of(write_of(many, many)):
        for call in trip:
            hashes.run(call)
    assert hashes.locks == dict.fromkeys(map(_field, many), encode(LOCK))


def test_small_writes_share_a_round_trip_and_answers_of_fetches_come_last() -> None:
    fetch = ("f", b"answer", 1000)
    (trip,) = trips_of(write_of([1], [], fetch), write_of([2], [3]))
    assert [call.command[0] for call in trip] == ["EVALSHA", "EVALSHA", "HSET", "PEXPIRE"]
    assert [call.write for call in trip] == [0, 1, None, None]
    half = MOST_FIELDS // 2
    trips = trips_of(write_of(range(half), []), write_of(range(half), []), write_of([1], [2]))
    assert [[call.write for call in trip] for trip in trips] == [[0, 1], [2]]
