"""Leadership moves during an outage of Redis: the former leader hands its locks to the new one."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sharequeue_gateway.cluster.generation import Generation, Node

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.cluster.calls import acknowledge, fetch, make_topic, places, produce
from tests.cluster.conftest import LEASE, LEASE_MS
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until

LOCK = "share.record.lock.duration.ms"
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
    settings = {"share.record.lock.duration.ms": "60000"}
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": settings}).status_code == 200
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

    def knows(gateway: ServiceProcess) -> bool:
        ready = httpx.get(f"{gateway.url}/readyz", timeout=30, verify=False).json()
        return bool(ready["dependencies"]["redis"] != "ok")

    wait_until(lambda: all(knows(gateway) for gateway in cluster.gateways if gateway.running()))


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


@pytest.mark.parametrize("how", ["joins", pytest.param("leaves", marks=pytest.mark.soak)])
def test_holders_and_counts_survive_without_redis(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str, how: str
) -> None:
    """One member holds records, another one waits for them;
    then the records are released at the leader of that time."""
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


def untouched(clients: list[httpx.Client], group: str, held: dict, asked: list[int]) -> None:
    """Nobody else gets the records that a member holds, and the member settles all of them."""
    wanted = [{"topic": group, "partitions": sorted({partition for partition, _ in places(held)})}]
    for client in (clients[place] for place in asked):
        assert fetch(client, group, topic_partitions=wanted, member_id="n", max_wait_ms=0)["batches"] == []
    acknowledge(clients[asked[0]], group, held)


@pytest.mark.soak
def test_locks_follow_leadership_that_moved_twice_before_a_load(
    cluster: GatewayCluster, clients: list[httpx.Client], stack: Stack, name: str
) -> None:
    """The leader in between never knew the locks, and the last leader never knew the first one."""
    first, second, third = cluster.gateways
    second.stop()
    third.stop()
    cluster.wait_until_known([first])
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": {LOCK: "60000"}}).status_code == 200
    partitions = 48
    topic_id = make_topic(clients[0], name, partitions)
    nodes = [Node(f"gateway-{place}", gateway.url) for place, gateway in enumerate(cluster.gateways)]

    def leader(of: list[Node], partition: int) -> Node:
        return Generation(1, tuple(of)).leader_of(SharePartitionKey(name, topic_id, partition))

    moved = [p for p in range(partitions) if (leader(nodes[:2], p), leader(nodes, p)) == (nodes[1], nodes[2])]
    assert moved
    for partition in moved:
        produce(clients[0], name, partition, RECORDS)
    held = hold(clients[0], name, moved, "m", 1)
    lose_redis(stack, cluster)
    second.start()
    cluster.wait_until_known([first, second])
    third.start()
    cluster.wait_until_known(cluster.gateways)
    untouched(clients, name, held, [2, 0])


@pytest.mark.soak
def test_locks_of_a_leaving_gateway_are_kept_without_a_request(
    cluster: GatewayCluster, clients: list[httpx.Client], stack: Stack, name: str, topic_id: str
) -> None:
    moved = led_by_last(cluster, name, topic_id)
    for partition in moved:
        produce(clients[0], name, partition, RECORDS)
    held = hold(clients[0], name, moved, "m", 1)
    lose_redis(stack, cluster)
    cluster.gateways[2].stop()
    cluster.wait_until_known(cluster.gateways[:2])
    untouched(clients, name, held, [0, 1])


@pytest.mark.soak
def test_locks_never_requested_are_in_redis_when_it_is_back(
    cluster: GatewayCluster, clients: list[httpx.Client], stack: Stack, name: str, topic_id: str
) -> None:
    """The new leader has loaded nothing yet; the former leader has the locks, and dies."""
    mover, stay = cluster.gateways[2], cluster.gateways[:2]
    moved = led_by_last(cluster, name, topic_id)
    mover.stop()
    cluster.wait_until_known(stay)
    for partition in moved:
        produce(clients[0], name, partition, RECORDS)
    held = hold(clients[0], name, moved, "m", 1)
    lose_redis(stack, cluster)
    mover.start()
    cluster.wait_until_known(cluster.gateways)
    lose_redis(stack, cluster)
    assert stack.redis is not None
    (stack._data_dir / "redis/appendonly.aof").unlink(missing_ok=True)
    stack.redis.start()
    for client in clients:
        wait_until(lambda client=client: client.get("/readyz").json()["dependencies"]["redis"] == "ok")
    for gateway in stay:
        gateway.kill()
    cluster.wait_until_known([mover])
    untouched(clients, name, held, [2])
