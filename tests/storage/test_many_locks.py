"""Thousands of locks of one share-partition in Redis: cut into calls, with a crash between any two of them."""

import asyncio

import pytest
from redis.asyncio import Redis
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks import scripts
from sharequeue_gateway.locks.lock_calls import MOST_FIELDS, Command, LockWrite
from sharequeue_gateway.locks.lock_writer import round_trips
from sharequeue_gateway.share_partition.machine import RestoredLock

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack import redis as redis_server
from tests.storage.slow_redis import SlowRedis
from tests.storage.written_locks import HELD, Entries, lock_write, locks_of, new_key, restored, timers, until

MANY = 2 * MOST_FIELDS + 500
PARTS_OF_A_CALL = 2 * MOST_FIELDS + 20
"""A field and its value are two; a script call has a few more."""


def singles(first: int, count: int = MANY, member: str = "m") -> Entries:
    return {(2 * number, 2 * number): (member, 1, 7) for number in range(first, first + count)}


@pytest.mark.parametrize("over", ["some", "all", "replaced"])
async def test_no_call_has_more_fields_than_its_bound(own_redis: redis_server.Redis, over: str) -> None:
    key = new_key()
    old, new = singles(0), singles(MANY)
    with SlowRedis(own_redis.url).running() as slow:
        async with timers(slow.url, timeout_ms=20_000) as lock_timers:
            assert await lock_timers.write(lock_write(key, old))
            names = {"some": list(old)[:3000], "all": list(old), "replaced": None}[over]
            assert await lock_timers.write(lock_write(key, new, over=names))
            left = {} if names is None else {name: old[name] for name in old if name not in names}
            assert await locks_of(lock_timers, key) == restored({**left, **new})
            assert not lock_timers.degraded
        assert slow.most_asked <= PARTS_OF_A_CALL
        assert slow.most_answered <= PARTS_OF_A_CALL


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_crash_between_two_calls_of_a_write_loses_no_lock(redis_url: str, replaces: bool) -> None:
    old, new = singles(0), singles(MANY)
    ended = list(old)[:3000]
    held = {name: old[name] for name in old if name not in ended}
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        for script in scripts.ALL:
            await redis.script_load(script)
        sent = 0
        while True:
            key = new_key()
            assert await lock_timers.write(lock_write(key, old))
            if replaces:
                write = lock_write(key, {**held, **new}, over=None, deadline_ms=7)
            else:
                write = lock_write(key, new, over=ended, deadline_ms=7)
            commands = commands_of(write)
            for command in commands[:sent]:
                await redis.execute_command(*command)
            left = {(lock.first_offset, lock.last_offset) for lock in await locks_of(lock_timers, key, 2) or ()}
            assert left >= set(held), "held before and after"
            assert left <= {*old, *new}
            if replaces:
                assert left in ({*old}, {*held, *new}), "all of them or none"
            if sent == len(commands):
                assert left == {*held, *new}
                break
            sent += 1
    assert sent > 3


def commands_of(write: LockWrite) -> list[Command]:
    return [call.command for trip in round_trips([write], RedisKeys(), "gateway-0") for call in trip]


async def test_a_leader_that_is_fenced_between_two_calls_puts_nothing_in_place(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as first, timers(redis_url, "gateway-1") as second:
        async with Redis.from_url(redis_url) as redis:
            assert await first.write(lock_write(key, HELD))
            zombies = [lock_write(key, singles(50), over=None), lock_write(key, singles(50), over=[*HELD])]
            for leader_epoch, zombie in enumerate(zombies, 2):
                assert await locks_of(second, key, leader_epoch) == restored(HELD)
                answers = [
                    await redis.execute_command(*command) for command in commands_of(zombie) if command[0] == "EVALSHA"
                ]
                assert set(answers) == {0}
                assert await locks_of(second, key, leader_epoch) == restored(HELD)
        assert not await first.write(lock_write(key, singles(50), over=None))
        assert not await first.write(lock_write(key, singles(50)))


async def test_staged_locks_that_redis_has_lost_are_not_put_in_place(redis_url: str) -> None:
    """Half of them in place of all would lose locks. All are written again."""
    key = new_key()
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        assert await lock_timers.write(lock_write(key, HELD))
        whole = lock_write(key, singles(50), over=None)
        lock_timers.all_locks = lambda: [whole]
        answers, staged = [1], f"{RedisKeys().locks(key)}:staged:{whole.leader_epoch}"
        for number, trip in enumerate(round_trips([whole], RedisKeys(), "gateway-0")):
            if number == 2:
                await redis.hdel(staged, "100-100")
            await lock_timers._round_trip(trip, [whole], answers)
        assert answers == [2]
        await until(lambda: not lock_timers._incomplete)
        assert await lock_timers.write(lock_write(new_key(), HELD))
        assert await locks_of(lock_timers, key) == restored(singles(50))
        assert await redis.exists(staged) == 0


async def test_a_redis_that_was_emptied_unseen_gets_all_locks_again(own_redis: redis_server.Redis) -> None:
    """It was restarted between two calls, so no call failed."""
    key = new_key()
    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        assert await lock_timers.write(lock_write(key, HELD))
        lock_timers.all_locks = lambda: [lock_write(key, HELD, deadline_ms=5_000_000_000_000)]
        await until(lambda: lock_timers._marked)
        await admin.flushall()
        async with timers(own_redis.url, "gateway-1") as next_leader:
            found: list[RestoredLock] = []
            while not found:
                await asyncio.sleep(0.05)
                found = await locks_of(next_leader, key) or []
            assert sorted(found) == restored(HELD)
        assert not lock_timers.degraded
        assert await admin.zrange(RedisKeys().due("gateway-0"), 0, -1)


@pytest.mark.soak
async def test_many_share_partitions_of_a_gone_gateway_are_taken_over(redis_url: str) -> None:
    keys = [new_key(f"g{number}") for number in range(1500)]
    async with timers(redis_url, "gateway-8") as gone:
        for start in range(0, len(keys), 500):
            writes = [gone.write(lock_write(key, {}, deadline_ms=7)) for key in keys[start : start + 500]]
            assert all(await asyncio.gather(*writes))
    named: set[SharePartitionKey] = set()
    async with timers(redis_url, "gateway-9") as survivor:
        survivor.on_due = named.add
        survivor.adopt({"gateway-9"}, lambda key: True)

        def all_named() -> bool:
            for key in list(named):
                survivor.write(lock_write(key, {}))  # it has ended: it is not named again
            return named >= set(keys)

        await until(all_named)


async def test_pages_of_many_share_partitions_are_read_together(redis_url: str) -> None:
    keys = [new_key(partition=number) for number in range(3)]
    sizes = (MANY, 3, MOST_FIELDS)
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        for key, size in zip(keys, sizes, strict=True):
            assert await lock_timers.write(lock_write(key, singles(0, size)))
        await redis.hset(RedisKeys().locks(keys[1]), "epoch", 9)
        found = await lock_timers.load([(key, 1, 1) for key in keys])
        assert found[1] == 9, "another gateway leads it"
        assert [sorted(locks) for locks in found if not isinstance(locks, int)] == [
            restored(singles(0, size)) for size in sizes[::2]
        ]
