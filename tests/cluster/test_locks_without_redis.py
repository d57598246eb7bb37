"""Leadership moves while Redis is away: who let go tells who leads now what is held."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sharequeue.stack import Stack, temporary_stack
from tests.cluster.calls import acknowledge, fetch, places, produce
from tests.cluster.conftest import LEASE, LEASE_MS
from tests.cluster.gateways import READY_S, GatewayCluster

PARTITIONS = 6
RECORDS = 4


@pytest.fixture
def stack(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[Stack]:
    """Its Redis is its own."""
    settings = {LEASE: str(LEASE_MS)}
    with temporary_stack(tmp_path / "data", postgres_url=new_database(), gateways=3, settings=settings) as stack:
        yield stack


@pytest.fixture
def topic_id(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> str:
    """A topic of which the last gateway leads something, for a group whose locks outlast the test."""
    settings = {"share.record.lock.duration.ms": 60_000}
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json=settings).status_code == 200
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    while not led_by_last(cluster, name, topic_id):
        assert clients[0].delete(f"/v1/topics/{name}").status_code == 204
        topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    return topic_id


def led_by_last(cluster: GatewayCluster, group: str, topic_id: str) -> list[int]:
    return [p for p in range(PARTITIONS) if cluster.leader_of(group, topic_id, p) is cluster.gateways[2]]


def lose_redis(stack: Stack, cluster: GatewayCluster) -> None:
    """Redis is killed, and every gateway that runs knows it."""
    assert stack.redis is not None
    stack.redis.kill()
    deadline = time.monotonic() + READY_S
    for gateway in cluster.gateways:
        while gateway.alive():
            dependencies = httpx.get(f"{gateway.url}/readyz", timeout=5, verify=False).json()["dependencies"]
            if dependencies["redis"] != "ok":
                break
            assert time.monotonic() < deadline, f"{gateway.name} has not missed Redis"
            time.sleep(0.05)


def hold(client: httpx.Client, group: str, partitions: list[int], member: str, count: int) -> dict:
    """All records of these partitions, delivered to a member for the `count`th time."""
    wanted = [{"topic": group, "partitions": partitions}]
    held = fetch(client, group, topic_partitions=wanted, member_id=member, max_wait_ms=30_000)
    while len(places(held)) < RECORDS * len(partitions):
        more = fetch(client, group, topic_partitions=wanted, member_id=member, max_wait_ms=30_000)
        assert more["batches"], f"{member} holds no more than {sorted(places(held))}"
        held["batches"] += more["batches"]
    assert {batch["delivery_count"] for batch in held["batches"]} == {count}
    return held


@pytest.mark.parametrize("how", ["joins", "leaves"])
def test_holders_and_counts_go_on_without_redis(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str, how: str
) -> None:
    """One member holds records, another one waits for them; then it is released what is held, at who leads by then."""
    mover, stay = cluster.gateways[2], cluster.gateways[:2]
    moved = led_by_last(cluster, name, topic_id)
    if how == "joins":
        mover.stop()
        cluster.wait_until_known(stay)
    for partition in moved:
        produce(clients[0], name, partition, RECORDS)
    acknowledge(clients[0], name, hold(clients[0], name, moved, "m", 1), "release")
    held = hold(clients[0], name, moved, "m", 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hold, clients[1], name, moved, "n", 3)
        cluster.wait_until_waiting()
        lose_redis(stack, cluster)
        if how == "joins":
            mover.start()
            cluster.wait_until_known(cluster.gateways)
        else:
            mover.stop()
            cluster.wait_until_known(stay)
        acknowledge(clients[0], name, held, "release")
        acknowledge(clients[0], name, waiting.result())
