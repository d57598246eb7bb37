"""Acquisition locks on real Redis: restored unchanged, and fenced by the leader epoch."""

import asyncio

import pytest
from redis.asyncio import Redis
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.locks import lock_store
from sharequeue_gateway.locks.lock_store import fetch_key
from sharequeue_gateway.record_log.database import CLUSTER_ID, LogDatabase

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.record_logs import new_topic
from tests.storage.written_locks import HELD, Entries, lock_write, locks_of, new_key, restored, timers

# Written and restored


async def test_the_next_leader_reads_the_written_locks(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as first:
        assert await first.write(lock_write(key, HELD))
    async with timers(redis_url, "gateway-1") as second:
        assert await locks_of(second, key, leader_epoch=2) == restored(HELD)


async def test_a_part_of_a_lock_is_its_own_entry(redis_url: str) -> None:
    key = new_key()
    parts: Entries = {(0, 3): ("m2", 2, 99), (0, 9): ("m1", 1, 88)}
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 77)}))
        await lock_timers.write(lock_write(key, {(0, 3): ("m2", 2, 99)}))
        await lock_timers.write(lock_write(key, {(0, 9): ("m1", 1, 88)}))
        assert await locks_of(lock_timers, key) == restored(parts)


async def test_a_write_may_replace_all_locks(redis_url: str) -> None:
    key, other = new_key(), new_key()
    async with timers(redis_url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD, leader_epoch=4, state_epoch=1))
        await lock_timers.write(lock_write(other, HELD))
        left: Entries = {(10, 10): ("m2", 3, 8), (30, 39): ("m1", 1, 9)}
        assert not await lock_timers.write(lock_write(key, left, leader_epoch=3, whole=True)), "a zombie clears nothing"
        assert await locks_of(lock_timers, key, leader_epoch=4) == restored(HELD)
        assert await lock_timers.write(lock_write(key, left, leader_epoch=4, state_epoch=2, whole=True))
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


async def test_a_load_counts_what_the_former_leader_has_written(redis_url: str) -> None:
    """The next leader takes up its count, or the list would grow with each leader that comes before a whole write."""
    key = new_key()
    async with timers(redis_url) as lock_timers:
        for state_epoch in (1, 2, 2):
            await lock_timers.write(lock_write(key, HELD, state_epoch=state_epoch))
        (found,) = await lock_timers.load([(key, 2, 2)])
        assert found == (restored(HELD), 3 * len(HELD))


async def test_many_share_partitions_are_written_and_read_at_once(redis_url: str) -> None:
    keys = [new_key(partition=number) for number in range(300)]
    async with timers(redis_url) as lock_timers:
        writes = [lock_write(key, {(number, number): ("m", 1, 7)}) for number, key in enumerate(keys)]
        assert all(await asyncio.gather(*(lock_timers.write(write) for write in writes)))
        found = await lock_timers.load([(key, 1, 1) for key in keys])
        assert found == [(restored({(number, number): ("m", 1, 7)}), 1) for number in range(300)]


def test_redis_keys_do_not_collide() -> None:
    topic = new_topic()
    assert RedisKeys().locks(SharePartitionKey("1:g", topic, 0)) != RedisKeys().locks(SharePartitionKey("g", topic, 1))
    names = {
        RedisKeys().locks(SharePartitionKey(group, topic, n), epoch)
        for group in ("g", "g:0", "0:g", ":")
        for n in range(3)
        for epoch in ("", 0, 1)
    }
    assert len(names) == 36
    assert len({fetch_key("a", "b,c", "d"), fetch_key("a", "b", "c,d"), fetch_key('a","b', "c", "d")}) == 3


async def test_clusters_that_share_a_redis_share_nothing(redis_url: str) -> None:
    """A copy of a database has the same topics, groups and node ids."""
    key = new_key()
    async with timers(redis_url, keys=RedisKeys("a")) as here, timers(redis_url, keys=RedisKeys("b")) as copy:
        assert await here.write(lock_write(key, HELD, fetch=("f", b"x", 60_000)))
        assert await copy.with_locks([key]) == []
        assert await copy.fetched("f") == []
        assert await locks_of(copy, key, leader_epoch=9) == []
        assert await here.write(lock_write(key, HELD)), "the higher epoch is the copy's"
        assert await here.with_locks([key, new_key()]) == [key]
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
        assert not await zombie.write(lock_write(key, {(50, 59): ("m9", 1, 7)}, leader_epoch=4))
        assert await locks_of(zombie, key, leader_epoch=4) is None
        assert await zombie.write(lock_write(free, {}, leader_epoch=4)), "other share-partitions are not touched"
        assert await leader.write(lock_write(key, {(20, 20): ("m1", 1, 7)}, leader_epoch=5))
        assert await locks_of(leader, key, leader_epoch=5) == restored({**HELD, (20, 20): ("m1", 1, 7)})


async def test_a_leader_whose_list_is_lost_writes_until_another_leads(redis_url: str) -> None:
    key = new_key()
    async with (
        timers(redis_url) as first,
        timers(redis_url, "gateway-1") as second,
        Redis.from_url(redis_url) as redis,
    ):
        assert await first.write(lock_write(key, {(50, 59): ("m9", 1, 7)}, leader_epoch=4))
        await redis.delete(RedisKeys().leader(key), RedisKeys().locks(key, 4))
        assert await first.write(lock_write(key, HELD, leader_epoch=4))
        assert await locks_of(second, key, leader_epoch=5) == restored(HELD)
        await redis.delete(RedisKeys().locks(key, 5))
        assert not await first.write(lock_write(key, HELD, leader_epoch=4))


async def test_a_write_of_all_locks_finds_that_redis_has_lost_who_leads(redis_url: str) -> None:
    """The next leader would not find the list."""
    key = new_key()
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=4))
        await redis.delete(RedisKeys().leader(key))
        assert await lock_timers.write(lock_write(key, HELD, leader_epoch=4, whole=True))
        assert await locks_of(lock_timers, key, leader_epoch=5) == restored(HELD)


async def test_locks_are_written_again_long_before_redis_removes_them(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_store, "WRITE_AGAIN_S", 0.0)
    key = new_key()
    names = [RedisKeys().leader(key), RedisKeys().locks(key, 1)]
    async with timers(redis_url) as lock_timers, Redis.from_url(redis_url) as redis:
        assert await lock_timers.write(lock_write(key, HELD))
        for name in names:
            await redis.pexpire(name, 60_000)
        lock_timers.all_locks = lambda: [lock_write(key, HELD, whole=True)]
        while min([await redis.pttl(name) for name in names]) <= 60_000:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_a_write_raises_the_leader_epoch(redis_url: str) -> None:
    key = new_key()
    async with timers(redis_url) as lock_timers:
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))
        assert not await lock_timers.write(lock_write(key, {}, leader_epoch=9))
        assert await lock_timers.write(lock_write(key, {}, leader_epoch=10))


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
