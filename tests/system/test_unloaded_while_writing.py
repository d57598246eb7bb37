"""A share-partition unloaded during state writes: the next load has these writes, and the locks."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest
import redis as redis_client

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, problem, wait_until
from tests.http.database import redis_keys, sql
from tests.system.yielding import Accepting, unload

LOCK_WAITERS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def deadline_ms(request: pytest.FixtureRequest) -> int:
    """When the outcome of a state write is given up."""
    given: int = request.param
    return given


@pytest.fixture
def own_stack(
    tmp_path: Path, database_url: str, redis_url: str, deadline_ms: int, one_process: bool
) -> Iterator[Stack]:
    settings = {"SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": str(deadline_ms)}
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    with temporary_stack(tmp_path / "data", **stores, settings=settings, one_process=one_process) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=60, verify=False) as http:
        yield Gateway(http)


@contextmanager
def state_writes_held(database_url: str) -> Iterator[None]:
    """Keep every state write from becoming durable."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(database_url))
        try:
            runner.run(connection.execute("BEGIN; LOCK TABLE share_state.share_records IN EXCLUSIVE MODE"))
            yield
        finally:
            runner.run(connection.close())


@pytest.mark.parametrize("deadline_ms", [30_000], indirect=True)
def test_a_write_queued_behind_another_is_read_by_the_next_load(
    own_stack: Stack, database_url: str, gateway: Gateway
) -> None:
    """Under the same leader epoch it would stand although it comes after the state was read."""
    gateway.create_topic("orders")
    key = SharePartitionKey("g", gateway.describe_topic("orders")["topic_id"], 0)
    gateway.produce("orders", "one", "two", "three")
    assert gateway.acquire("g", "orders") == ["0-2×1"]
    with state_writes_held(database_url):
        on_its_way = Accepting(own_stack, gateway, "g", "orders", 0)
        wait_until(lambda: sql(database_url, LOCK_WAITERS))
        behind_it = Accepting(own_stack, gateway, "g", "orders", 1)
        unload(own_stack, key)
        problem(gateway.try_fetch("g", "orders"), 503, "COORDINATOR_LOAD_IN_PROGRESS", 14)
    assert [sent.status() for sent in (on_its_way, behind_it)] == ["applied", "applied"]
    assert gateway.window("g", "orders") == (2, ["2-2 ACQUIRED×1"])


@pytest.mark.three_programs
@pytest.mark.parametrize("deadline_ms", [3000], indirect=True)
def test_a_lost_write_is_fenced(own_stack: Stack, redis_url: str, gateway: Gateway) -> None:
    gateway.create_topic("orders")
    key = SharePartitionKey("g", gateway.describe_topic("orders")["topic_id"], 0)
    gateway.produce("orders", "one", "two")
    assert gateway.acquire("g", "orders") == ["0-1×1"]

    def leader_epoch() -> int:
        with redis_client.Redis.from_url(redis_url) as redis:
            return int(redis.get(redis_keys(own_stack).leader(key)) or 0)

    led_with = leader_epoch()
    share_coordinator = own_stack.service("share coordinator").process
    assert share_coordinator is not None
    share_coordinator.send_signal(signal.SIGSTOP)
    try:
        lost = Accepting(own_stack, gateway, "g", "orders", 0)
        unload(own_stack, key)
        assert lost.status() == "unknown"
    finally:
        share_coordinator.send_signal(signal.SIGCONT)
    wait_until(lambda: gateway.try_fetch("g", "orders").status_code == 200)
    assert leader_epoch() > led_with
    assert Accepting(own_stack, gateway, "g", "orders", 0).status() in ("applied", "ignored")


@pytest.mark.parametrize("deadline_ms", [30_000], indirect=True)
def test_locks_missing_in_redis_survive_a_reload(own_stack: Stack, redis_url: str, gateway: Gateway) -> None:
    gateway.create_topic("orders")
    key = SharePartitionKey("g", gateway.describe_topic("orders")["topic_id"], 0)
    gateway.produce("orders", "one", "two")
    assert gateway.acquire("g", "orders") == ["0-1×1"]
    keys = redis_keys(own_stack)
    with redis_client.Redis.from_url(redis_url) as redis:

        def locks() -> str:
            return keys.locks(key, int(redis.get(keys.leader(key))))

        redis.delete(locks())
        unload(own_stack, key)
        assert gateway.acquire("g", "orders", max_wait_ms=0) == []
        wait_until(lambda: redis.lindex(locks(), -1).startswith(b"[[0,1,"))
    assert Accepting(own_stack, gateway, "g", "orders", 1).status() == "applied"
