"""The length of a lock goes from leader to leader with it, whoever dies."""

import time

import httpx
from sharequeue_gateway.cluster.generation import Generation, Node

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster

GROUPS_MS = 120_000
OWN_MS = 20_000
"""Shorter than the lock of the group: nobody would get the records in time if its length were lost. A slow machine must
replace a gateway twice in this time."""


def leader_of(cluster: GatewayCluster, group: str, topic_id: str) -> ServiceProcess:
    """The leader of partition 0 among the gateways that live."""
    live = {node_id: gateway for node_id, gateway in cluster.nodes.items() if gateway.alive()}
    nodes = tuple(Node(node_id, gateway.url) for node_id, gateway in live.items())
    return live[Generation(1, nodes).leader_of(SharePartitionKey(group, topic_id, 0)).node_id]


def test_a_lock_is_held_to_its_own_end_over_two_crashes_and_a_renewal(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    settings = {"share.record.lock.duration.ms": str(GROUPS_MS)}
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": settings}).status_code == 200
    produce(clients[0], name, 0, 2)
    held = fetch(clients[0], name, topics=[name], member_id="m", lock_duration_ms=OWN_MS, max_wait_ms=5000)
    assert [batch["lock_duration_ms"] for batch in held["batches"]] == [OWN_MS]
    killed: list[ServiceProcess] = []
    renewed_s = 0.0
    for _ in range(2):
        victim = leader_of(cluster, name, topic_id)
        victim.kill()
        killed.append(victim)
        cluster.wait_until_known([gateway for gateway in cluster.gateways if gateway not in killed])
        alive = clients[next(index for index, one in enumerate(cluster.gateways) if one not in killed)]
        if not renewed_s:
            renewal = {"member_id": "m", "acknowledgements": acknowledgements_of(held, "renew")}
            for entry in renewal["acknowledgements"]:
                del entry["lock_duration_ms"]  # it keeps its own
            renewed_s = time.monotonic()
            answer = alive.post(f"/v1/share-groups/{name}/acknowledge", json=renewal)
            assert answer.json()["failed_count"] == 0, answer.text
        assert fetch(alive, name, topics=[name], member_id="n", max_wait_ms=0)["batches"] == []
    left_s = renewed_s + OWN_MS / 1000 - time.monotonic()
    assert left_s > 1, "the gateways took too long: nothing is shown"
    taken = fetch(alive, name, topics=[name], member_id="n", max_wait_ms=30_000)
    assert time.monotonic() >= renewed_s + OWN_MS / 1000 - 0.05, "another member got them before the lock ended"
    assert [(batch["delivery_count"], batch["lock_duration_ms"]) for batch in taken["batches"]] == [(2, GROUPS_MS)]
    acknowledge(alive, name, taken)
