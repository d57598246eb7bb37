"""kill -9 of the gateway: holders keep their records, and delivery counts continue."""

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sharequeue_gateway.leader.led_share_partition import LOCK_ENTRY_SLACK

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, wait_until


@pytest.fixture
def gateway(client: httpx.Client) -> Gateway:
    return Gateway(client)


@pytest.fixture
def crash(stack: Stack) -> Callable[[], None]:
    """Kill the gateway and wait until its successor serves."""
    service = stack.service("gateway")

    def kill_and_start() -> None:
        service.kill()
        service.start()
        wait_until(service.ready)

    return kill_and_start


@pytest.mark.soak
def test_two_members_keep_their_parts_of_one_fetch(gateway: Gateway, crash: Callable[[], None], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    assert gateway.acquire(name, name) == ["0-9×1"]
    assert gateway.settle(name, name, 0, 3, "release") == "applied"
    assert gateway.acquire(name, name, member="m2", max_records=4, acquire_mode="record_limit") == ["0-3×2"]
    crash()
    assert gateway.acquire(name, name, member="m3") == []
    assert gateway.settle(name, name, 4, 6, "release", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 7, 9, "accept", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 0, 1, "accept", member="m2", delivery_count=2) == "applied"
    assert gateway.acquire(name, name, member="m3") == ["4-6×2"]
    crash()
    assert gateway.settle(name, name, 2, 3, "accept", member="m2", delivery_count=2) == "applied"
    assert gateway.settle(name, name, 4, 6, "accept", member="m3", delivery_count=2) == "applied"
    assert gateway.window(name, name) == (10, [])


def test_renewing_a_part_keeps_the_rest_held(gateway: Gateway, crash: Callable[[], None], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 3, "renew") == "applied"
    crash()
    assert gateway.settle(name, name, 0, 9, "accept", delivery_count=1) == "applied"


def test_a_record_held_while_many_others_pass_stays_held(
    gateway: Gateway, crash: Callable[[], None], name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce_batches(name, *[1] * 100)
    one = {"max_records": 1, "acquire_mode": "record_limit"}
    assert gateway.acquire(name, name, **one) == ["0-0×1"]
    assert gateway.acquire(name, name, member="m2", **one) == ["1-1×1"]
    for offset in range(2, LOCK_ENTRY_SLACK + 20):
        assert gateway.acquire(name, name, member="m3", **one) == [f"{offset}-{offset}×1"]
        assert gateway.settle(name, name, offset, offset, "accept", member="m3") == "applied"
    crash()
    assert gateway.settle(name, name, 0, 0, "accept", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 1, 1, "accept", member="m2", delivery_count=1) == "applied"
    assert gateway.window(name, name)[0] == LOCK_ENTRY_SLACK + 20


def test_records_held_when_redis_lost_its_data_stay_held(tmp_path: Path, new_database: Callable[[], str]) -> None:
    with (
        temporary_stack(tmp_path / "data", postgres_url=new_database()) as stack,
        httpx.Client(base_url=stack.url, timeout=20) as http,
    ):
        gateway = Gateway(http)
        gateway.create_topic("t")
        gateway.produce("t", *range(10))
        assert gateway.acquire("g", "t", max_records=6, acquire_mode="record_limit") == ["0-5×1"]
        assert gateway.settle("g", "t", 0, 2, "release") == "applied"
        assert gateway.acquire("g", "t", member="m2", max_records=3) == ["0-2×2"]
        assert stack.redis is not None
        stack.redis.kill()
        shutil.rmtree(tmp_path / "data/redis/appendonlydir")
        wait_until(lambda: gateway.metrics()["sharequeue_lock_timers_degraded"])
        stack.redis.start()
        wait_until(lambda: not gateway.metrics()["sharequeue_lock_timers_degraded"])
        stack.service("gateway").kill()
        stack.service("gateway").start()
        wait_until(stack.service("gateway").ready)
        assert gateway.settle("g", "t", 0, 2, "accept", member="m2", delivery_count=2) == "applied"
        assert gateway.settle("g", "t", 3, 5, "accept", delivery_count=1) == "applied"
        assert gateway.window("g", "t")[0] == 6


@pytest.mark.parametrize("how", [pytest.param("left", marks=pytest.mark.soak), "killed"])
def test_locks_end_though_every_gateway_that_knew_them_is_gone(
    tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str], how: str
) -> None:
    """All gateways end and a new one starts: the first fetch finds the locks, and waits for their end."""
    with (
        temporary_stack(tmp_path / "data", postgres_url=new_database(), redis_url=new_redis()) as stack,
        httpx.Client(base_url=stack.url, timeout=20) as http,
    ):
        gateway = Gateway(http)
        http.patch(
            "/v1/share-groups/g/config", json={"config": {"share.record.lock.duration.ms": "1000"}}
        ).raise_for_status()
        gateway.create_topic("t")
        gateway.produce("t", *range(10))
        assert gateway.acquire("g", "t") == ["0-9×1"]
        service = stack.service("gateway")
        service.stop() if how == "left" else service.kill()
        service.environment["SHAREQUEUE_GATEWAY_NODE_ID"] = "another"
        service.start()
        wait_until(service.ready)
        assert gateway.acquire("g", "t", max_wait_ms=15_000) == ["0-9×2"]
