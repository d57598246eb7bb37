"""Acquisition locks on real Redis: restored unchanged, fenced by the leader epoch, reported when they are due."""

import asyncio

import pytest
from redis.asyncio import Redis
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks.lock_store import fetch_key
from sharequeue_gateway.record_log.database import CLUSTER_ID, LogDatabase

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack import redis as redis_server
from tests.storage.database import session
from tests.storage.record_logs import new_topic
from tests.storage.written_locks import HELD, Entries, lock_write, locks_of, new_key, restored, timers, until

# Written and restored


async def test_the_next_leader_reads_the_written_locks(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as first:
        assert await first.write(lock_write(key, HELD))
    async with timers(redis_url, "gateway-1") as second:
        assert await locks_of(second, key, leader_epoch=2) == restored(HELD)


async def test_locks_are_changed_and_removed(redis_url: str) -> None:
    key, other = new_key(), new_key()
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD))
        await lock_timers.write(lock_write(other, HELD))
        await lock_timers.write(lock_write(key, {(10, 12): ("m3", 4, 77), (20, 20): ("m3", 1, 77)}, over=[*HELD]))
        assert await locks_of(lock_timers, key) == restored({(10, 12): ("m3", 4, 77), (20, 20): ("m3", 1, 77)})
        assert await locks_of(lock_timers, other) == restored(HELD)
        await lock_timers.write(lock_write(key, {}, over=[(10, 12), (20, 20), (99, 99)]))
        assert await locks_of(lock_timers, key) == []


async def test_a_part_of_a_lock_is_its_own_entry(redis_url: str) -> None:
    key = new_key()
    parts: Entries = {(0, 3): ("m2", 2, 99), (0, 9): ("m1", 1, 88)}
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 77)}))
        await lock_timers.write(lock_write(key, {(0, 3): ("m2", 2, 99)}))
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 88)}))
        assert await locks_of(lock_timers, key) == restored(parts)
        await lock_timers.write(lock_write(key, {}, over=[(0, 9)]))
        assert await locks_of(lock_timers, key) == restored({(0, 3): ("m2", 2, 99)})


async def test_a_write_may_replace_all_locks(redis_url: str) -> None:
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


async def test_many_share_partitions_are_written_and_read_at_once(redis_url: str) -> None:
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


def test_redis_keys_do_not_collide() -> None:
    topic = new_topic()
    assert RedisKeys().locks(SharePartitionKey("1:g", topic, 0)) != RedisKeys().locks(SharePartitionKey("g", topic, 1))
    names = {
        RedisKeys().locks(SharePartitionKey(group, topic, n)) for group in ("g", "g:0", "0:g", ":") for n in range(3)
    }
    assert len(names) == 12
    assert len({fetch_key("a", "b,c", "d"), fetch_key("a", "b", "c,d"), fetch_key('a","b', "c", "d")}) == 3


async def test_clusters_that_share_a_redis_share_nothing(redis_url: str) -> None:
    """A copy of a database has the same topics, groups and node ids."""
    key = new_key()
    async with timers(redis_url, keys=RedisKeys("a")) as here, timers(redis_url, keys=RedisKeys("b")) as copy:
        assert await here.write(lock_write(key, HELD, fetch=("f", b"x", 60_000), deadline_ms=2**50))
        assert await copy.timed([key]) == []
        assert await copy.fetched("f") == []
        assert await locks_of(copy, key, leader_epoch=9) == []
        assert await here.write(lock_write(key, {}, deadline_ms=2**50)), "the higher epoch is the copy's"
        copy.adopt([], lambda _: True)
        await until(lambda: copy._to_adopt is None)
        assert await here.timed([key]) == [key]
        assert await locks_of(here, key) == restored(HELD)


async def test_a_copy_of_a_database_is_another_cluster(database_url: str) -> None:
    """A role without rights may ask for the id."""
    ids = []
    for url in (database_url, database_url, f"{database_url}_copy"):
        if url != database_url:
            async with session(database_url.rsplit("/", 1)[0] + "/sharequeue") as admin:
                name = database_url.rsplit("/", 1)[1]
                await admin.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
        database = await LogDatabase.open(url)
        ids.append(await database.cluster_id())
        await database.close()
        async with session(url) as connection:
            await connection.execute("CREATE ROLE plain_%s; GRANT USAGE ON SCHEMA log TO plain_%s" % ((len(ids),) * 2))
            await connection.execute(f"GRANT SELECT ON log.cluster TO plain_{len(ids)}; SET ROLE plain_{len(ids)}")
            assert await connection.fetchval(CLUSTER_ID) == ids[-1]
    assert ids[0] == ids[1] != ids[2]


# Fencing


@pytest.mark.parametrize(("epoch", "kept"), [(4, True), (5, False), (8, False), (9, True)])
async def test_locks_of_epochs_that_postgresql_has_lost_are_deleted(redis_url: str, epoch: int, kept: bool) -> None:
    key = new_key()
    async with timers(redis_url) as lock_timers:
        assert await lock_timers.write(lock_write(key, HELD, leader_epoch=epoch))
        assert await locks_of(lock_timers, key, leader_epoch=9, lost=(4, 8)) == (restored(HELD) if kept else [])
        assert await locks_of(lock_timers, key, leader_epoch=9) == (restored(HELD) if kept else [])


async def test_a_fenced_leader_cannot_write_or_read_locks(redis_url: str) -> None:
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


async def test_a_write_raises_the_leader_epoch(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as lock_timers:
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))
        assert not await lock_timers.write(lock_write(key, {}, leader_epoch=9))
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))


# Due


async def test_due_share_partitions_are_reported(redis_url: str) -> None:
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


async def test_a_postponed_share_partition_is_reported_later_if_it_has_locks(redis_url: str) -> None:
    put_off, ended, untouched = (new_key(f"g{number}") for number in range(3))
    async with timers(redis_url) as lock_timers:
        named: list[SharePartitionKey] = []
        for key in (put_off, untouched):
            await lock_timers.write(lock_write(key, {}, deadline_ms=7))
        await lock_timers.put_off(put_off, 60_000)
        await lock_timers.put_off(ended, -60_000)
        lock_timers.on_due = named.append
        await until(lambda: named.count(untouched) >= 3)
        assert set(named) == {untouched}
        await lock_timers.put_off(put_off, 50)
        await until(lambda: put_off in named)


class StoppedClock(Clock):
    """A clock that moves only when the test sets it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


async def test_redis_is_polled_only_when_locks_may_be_due(own_redis: redis_server.Redis) -> None:
    redis_url = own_redis.url
    own, of_another = new_key("g1"), new_key("g2")
    clock = StoppedClock()
    async with (
        timers(redis_url, clock=clock) as lock_timers,
        timers(redis_url, "gateway-1", clock=clock) as other,
        Redis.from_url(redis_url) as redis,
    ):
        named: list[SharePartitionKey] = []
        lock_timers.on_due = named.append
        await _looks_once_idle(redis)
        assert await lock_timers.write(lock_write(own, {}, deadline_ms=clock.ms))
        await until(lambda: own in named)
        assert await lock_timers.write(lock_write(own, {}, deadline_ms=None))
        looks = await _looks_once_idle(redis)
        await other.hand_over({of_another: "gateway-0"})
        clock.ms += 490
        await asyncio.sleep(0.3)  # several turns of both loops
        assert await _looks(redis) == looks
        assert of_another not in named
        clock.ms += 10
        await until(lambda: of_another in named)


async def _looks(redis: Redis) -> int:
    """How often this server was asked what is due."""
    return int((await redis.info("commandstats")).get("cmdstat_zrange", {"calls": 0})["calls"])


async def _looks_once_idle(redis: Redis) -> int:
    before, looks = -1, await _looks(redis)
    while before != looks:
        await asyncio.sleep(0.3)
        before, looks = looks, await _looks(redis)
    return looks


async def test_due_sets_of_unknown_gateways_are_adopted(redis_url: str) -> None:
    """By the gateway that leads now; live gateways keep their own."""
    forgotten, handed_on, led_elsewhere, live = (new_key(f"g{number}") for number in range(4))
    async with timers(redis_url, "gateway-1") as gone, timers(redis_url, "gateway-2") as other:
        for key in (forgotten, handed_on, led_elsewhere):
            assert await gone.write(lock_write(key, HELD, deadline_ms=5_000_000_000_000))
        await gone.hand_over({handed_on: "gateway-9"})
        assert await other.write(lock_write(live, HELD, deadline_ms=5_000_000_000_000))
    named: list[SharePartitionKey] = []
    async with timers(redis_url) as started, Redis.from_url(redis_url) as redis:
        started.on_due = named.append
        started.adopt({"gateway-0", "gateway-2"}, lambda key: key != led_elsewhere)
        await until(lambda: {forgotten, handed_on} <= set(named))
        assert set(named) == {forgotten, handed_on}
        assert await redis.smembers(RedisKeys().due_sets) == {
            RedisKeys().due(f"gateway-{number}").encode() for number in range(3)
        }
        started.adopt({"gateway-0", "gateway-2"}, lambda key: True)
        await until(lambda: led_elsewhere in named)
        assert await redis.smembers(RedisKeys().due_sets) == {
            RedisKeys().due(f"gateway-{number}").encode() for number in (0, 2)
        }
        assert live not in named


async def test_two_gateways_adopt_each_due_share_partition_once(redis_url: str) -> None:
    keys = [new_key(partition=number) for number in range(600)]
    async with timers(redis_url, "gateway-9") as gone:
        assert all(await asyncio.gather(*(gone.write(lock_write(key, HELD, deadline_ms=7)) for key in keys)))
    async with timers(redis_url) as first, timers(redis_url, "gateway-1") as second, Redis.from_url(redis_url) as redis:
        for taking in (first, second):
            taking.adopt({"gateway-0", "gateway-1"}, lambda key: True)
        async with asyncio.timeout(60):
            while await redis.exists(RedisKeys().due("gateway-9")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        taken = [set(await redis.zrange(RedisKeys().due(node_id), 0, -1)) for node_id in ("gateway-0", "gateway-1")]
        assert len(taken[0] | taken[1]) == len(taken[0]) + len(taken[1]) == len(keys)


# Answers of fetches


async def test_the_answer_of_a_fetch_is_kept_with_its_locks(redis_url: str) -> None:
    key = new_key()
    name = fetch_key("g", "m1", "f1")
    async with timers(redis_url) as first, timers(redis_url, "gateway-1") as second:
        assert await second.fetched(name) == []
        await first.write(lock_write(key, HELD, fetch=(name, b"ranges", 60_000)))
        assert await second.fetched(name) == [b"ranges"]
        await first.write(lock_write(key, HELD, fetch=(fetch_key("g", "m1", "f2"), b"short", 30)))
        async with asyncio.timeout(60):
            while await second.fetched(fetch_key("g", "m1", "f2")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
