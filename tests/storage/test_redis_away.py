"""The lock store while Redis is away, hangs or comes back: it is not used, and then every lock is written back."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from sharequeue_gateway.cluster.redis_client import RedisKeys, redis_client
from sharequeue_gateway.locks import lock_store as lock_timers_module
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.locks.lock_store import LOAD_TIMEOUT_S, LockStore

from sharequeue.repeats import Rule
from sharequeue.stack import redis as redis_server
from tests.http.calls import wait_until
from tests.storage.written_locks import HELD, lock_write, locks_of, new_key, restored, timers, until


async def test_locks_survive_an_outage_of_redis_and_are_written_back(
    own_redis: redis_server.Redis, tmp_path: Path
) -> None:
    keys = [new_key(partition=number) for number in range(600)]
    async with timers(own_redis.url) as lock_timers:
        assert await lock_timers.write(lock_write(keys[0], HELD))
        own_redis.stop()
        assert await lock_timers.write(lock_write(keys[1], HELD)), "a fetch goes on"
        assert lock_timers.degraded
        assert await lock_timers.write(lock_write(keys[2], HELD))
        assert await locks_of(lock_timers, keys[0]) == []
        assert await lock_timers.fetched("x") == []

        led = [lock_write(key, HELD) for key in keys]
        lock_timers.all_locks = lambda: led
        emptied = redis_server.Redis(tmp_path / "empty", own_redis.port)
        emptied.start()
        try:
            await until(lambda: not lock_timers.degraded)
            async with timers(emptied.url, "gateway-1") as next_leader:
                found = await next_leader.load([(key, 2, 1) for key in keys])
                assert found == [(restored(HELD), len(HELD))] * len(keys)
            assert not await lock_timers.write(lock_write(keys[0], HELD)), "fenced as before"
        finally:
            lock_timers.all_locks = list
            emptied.stop()


async def test_a_lock_acquired_during_the_write_back_is_written(own_redis: redis_server.Redis) -> None:
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


async def test_a_hanging_redis_is_not_used_until_it_answers(own_redis: redis_server.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url, timeout_ms=50) as lock_timers:
        await lock_timers.write(lock_write(new_key(), HELD))
        await until(lambda: not lock_timers.degraded)
        lock_timers.all_locks = lambda: [lock_write(key, HELD)]
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(15):
                assert await lock_timers.write(lock_write(key, HELD))
            assert lock_timers.degraded
            async with asyncio.timeout(15):
                assert all(await asyncio.gather(*(lock_timers.write(lock_write(key, HELD)) for _ in range(100))))
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        await until(lambda: not lock_timers.degraded)
    async with timers(own_redis.url) as next_leader:
        assert await locks_of(next_leader, key) == restored(HELD)


def writes(admin: SyncRedis) -> int:
    """How many writes of locks a server has run."""
    return int(admin.info("commandstats").get("cmdstat_rpushx", {"calls": 0})["calls"])


async def test_a_busy_event_loop_is_not_taken_for_an_outage(own_redis: redis_server.Redis) -> None:
    """It is busy for longer than the timeout, and until the answer is there, however late a busy machine has it."""
    key = new_key()
    async with timers(own_redis.url, timeout_ms=1000) as lock_timers:
        assert await lock_timers.write(lock_write(new_key(), HELD))
        await until(lambda: not lock_timers.degraded)
        admin = SyncRedis.from_url(own_redis.url)
        for _ in range(3):
            before = writes(admin)
            written = lock_timers.write(lock_write(key, HELD))
            await asyncio.sleep(0)
            time.sleep(1.2)  # noqa: ASYNC251 - the loop is busy
            wait_until(lambda: writes(admin) > before)  # noqa: B023
            assert await written
            assert not lock_timers.degraded
        admin.close()
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_closed_connections_are_not_taken_for_an_outage(own_redis: redis_server.Redis) -> None:
    """As after a restart of Redis, or behind a proxy that closes idle connections."""
    key = new_key()
    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        for _ in range(3):
            assert await lock_timers.write(lock_write(key, HELD))
            assert await asyncio.gather(*(locks_of(lock_timers, key) for _ in range(6))) == [restored(HELD)] * 6
            assert not lock_timers.degraded
            await admin.client_kill_filter(_type="normal", skipme=True)


async def test_a_load_reads_redis_after_an_outage(own_redis: redis_server.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url) as earlier:
        assert await earlier.write(lock_write(key, HELD))
    own_redis.stop()
    redis = redis_client(own_redis.url)
    next_leader = LockStore(redis, "gateway-0", 50, RedisKeys())  # nothing probes whether Redis is back
    assert await locks_of(next_leader, key, leader_epoch=2) == []
    assert next_leader.degraded
    own_redis.start()
    assert await locks_of(next_leader, key, leader_epoch=2) == restored(HELD)
    assert next_leader.degraded, "Redis is used again only after all locks are written back"
    await redis.aclose()


async def test_a_load_waits_for_redis_for_the_configured_time(own_redis: redis_server.Redis) -> None:
    """Writes of that time are lost: two seconds at least, and longer where every call may take longer."""
    key = new_key()
    async with timers(own_redis.url, timeout_ms=20_000) as lock_timers:
        assert await lock_timers.write(lock_write(key, HELD))
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            loading = asyncio.create_task(locks_of(lock_timers, key))
            await asyncio.sleep(LOAD_TIMEOUT_S + 0.5)
            assert not loading.done()
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        assert await loading == restored(HELD)
        assert not lock_timers.degraded


async def test_a_redis_that_fails_is_not_asked_for_entries_a_second_time(
    own_redis: redis_server.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with timers(own_redis.url) as lock_timers:
        execute, asked = lock_timers._execute, list[object]()
        monkeypatch.setattr(lock_timers, "_execute", lambda *each: asked.append(each) or execute(*each))
        own_redis.stop()
        assert await lock_timers.with_locks([new_key()]) == []
        assert len([commands for commands, _ in asked if commands[0][0] in ("GET", "LINDEX")]) == 1


async def test_locks_survive_a_restart_of_redis(own_redis: redis_server.Redis) -> None:
    key = new_key()
    async with timers(own_redis.url) as lock_timers:
        await lock_timers.write(lock_write(key, HELD))
    own_redis.stop()
    own_redis.start()
    async with timers(own_redis.url) as lock_timers:
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_each_time_without_redis_is_logged_however_soon_it_comes_again(
    own_redis: redis_server.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with timers(own_redis.url) as lock_timers:
        for _ in range(2):
            own_redis.stop()
            await lock_timers.write(lock_write(new_key(), HELD))
            await until(lambda: lock_timers.degraded)
            own_redis.start()
            await until(lambda: not lock_timers.degraded)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["Redis does not answer; a crash of this gateway would forget locks"] * 2


MAXMEMORY = ("CONFIG", "SET", "maxmemory", "1")
NO_MAXMEMORY = ("CONFIG", "SET", "maxmemory", "0")
REFUSING = {
    "no memory": (MAXMEMORY, NO_MAXMEMORY, "maxmemory"),
    "a replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "replica"),
    "no right": (("ACL", "SETUSER", "default", "-rpushx"), ("ACL", "SETUSER", "default", "+rpushx"), "rights"),
}


@pytest.mark.parametrize(("refuse", "accept", "word"), REFUSING.values(), ids=REFUSING)
async def test_a_refusing_redis_is_not_used_until_it_accepts_and_is_logged_once(
    own_redis: redis_server.Redis,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    refuse: tuple[str, ...],
    accept: tuple[str, ...],
    word: str,
) -> None:
    for rule in ("REDIS_REFUSES", "REDIS_SILENT"):
        monkeypatch.setattr(lock_timers_module, rule, Rule(rule, 0.05))
    key = new_key()
    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        turns: list[bool] = []
        monkeypatch.setattr(lock_timers, "all_locks", lambda: turns.append(True) or [])
        assert await lock_timers.write(lock_write(key, HELD))
        await admin.execute_command(*refuse)
        assert await lock_timers.write(lock_write(key, HELD)), "a fetch goes on"
        async with asyncio.timeout(10):
            while await refused_writes(admin) < 5:
                assert lock_timers.degraded
                assert word in lock_timers.trouble
                await asyncio.sleep(0.02)
        assert not turns, "it was not used in between"
        (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert lock_timers.trouble in warning
        await admin.execute_command(*accept)
        await until(lambda: not lock_timers.degraded)
        assert await lock_timers.write(lock_write(key, HELD))
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_what_is_written_back_comes_behind_a_write_that_is_under_way(
    own_redis: redis_server.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of an earlier time, and another call has found Redis away."""
    key = new_key()
    async with timers(own_redis.url) as lock_timers:
        load, asked, turns = lock_timers._load, list[object](), list[None]()
        monkeypatch.setattr(lock_timers, "_pause_s", lambda: turns.append(None) or 0.01)

        async def slow(*arguments: Any) -> Any:
            asked.append(arguments)
            if len(asked) == 1:
                lock_timers._turn(degraded=True)
                begun = len(turns)
                await until(lambda: not lock_timers.degraded or len(turns) > begun + 20)
            return await load(*arguments)

        monkeypatch.setattr(lock_timers, "_load", slow)
        lock_timers.all_locks = lambda: [lock_write(key, HELD, whole=True)]
        await lock_timers.write(lock_write(key, {(50, 59): ("m9", 1, 7)}, whole=True))
        await until(lambda: not lock_timers.degraded)
        assert await locks_of(lock_timers, key) == restored(HELD)


async def test_probes_that_fail_take_no_more_room_with_each_one(
    own_redis: redis_server.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("REDIS_REFUSES", "REDIS_SILENT"):
        monkeypatch.setattr(lock_timers_module, rule, Rule(rule, 0.05))
    async with timers(own_redis.url) as lock_timers, Redis.from_url(own_redis.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "default", "-pexpire")
        assert await lock_timers.write(lock_write(new_key(), HELD, whole=True))
        async with asyncio.timeout(10):
            while await refused_writes(admin, "pexpire") < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert lock_timers.degraded
        assert await admin.llen(RedisKeys().probe("gateway-0")) <= 3


async def refused_writes(admin: Redis, command: str = "rpushx") -> int:
    """How often Redis refused a command."""
    stats = (await admin.info("commandstats")).get(f"cmdstat_{command}", {})
    return int(stats.get("rejected_calls", 0)) + int(stats.get("failed_calls", 0))
