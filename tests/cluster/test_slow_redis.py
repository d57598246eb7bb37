"""100,000 delayed records and thousands of held ones, beside a Redis that answers late,
through crashes and restarts."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_gateway.leader.reports.led_metrics import RECORDS
from sharequeue_gateway.locks.lock_calls import MOST_FIELDS

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack import redis as redis_server
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.cluster.calls import fetch, make_topic, places
from tests.cluster.conftest import LEASE, LEASE_MS
from tests.cluster.gateways import GatewayCluster
from tests.conftest import NewDatabase
from tests.http.calls import LONG_MS, wait_until
from tests.http.database import redis_keys
from tests.storage.slow_redis import SlowRedis

DELAYED = 100_000
AT_ONCE = 2_000
HELD = 3 * AT_ONCE // 2
NEW = 500
DELAY_MS = 6 * 3_600_000
SETTINGS = {
    "share.record.lock.duration.ms": "600000",
    "share.partition.max.record.locks": "10000",
    "share.partition.max.delayed.records": str(2 * DELAYED),
}


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[redis_server.Redis]:
    server = redis_server.Redis(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def slow(own_redis: redis_server.Redis) -> Iterator[SlowRedis]:
    with SlowRedis(own_redis.url).running() as slow:
        yield slow


@pytest.fixture
def stack(slow: SlowRedis, tmp_path: Path, new_database: NewDatabase) -> Iterator[Stack]:
    settings = {LEASE: str(LEASE_MS), "SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS": "4000"}
    stores = {"postgres_url": new_database(), "redis_url": slow.url}
    with temporary_stack(tmp_path / "data", **stores, gateways=3, settings=settings) as stack:
        yield stack


def settle_by_turns(client: httpx.Client, group: str, topic: str, first: int, types: list[str], **fields: int) -> None:
    """Settle AT_ONCE records, one type after the other by turns."""
    settled = {"topic": topic, "partition": 0, "first_offset": first, "last_offset": first + AT_ONCE - 1}
    body = {"member_id": "m1", "acknowledgements": [{**settled, "types": types * (AT_ONCE // 2), **fields}]}
    response = client.post(f"/v1/share-groups/{group}/acknowledge", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["failed_count"] == 0, response.text[:500]


def accepted(client: httpx.Client, group: str, topic: str, offsets: range) -> int:
    """Accept held records, one by one, as the first delivery of each. Returns: how many were applied."""
    accepts = [
        {"topic": topic, "partition": 0, "first_offset": at, "last_offset": at, "type": "accept", "delivery_count": 1}
        for at in offsets
    ]
    response = client.post(
        f"/v1/share-groups/{group}/acknowledge", json={"member_id": "m1", "acknowledgements": accepts}
    )
    assert response.status_code == 200, response.text
    return [result.get("status") for result in response.json()["results"]].count("applied")


def was_degraded(stack: Stack) -> bool:
    return any("locks end by the sweep" in file.read_text() for file in stack.logs.glob("gateway*.log"))


@pytest.mark.soak
def test_no_lock_is_lost_or_doubled_beside_a_slow_redis(
    stack: Stack, slow: SlowRedis, own_redis: redis_server.Redis, cluster: GatewayCluster, tmp_path: Path, name: str
) -> None:
    by_service = {service: httpx.Client(base_url=service.url, timeout=60) for service in cluster.gateways}
    client = by_service[cluster.gateways[0]]
    assert client.patch(f"/v1/share-groups/{name}/config", json={"config": SETTINGS}).status_code == 200
    topic_id = make_topic(client, name, 1)
    records = {"records": [{"value": 1, "partition": 0}] * AT_ONCE}
    rounds = 2 * DELAYED // AT_ONCE
    for _ in range(rounds + 2 * HELD // AT_ONCE + 1):
        assert client.post(f"/v1/topics/{name}/records", json=records).status_code == 200
    leader = cluster.leader_of(name, topic_id, 0)
    client = by_service[leader]
    for number in range(rounds + 2 * HELD // AT_ONCE):
        got = fetch(client, name, topics=[name], member_id="m1", max_records=AT_ONCE, max_wait_ms=5000)
        first = number * AT_ONCE
        assert places(got) == {(0, offset) for offset in range(first, first + AT_ONCE)}
        if number < rounds:
            settle_by_turns(client, name, name, first, ["release", "accept"], delay_ms=DELAY_MS + 1000 * number)
        else:
            settle_by_turns(client, name, name, first, ["renew", "accept"])
    held = range(rounds * AT_ONCE, (rounds * AT_ONCE) + 2 * HELD, 2)
    led = SharePartitionKey(name, topic_id, 0)
    key = redis_keys(stack).locks(led)
    with Redis.from_url(own_redis.url) as redis:
        assert redis.hlen(key) > HELD > MOST_FIELDS
    assert not was_degraded(stack)

    leader = lead_elsewhere(cluster, led, leader)
    client = by_service[leader]
    new = fetch_once_loaded(client, name)
    assert places(new) == {(0, held.stop + offset) for offset in range(NEW)}, "what nobody held, and nothing else"
    assert accepted(client, name, name, held[:500]) == 500
    assert not was_degraded(stack)

    own_redis.kill()
    emptied = redis_server.Redis(tmp_path / "empty", own_redis.port)
    emptied.start()
    try:
        with Redis.from_url(emptied.url) as redis:
            wait_until(lambda: redis.hlen(key) > HELD - 500)
        wait_until(lambda: all(ready(service) for service in cluster.gateways if service.alive()))
        for service in cluster.gateways:  # what comes from here on is no consequence of the restart
            (stack.logs / f"{service.name.replace(' ', '-')}.log").write_text("")
        new = fetch_once_loaded(client, name)
        assert places(new) == {(0, held.stop + NEW + offset) for offset in range(NEW)}
        assert accepted(client, name, name, held[500:]) == HELD - 500
        assert accepted(client, name, name, held[:10]) == 10, "repeats of what was accepted before"
        metrics = client.get("/metrics").text
        assert not was_degraded(stack)
    finally:
        emptied.stop()
    delayed = [line for line in metrics.splitlines() if line.startswith(RECORDS.name) and 'state="delayed"' in line]
    assert [float(line.rpartition(" ")[2]) for line in delayed] == [DELAYED], delayed
    assert max(slow.most_asked, slow.most_answered) <= 2 * MOST_FIELDS + 20
    for each in by_service.values():
        each.close()


def fetch_once_loaded(client: httpx.Client, name: str) -> dict:
    """Fetch for another member. Locks are loaded from the slow Redis in many calls; until then the answer is 503."""
    body = {"topics": [name], "member_id": "m2", "max_records": NEW, "max_wait_ms": LONG_MS}
    path = f"/v1/share-groups/{name}/fetch"
    found: dict = wait_until(lambda: (answer := client.post(path, json=body)).is_success and answer.json())
    return found


def ready(service: ServiceProcess) -> bool:
    return httpx.get(f"{service.url}/readyz", timeout=30).json()["dependencies"]["redis"] == "ok"


def lead_elsewhere(cluster: GatewayCluster, led: SharePartitionKey, leader: ServiceProcess) -> ServiceProcess:
    """Kill the leader. Returns: the next one."""
    leader.kill()
    left = {node_id: service for node_id, service in cluster.nodes.items() if service.alive()}
    cluster.wait_until_known(list(left.values()))
    nodes = tuple(Node(node_id, service.url) for node_id, service in left.items())
    return left[Generation(1, nodes).leader_of(led).node_id]
