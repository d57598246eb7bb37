"""A lock that ends while its leader is dead: its record waits as long as if the end had been seen."""

import time

import httpx
import pytest

from tests.cluster.calls import acknowledge, fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster

LOCK_MS = 1000
WAIT_MS = 9000
CLOCK_MS = 50


@pytest.mark.soak
def test_a_record_is_not_early_when_its_leader_died_with_the_lock(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    settings = {
        "share.record.lock.duration.ms": str(LOCK_MS),
        "share.retry.backoff.ms": str(WAIT_MS),
        "share.retry.jitter.percent": "20",
    }
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": settings}).status_code == 200
    produce(clients[0], name, 0, 3)
    leader = cluster.leader_of(name, topic_id, 0)
    (held,) = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=5000)["batches"]
    leader.kill()
    others = [gateway for gateway in cluster.gateways if gateway is not leader]
    cluster.wait_until_known(others)
    alive = clients[cluster.gateways.index(others[0])]
    again = fetch(alive, name, topics=[name], member_id="n", max_wait_ms=30_000)
    waited_ms = time.time() * 1000 - held["lock_expires_at_ms"]
    assert [(batch["first_offset"], batch["delivery_count"]) for batch in again["batches"]] == [(0, 2)]
    assert waited_ms >= WAIT_MS - CLOCK_MS
    acknowledge(alive, name, again)
