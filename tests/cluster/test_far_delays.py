"""A share-partition whose next delay ends later than it stays loaded: unloaded, and back in time for its records."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.cluster.calls import acknowledge, fetch, make_topic
from tests.cluster.conftest import LEASE, LEASE_MS
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import LONG_MS, wait_until

IDLE_MS = 1500
DELAY_MS = 9000
TOLERANCE_MS = 50
LATE_MS = 12_000
"""On a busy machine; most come within 100 ms. A fetch that nothing wakes comes later still: at the end of its wait."""
LED = "sharequeue_led_share_partitions "


@pytest.fixture
def stack(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[Stack]:
    """Its Redis is its own."""
    settings = {LEASE: str(LEASE_MS), "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": str(IDLE_MS)}
    with temporary_stack(tmp_path / "data", postgres_url=new_database(), gateways=2, settings=settings) as stack:
        yield stack


class Delayed:
    """A record that was released with a delay, by PostgreSQL's clock, and whose share-partition was unloaded since."""

    def __init__(self, stack: Stack, cluster: GatewayCluster, client: httpx.Client, name: str) -> None:
        self._database_url = stack._postgres_url or ""
        self._client = client
        self.name = name
        self.topic_id = make_topic(client, name, 1)
        self.leader = cluster.leader_of(name, self.topic_id, 0)
        records = [{"value": value} for value in range(2)]
        assert client.post(f"/v1/topics/{name}/records", json={"records": records}).status_code == 200
        held = fetch(client, name, topics=[name], member_id="m", max_wait_ms=5000)
        (batch,) = held["batches"]
        release = {"topic": name, "partition": 0, "type": "release", "delay_ms": DELAY_MS, "reason": "later"}
        release |= {"first_offset": batch["first_offset"], "last_offset": batch["last_offset"]}
        self.not_before_ms = self.postgres_ms() + DELAY_MS
        answer = client.post(
            f"/v1/share-groups/{name}/acknowledge", json={"member_id": "m", "acknowledgements": [release]}
        )
        assert answer.json()["failed_count"] == 0
        self.not_after_ms = self.postgres_ms() + DELAY_MS + LATE_MS
        wait_until(lambda: led(self.leader) == 0)
        assert self.postgres_ms() < self.not_before_ms - IDLE_MS, "it was unloaded long before"

    def postgres_ms(self) -> float:
        async def ask() -> float:
            connection = await asyncpg.connect(self._database_url)
            try:
                return float(await connection.fetchval("SELECT 1000 * extract(epoch FROM clock_timestamp())"))
            finally:
                await connection.close()

        return asyncio.run(ask())

    def comes_on_time(self, client: httpx.Client) -> None:
        again = fetch(client, self.name, topics=[self.name], member_id="n", max_wait_ms=LONG_MS)
        now_ms = self.postgres_ms()
        assert [(batch["first_offset"], batch["delivery_count"]) for batch in again["batches"]] == [(0, 2)]
        assert self.not_before_ms - TOLERANCE_MS <= now_ms <= self.not_after_ms
        acknowledge(client, self.name, again)

    def sleep_until(self, before_ms: int) -> None:
        time.sleep(max(self.not_before_ms - before_ms - self.postgres_ms(), 0) / 1000)


def metric(gateway: ServiceProcess, name: str) -> float:
    lines = httpx.get(f"{gateway.url}/metrics", timeout=30).text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).removeprefix(name))


def led(gateway: ServiceProcess) -> float:
    """The share-partitions that a gateway has loaded."""
    return metric(gateway, LED)


@pytest.fixture
def delayed(stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> Delayed:
    return Delayed(stack, cluster, clients[0], name)


@pytest.mark.soak
def test_a_fetch_gets_the_records_on_time_without_redis(
    stack: Stack, delayed: Delayed, clients: list[httpx.Client]
) -> None:
    assert stack.redis is not None
    stack.redis.kill()
    delayed.sleep_until(IDLE_MS // 3)
    delayed.comes_on_time(clients[0])
    stack.redis.start()


@pytest.mark.parametrize("redis", ["with Redis", pytest.param("without Redis", marks=pytest.mark.soak)])
def test_the_next_leader_has_the_records_on_time(
    stack: Stack, cluster: GatewayCluster, delayed: Delayed, clients: list[httpx.Client], redis: str
) -> None:
    assert stack.redis is not None
    if redis == "without Redis":
        stack.redis.kill()
    delayed.leader.kill()
    (left,) = [gateway for gateway in cluster.gateways if gateway is not delayed.leader]
    cluster.wait_until_known([left])
    delayed.comes_on_time(clients[cluster.gateways.index(left)])
    stack.redis.start()
