"""Thousands of locks of one share-partition in Redis, and a Redis that was emptied."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks.lock_calls import MOST_LOCKS, LockWrite
from sharequeue_gateway.locks.lock_writer import round_trips

from sharequeue.protocol.types import RestoredLock
from sharequeue.stack import redis as redis_server
from tests.storage.written_locks import HELD, Entries, lock_write, locks_of, new_key, restored, timers, until

MANY = 2 * MOST_LOCKS + 500


def singles(first: int, count: int = MANY, member: str = "m") -> Entries:
    return {(2 * number, 2 * number): (member, 1, 7) for number in range(first, first + count)}


@pytest.mark.parametrize("whole", [False, True])
async def test_thousands_of_locks_are_written_replaced_and_read(redis_url: str, whole: bool) -> None:
    key = new_key()
    old, new = singles(0), singles(MANY)
    async with timers(redis_url, timeout_ms=20_000) as lock_timers:
        assert await lock_timers.write(lock_write(key, old))
        assert await lock_timers.write(lock_write(key, new, whole=whole))
        assert await locks_of(lock_timers, key) == restored(new if whole else {**old, **new})
        assert not lock_timers.degraded


async def test_many_locks_do_not_replace_those_that_the_next_leader_has_read(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as first, timers(redis_url, "gateway-1") as second:
        assert await first.write(lock_write(key, HELD))
        assert await locks_of(second, key, leader_epoch=2) == restored(HELD)
        assert not await first.write(lock_write(key, singles(0), whole=True))
        assert await locks_of(second, key, leader_epoch=2) == restored(HELD)
        assert await second.write(lock_write(key, singles(1), leader_epoch=2, whole=True))
        assert await locks_of(second, key, leader_epoch=3) == restored(singles(1))


async def test_calls_that_are_sent_again_replace_no_lock(redis_url: str) -> None:
    """The connection was closed behind the last ones, and nobody knows whether Redis has run them."""
    key = new_key()
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        write = lock_write(key, singles(0), whole=True)
        assert await lock_timers.write(write)
        (trip,) = round_trips([write], RedisKeys())
        for call in trip:
            await redis.execute_command(*call.command)
            assert await locks_of(lock_timers, key) == restored(singles(0))


async def test_a_redis_that_was_emptied_unseen_gets_all_locks_again(own_redis: redis_server.Redis) -> None:
    """It was restarted between two calls, so no call failed."""
    key = new_key()
    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        assert await lock_timers.write(lock_write(key, HELD))
        lock_timers.all_locks = lambda: [lock_write(key, HELD)]
        await until(lambda: lock_timers._marked)
        await admin.flushall()
        async with timers(own_redis.url, "gateway-1") as next_leader:
            found: list[RestoredLock] = []
            while not found:
                await asyncio.sleep(0.05)
                found = await locks_of(next_leader, key) or []
            assert sorted(found) == restored(HELD)
        assert not lock_timers.degraded


@pytest.mark.parametrize("outage", [False, True], ids=["emptied", "away"])
async def test_a_write_of_all_locks_lets_other_tasks_run_and_overtakes_none_of_their_writes(
    own_redis: redis_server.Redis, monkeypatch: pytest.MonkeyPatch, outage: bool
) -> None:
    monkeypatch.setattr("sharequeue.slices.SLICE_S", -1.0)
    first, last = new_key(), new_key()
    acquired: list[bool] = []

    def all_locks() -> Iterator[LockWrite]:
        def acquire() -> None:
            lock_timers.write(lock_write(first, singles(50, 1)))
            lock_timers.write(lock_write(last, singles(0, 1)))
            acquired.append(True)

        asyncio.get_running_loop().call_soon(acquire)
        yield lock_write(first, HELD, whole=True)
        assert acquired, "between two share-partitions"
        yield lock_write(last, HELD, whole=True)

    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        assert await lock_timers.write(lock_write(first, HELD))
        await until(lambda: lock_timers._marked)
        lock_timers.all_locks = all_locks
        if outage:
            own_redis.stop()
            await until(lambda: lock_timers.degraded)
            own_redis.start()
        else:
            await admin.flushall()
        found: list[RestoredLock] | None = None
        while found != restored(HELD):
            await asyncio.sleep(0.05)
            found = await locks_of(lock_timers, last)
        assert await locks_of(lock_timers, first) == restored({**HELD, **singles(50, 1)}), "acquired after its turn"
        assert acquired == [True]


async def test_locks_of_several_share_partitions_are_read_together(redis_url: str) -> None:
    keys = [new_key(partition=number) for number in range(3)]
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        for count, key in enumerate(keys, 1):
            assert await lock_timers.write(lock_write(key, singles(0, count)))
        await redis.set(RedisKeys().leader(keys[1]), 9)
        found = await lock_timers.load([(key, 1, 1) for key in keys])
        assert found[1] == 9, "another gateway leads it"
        assert [sorted(each.locks) for each in found if not isinstance(each, int)] == [
            restored(singles(0, count)) for count in (1, 3)
        ]
