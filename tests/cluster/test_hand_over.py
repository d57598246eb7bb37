"""Leadership moves: a gateway dies, leaves, comes back, or was only paused."""

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sharequeue_gateway.cluster.generation import Generation, Node

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until

PARTITIONS = 6
LOCK_MS = 3000


def victim_of(cluster: GatewayCluster, group: str, topic_id: str) -> ServiceProcess:
    """A gateway that leads something of a topic; never the first one, which the tests ask."""
    leaders = [cluster.leader_of(group, topic_id, partition) for partition in range(PARTITIONS)]
    return next(leader for leader in leaders if leader is not cluster.gateways[0])


def others(cluster: GatewayCluster, gone: ServiceProcess) -> list[ServiceProcess]:
    return [gateway for gateway in cluster.gateways if gateway is not gone]


def led_by(cluster: GatewayCluster, group: str, topic_id: str, gateway: ServiceProcess) -> list[int]:
    return [p for p in range(PARTITIONS) if cluster.leader_of(group, topic_id, p) is gateway]


@pytest.fixture
def topic_id(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> str:
    """A topic with ten records in each partition."""
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 10)
    return topic_id


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "left"])
def test_holders_settle_their_records_when_their_leader_is_gone(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str, how: signal.Signals
) -> None:
    victim = victim_of(cluster, name, topic_id)
    led = led_by(cluster, name, topic_id, victim)
    held = fetch(clients[0], name, topics=[name], member_id="m", max_records=30, max_wait_ms=0)
    for _ in range(4):
        more = fetch(clients[0], name, topics=[name], member_id="m", max_records=30, max_wait_ms=0)
        held["batches"] += more["batches"]
    assert len(places(held)) == PARTITIONS * 10
    assert victim.process is not None
    victim.process.send_signal(how)
    acknowledge(clients[0], name, held)
    victim.process.wait(60)
    assert fetch(clients[0], name, topics=[name], max_wait_ms=0)["batches"] == []
    for partition in led:
        produce(clients[0], name, partition, 1)
    got = set()
    while len(got) < len(led):
        answer = fetch(clients[0], name, topics=[name], max_wait_ms=30_000)
        assert answer["batches"], "records of the gone gateway's partitions are not delivered"
        got |= places(answer)
    assert got == {(partition, 10) for partition in led}


def test_locks_expire_after_their_leader_died_without_a_fetch(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """The locks of a dead gateway end by time although nobody fetches from those that lead now."""
    held = {"member_id": "m", "batches": []}
    for _ in range(PARTITIONS):
        held["batches"] += fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=0)["batches"]
    renewals = [entry | {"lock_duration_ms": LOCK_MS} for entry in acknowledgements_of(held, "renew")]
    body = {"member_id": "m", "acknowledgements": renewals}
    assert clients[0].post(f"/v1/share-groups/{name}/acknowledge", json=body).json()["failed_count"] == 0
    victim = victim_of(cluster, name, topic_id)
    led = led_by(cluster, name, topic_id, victim)
    victim.kill()
    cluster.wait_until_known(others(cluster, victim))

    def of_victim(field: str) -> set[object]:
        listed = clients[0].get(f"/v1/share-groups/{name}/in-flight").json()["partitions"]
        return {batch[field] for entry in listed if entry["partition"] in led for batch in entry["batches"]}

    wait_until(lambda: of_victim("delivery_state") == {"AVAILABLE"})
    assert of_victim("delivery_count") == {1}


def test_the_next_leader_knows_what_left_the_log_unread(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """The count is stored with the start offset that follows the log start."""
    victim = victim_of(cluster, name, topic_id)
    partition = led_by(cluster, name, topic_id, victim)[0]
    asked = {"topic_partitions": [{"topic": name, "partitions": [partition]}], "max_wait_ms": 0}

    def removed() -> int:
        listed = clients[0].get(f"/v1/share-groups/{name}/in-flight").json()["partitions"]
        return sum(entry.get("removed_unread", 0) for entry in listed)

    first = fetch(clients[0], name, **asked, max_records=5, acquire_mode="record_limit")
    last = fetch(clients[0], name, **asked, max_records=5, acquire_mode="record_limit")
    acknowledge(clients[0], name, first, "release")
    deleted = {"partitions": [{"partition": partition, "before_offset": 5}]}
    leader = clients[cluster.gateways.index(victim)]  # it follows the log start at once
    assert leader.post(f"/v1/topics/{name}/delete-records", json=deleted).status_code == 200
    assert removed() == 5
    acknowledge(clients[0], name, last)
    victim.kill()
    cluster.wait_until_known(others(cluster, victim))
    produce(clients[0], name, partition, 1)
    assert places(fetch(clients[0], name, **asked)) == {(partition, 10)}
    assert removed() == 5


@pytest.mark.parametrize("there", [1, 2], ids=["the one asked leads all", "another one leads all"])
def test_a_poll_survives_when_leadership_of_some_partitions_moves(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, there: int
) -> None:
    """It wakes for records of the moved partitions, and keeps waiting for the others."""
    stay, join = cluster.gateways[:there], cluster.gateways[there:]
    nodes = [node for node in cluster.nodes.items() if node[1] in stay]
    before = Generation(1, tuple(Node(node_id, gateway.url) for node_id, gateway in nodes))
    moved: list[int] = []
    kept: list[int] = []
    while not moved or not kept:
        clients[0].delete(f"/v1/topics/{name}")
        topic_id = make_topic(clients[0], name, PARTITIONS)
        led = [
            p for p in range(PARTITIONS) if before.leader_of(SharePartitionKey(name, topic_id, p)).url == stay[-1].url
        ]
        kept = [p for p in led if cluster.leader_of(name, topic_id, p) is stay[-1]]
        moved = [p for p in led if p not in kept]
    for gateway in join:
        gateway.stop()
    cluster.wait_until_known(stay)
    wanted = [{"topic": name, "partitions": kept + moved}]
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], name, topic_partitions=wanted, max_wait_ms=30_000)
        cluster.wait_until_waiting_at(stay[-1])
        for gateway in join:
            gateway.start()
        cluster.wait_until_known(cluster.gateways)
        produce(clients[0], name, moved[0], 1)
        assert places(poll.result(60)) == {(moved[0], 0)}


def test_a_new_gateway_takes_over_held_records(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    newcomer = cluster.gateways[2]
    newcomer.stop()
    cluster.wait_until_known(others(cluster, newcomer))
    held = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=0)
    while len(places(held)) < PARTITIONS * 10:
        more = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=0)
        held["batches"] += more["batches"]
    newcomer.start()
    cluster.wait_until_known(cluster.gateways)
    acknowledge(clients[1], name, held)
    assert fetch(clients[2], name, topics=[name], max_wait_ms=0)["batches"] == []


@pytest.mark.soak
def test_a_session_whose_home_moved_does_not_keep_its_group_in_use(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """The old home drops the session when a gateway joins: the member opens it again,
    or the group is no longer in use."""
    newcomer = cluster.gateways[2]
    home = Generation(1, tuple(Node(node_id, gateway.url) for node_id, gateway in cluster.nodes.items()))
    members = (f"m{number}" for number in itertools.count())
    member = next(member for member in members if home.home_of(name, member).node_id == "gateway-2")
    newcomer.stop()
    cluster.wait_until_known(others(cluster, newcomer))
    empty = f"{name}-empty"
    make_topic(clients[0], empty, 1)
    fetch(clients[0], name, topics=[empty], member_id=member, share_session_epoch=0, max_wait_ms=0)
    fetch(clients[1], name, member_id=member, share_session_epoch=1, max_wait_ms=0)
    newcomer.start()
    cluster.wait_until_known(cluster.gateways)
    for client in clients:
        body = {"member_id": member, "share_session_epoch": 2, "max_wait_ms": 0}
        refused = client.post(f"/v1/share-groups/{name}/fetch", json=body)
        assert (refused.status_code, refused.json()["code"]) == (404, "SHARE_SESSION_NOT_FOUND")
    deleted = clients[0].delete(f"/v1/share-groups/{name}")
    assert deleted.status_code == 204, deleted.text
    fetch(clients[0], name, topics=[empty], member_id=member, share_session_epoch=0, max_wait_ms=0)
    fetch(clients[1], name, member_id=member, share_session_epoch=1, max_wait_ms=0)
    assert clients[0].delete(f"/v1/share-groups/{name}").status_code == 409


def test_a_paused_gateway_delays_others_only_briefly(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """Requests that it got before it was replaced are forwarded to the new leader."""
    victim = victim_of(cluster, name, topic_id)
    wanted = [{"topic": name, "partitions": led_by(cluster, name, topic_id, victim)}]
    held = fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_records=1, max_wait_ms=30_000)
    assert victim.process is not None
    os.kill(victim.process.pid, signal.SIGSTOP)
    try:
        acknowledge(clients[0], name, held)  # without an answer of the paused one
    finally:
        os.kill(victim.process.pid, signal.SIGCONT)
    cluster.wait_until_known(cluster.gateways)
