"""Acquisition locks on real Redis: restored as they were, fenced by the leader epoch, left out while Redis is away."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from sharequeue_gateway.lock_timers import LockEntry, LockName, LockTimers, LockWrite, fetch_key, lock_hash
from sharequeue_gateway.share_partition import RestoredLock

from sharequeue import embedded
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service import Clock
from tests.storage.record_logs import new_topic

Entries = Mapping[LockName, tuple[str, int, int]]
"""(member id, delivery count, deadline) by first and last offset."""


def new_key(group_id: str = "g", partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(group_id, new_topic(), partition)


def lock_write(
    key: SharePartitionKey,
    entries: Entries,
    *,
    leader_epoch: int = 1,
    state_epoch: int = 1,
    deadline_ms: int | None = None,
    over: Iterable[LockName] | None = (),
    fetch: tuple[str, bytes, int] | None = None,
) -> LockWrite:
    locks = {name: LockEntry(*entry, state_epoch) for name, entry in entries.items()}
    return LockWrite(key, leader_epoch, deadline_ms, locks, None if over is None else list(over), fetch)


def restored(entries: Entries) -> list[RestoredLock]:
    return [RestoredLock(*name, *entry) for name, entry in sorted(entries.items())]


@asynccontextmanager
async def timers(url: str, node_id: str = "gateway-0", timeout_ms: int = 5000) -> AsyncIterator[LockTimers]:
    """Lock timers of one gateway, with their loops running."""
    redis: Redis = Redis.from_url(url, socket_connect_timeout=1)
    started = LockTimers(redis, Clock(), node_id, timeout_ms)
    loops = [asyncio.create_task(started.run()), asyncio.create_task(started.remind())]
    try:
        yield started
        assert not any(loop.done() for loop in loops), "a loop ended"
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
        await redis.aclose()


async def locks_of(
    lock_timers: LockTimers, key: SharePartitionKey, leader_epoch: int = 1, state_epoch: int = 1
) -> list[RestoredLock] | None:
    (locks,) = await lock_timers.load([(key, leader_epoch, state_epoch)])
    return None if locks is None else sorted(locks)


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


HELD: Entries = {(0, 9): ("m1", 1, 5_000_000_000_123), (10, 10): ("m2", 3, 5_000_000_000_456)}


# Written and restored


async def test_the_next_leader_finds_the_locks_as_they_were(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as first:
        assert await first.write(lock_write(key, HELD))
    async with timers(redis_url, "gateway-1") as second:
        assert await locks_of(second, key, leader_epoch=2) == restored(HELD)


async def test_locks_change_and_go(redis_url: str) -> None:
    key, other = new_key(), new_key()
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD))
        await lock_timers.write(lock_write(other, HELD))
        await lock_timers.write(lock_write(key, {(10, 12): ("m3", 4, 77), (20, 20): ("m3", 1, 77)}, over=[*HELD]))
        assert await locks_of(lock_timers, key) == restored({(10, 12): ("m3", 4, 77), (20, 20): ("m3", 1, 77)})
        assert await locks_of(lock_timers, other) == restored(HELD)
        await lock_timers.write(lock_write(key, {}, over=[(10, 12), (20, 20), (99, 99)]))
        assert await locks_of(lock_timers, key) == []


async def test_a_part_is_a_lock_of_its_own(redis_url: str) -> None:
    key = new_key()
    parts: Entries = {(0, 3): ("m2", 2, 99), (0, 9): ("m1", 1, 88)}
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 77)}))
        await lock_timers.write(lock_write(key, {(0, 3): ("m2", 2, 99)}))
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 88)}))
        assert await locks_of(lock_timers, key) == restored(parts)
        await lock_timers.write(lock_write(key, {}, over=[(0, 9)]))
        assert await locks_of(lock_timers, key) == restored({(0, 3): ("m2", 2, 99)})


async def test_all_others_are_over(redis_url: str) -> None:
    key, other = new_key(), new_key()
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD, leader_epoch=4, state_epoch=1))
        await lock_timers.write(lock_write(other, HELD))
        left: Entries = {(10, 10): ("m2", 3, 8), (30, 39): ("m1", 1, 9)}
        assert not await lock_timers.write(lock_write(key, left, leader_epoch=3, over=None)), "a zombie clears nothing"
        assert await locks_of(lock_timers, key, leader_epoch=4) == restored(HELD)
        assert await lock_timers.write(lock_write(key, left, leader_epoch=4, state_epoch=2, over=None))
        assert await locks_of(lock_timers, key, leader_epoch=4, state_epoch=2) == restored(left)
        assert await locks_of(lock_timers, key, leader_epoch=4, state_epoch=1) == []
        assert await locks_of(lock_timers, key, leader_epoch=3) is None, "the epoch stays"
        assert await locks_of(lock_timers, other) == restored(HELD)


async def test_locks_of_another_state_epoch_are_not_restored(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 7)}, state_epoch=1))
        await lock_timers.write(lock_write(key, {(10, 19): ("m1", 1, 7)}, state_epoch=2))
        assert await locks_of(lock_timers, key, state_epoch=2) == restored({(10, 19): ("m1", 1, 7)})
        assert await locks_of(lock_timers, key, state_epoch=3) == []


async def test_many_locks_at_once(redis_url: str) -> None:
    keys = [new_key(partition=number) for number in range(300)]
    async with timers(redis_url) as lock_timers:
        writes = [lock_write(key, {(number, number): ("m", 1, 7)}) for number, key in enumerate(keys)]
        assert all(await asyncio.gather(*(lock_timers.write(write) for write in writes)))
        found = await lock_timers.load([(key, 1, 1) for key in keys])
        assert found == [restored({(number, number): ("m", 1, 7)}) for number in range(300)]


async def test_one_write_may_hold_many_locks(redis_url: str) -> None:
    key = new_key()
    entries: Entries = {(2 * number, 2 * number): ("m", 1, 7) for number in range(10_000)}
    async with timers(redis_url) as lock_timers:
        assert await lock_timers.write(lock_write(key, entries))
        assert not lock_timers.degraded
        assert await locks_of(lock_timers, key) == restored(entries)
        assert await lock_timers.write(lock_write(key, {}, over=list(entries)[1:]))
        assert not lock_timers.degraded
        assert await locks_of(lock_timers, key) == restored({(0, 0): ("m", 1, 7)})


def test_names_do_not_collide() -> None:
    topic = new_topic()
    assert lock_hash(SharePartitionKey("1:g", topic, 0)) != lock_hash(SharePartitionKey("g", topic, 1))
    names = {lock_hash(SharePartitionKey(group, topic, n)) for group in ("g", "g:0", "0:g", ":") for n in range(3)}
    assert len(names) == 12
    assert len({fetch_key("a", "b,c", "d"), fetch_key("a", "b", "c,d"), fetch_key('a","b', "c", "d")}) == 3


# Fencing


async def test_a_zombie_leader_hands_out_nothing(redis_url: str) -> None:
    key, free = new_key(), new_key()
    async with timers(redis_url) as zombie, timers(redis_url, "gateway-1") as leader:
        assert await zombie.write(lock_write(key, HELD, leader_epoch=4))
        assert await locks_of(leader, key, leader_epoch=5) == restored(HELD)
        assert not await zombie.write(
            lock_write(key, {(50, 59): ("m9", 1, 7)}, leader_epoch=4, over=[(0, 9), (10, 10)])
        )
        assert await locks_of(zombie, key, leader_epoch=4) is None
        assert await zombie.write(lock_write(free, {}, leader_epoch=4)), "other share-partitions are not touched"
        assert await leader.write(lock_write(key, {(20, 20): ("m1", 1, 7)}, leader_epoch=5))
        assert await locks_of(leader, key, leader_epoch=5) == restored({**HELD, (20, 20): ("m1", 1, 7)})


async def test_a_write_raises_the_epoch_too(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as lock_timers:
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))
        assert not await lock_timers.write(lock_write(key, {}, leader_epoch=9))
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))


# Due


async def test_due_share_partitions_are_named(redis_url: str) -> None:
    due, later, ended, forgotten, elsewhere = (new_key(f"g{number}:x") for number in range(5))
    now_ms = Clock().now_ms()
    async with timers(redis_url) as lock_timers, timers(redis_url, "gateway-1") as other:
        named: list[SharePartitionKey] = []
        await lock_timers.write(lock_write(ended, {}, deadline_ms=now_ms - 10))
        await lock_timers.write(lock_write(ended, {}, deadline_ms=None))
        await lock_timers.write(lock_write(forgotten, {}, deadline_ms=now_ms - 10))
        await lock_timers.forget_due(forgotten)
        await lock_timers.write(lock_write(later, {}, deadline_ms=now_ms + 3_600_000))
        await other.write(lock_write(elsewhere, {}, deadline_ms=now_ms - 10))
        lock_timers.on_due = named.append
        await lock_timers.write(lock_write(due, {}, deadline_ms=now_ms + 50))
        await until(lambda: named.count(due) >= 3)
        assert set(named) == {due}
        await lock_timers.write(lock_write(due, {}, deadline_ms=now_ms + 3_600_000))
        await lock_timers.write(lock_write(later, {}, deadline_ms=now_ms))
        await until(lambda: later in named)


# Answers of fetches


async def test_what_a_fetch_was_answered_is_kept_with_its_locks(redis_url: str) -> None:
    key = new_key()
    name = fetch_key("g", "m1", "f1")
    async with timers(redis_url) as first, timers(redis_url, "gateway-1") as second:
        assert await second.fetched(name) is None
        await first.write(lock_write(key, HELD, fetch=(name, b"ranges", 60_000)))
        assert await second.fetched(name) == b"ranges"
        await first.write(lock_write(key, HELD, fetch=(fetch_key("g", "m1", "f2"), b"short", 30)))
        async with asyncio.timeout(5):
            while await second.fetched(fetch_key("g", "m1", "f2")) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


# Redis away


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[embedded.Redis]:
    server = embedded.Redis(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_while_redis_is_away_all_goes_on_and_then_every_lock_is_written_back(
    own_redis: embedded.Redis, tmp_path: Path
) -> None:
    keys = [new_key(partition=number) for number in range(600)]
    async with timers(own_redis.url) as lock_timers:
        assert await lock_timers.write(lock_write(keys[0], HELD))
        own_redis.stop()
        assert await lock_timers.write(lock_write(keys[1], HELD)), "a fetch goes on"
        assert lock_timers.degraded
        assert await lock_timers.write(lock_write(keys[2], HELD))
        assert await locks_of(lock_timers, keys[0]) == []
        assert await lock_timers.fetched("x") is None

        led = [lock_write(key, HELD, deadline_ms=7) for key in keys]
        lock_timers.all_locks = lambda: led
        emptied = embedded.Redis(tmp_path / "empty", own_redis.port)
        emptied.start()
        try:
            await until(lambda: not lock_timers.degraded)
            async with timers(emptied.url, "gateway-1") as next_leader:
                found = await next_leader.load([(key, 2, 1) for key in keys])
                assert [sorted(locks or []) for locks in found] == [restored(HELD)] * len(keys)
            assert not await lock_timers.write(lock_write(keys[0], HELD)), "fenced as before"
        finally:
            lock_timers.all_locks = list
            emptied.stop()


async def test_a_lock_taken_while_the_others_are_written_back_is_written_too(own_redis: embedded.Redis) -> None:
    early, late = new_key(), new_key()
    async with timers(own_redis.url) as lock_timers:
        own_redis.stop()
        assert await lock_timers.write(lock_write(early, HELD))
        assert lock_timers.degraded
        taken: list[bool] = []

        def take() -> None:
            taken.append(lock_timers.degraded)
            lock_timers.write(lock_write(late, HELD))

        def all_locks() -> list[LockWrite]:
            asyncio.get_running_loop().call_soon(take)
            return [lock_write(early, HELD)]

        lock_timers.all_locks = all_locks
        own_redis.start()
        await until(lambda: not lock_timers.degraded)
        assert taken[-1], "it was taken before Redis was in use again"
        assert await locks_of(lock_timers, early) == restored(HELD)
        assert await locks_of(lock_timers, late) == restored(HELD)


async def test_a_redis_that_hangs_is_left_out_until_it_answers(own_redis: embedded.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url, timeout_ms=50) as lock_timers:
        await lock_timers.write(lock_write(new_key(), HELD))
        await until(lambda: not lock_timers.degraded)
        lock_timers.all_locks = lambda: [lock_write(key, HELD)]
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(5):
                assert await lock_timers.write(lock_write(key, HELD))
            assert lock_timers.degraded
            async with asyncio.timeout(5):
                assert all(await asyncio.gather(*(lock_timers.write(lock_write(key, HELD)) for _ in range(100))))
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        await until(lambda: not lock_timers.degraded)
    async with timers(own_redis.url) as next_leader:
        assert await locks_of(next_leader, key) == restored(HELD)


async def test_a_busy_event_loop_is_not_a_redis_that_is_away(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url, timeout_ms=50) as lock_timers:
        assert await lock_timers.write(lock_write(new_key(), HELD))
        await until(lambda: not lock_timers.degraded)
        for _ in range(20):
            written = lock_timers.write(lock_write(key, HELD))
            await asyncio.sleep(0)
            time.sleep(0.1)  # noqa: ASYNC251 - the loop is busy
            assert await written
            assert not lock_timers.degraded
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_a_load_asks_a_redis_that_was_away(own_redis: embedded.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url) as earlier:
        assert await earlier.write(lock_write(key, HELD))
    own_redis.stop()
    redis: Redis = Redis.from_url(own_redis.url, socket_connect_timeout=1)
    next_leader = LockTimers(redis, Clock(), "gateway-0", 50)  # nothing probes whether Redis is back
    assert await locks_of(next_leader, key, leader_epoch=2) == []
    assert next_leader.degraded
    own_redis.start()
    assert await locks_of(next_leader, key, leader_epoch=2) == restored(HELD)
    assert next_leader.degraded, "only who has written all locks back uses it again"
    await redis.aclose()


async def test_locks_outlive_a_restart_of_redis(own_redis: embedded.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD))
    own_redis.stop()
    own_redis.start()
    async with timers(own_redis.url) as lock_timers:
        assert await locks_of(lock_timers, key) == restored(HELD)
