"""A gateway that stops hands everything over: nothing in flight waits for a timeout.

The lease is an hour, so a test that waits for it fails.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import acknowledge, fetch, make_topic, places, produce
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, woken

PARTITIONS = 6


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    with new_cluster(SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS="3600000") as stack:
        yield stack


@pytest.fixture
def topic_id(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> str:
    """A topic that the group of the same name has begun."""
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    fetch(clients[0], name, topics=[name], max_wait_ms=0)
    return topic_id


def leaver_of(cluster: GatewayCluster, group: str, topic_id: str) -> tuple[ServiceProcess, list[int]]:
    """A gateway other than the first, and the partitions it leads."""
    leaders = [cluster.leader_of(group, topic_id, partition) for partition in range(PARTITIONS)]
    leaver = next(leader for leader in leaders if leader is not cluster.gateways[0])
    return leaver, [partition for partition, leader in enumerate(leaders) if leader is leaver]


def leave(gateway: ServiceProcess) -> None:
    """Send SIGTERM."""
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)


def assert_left(gateway: ServiceProcess) -> None:
    assert gateway.process is not None
    assert gateway.process.wait(HANG_S) == 0


@contextmanager
def nobody_waits_as_long(cluster: GatewayCluster, client: httpx.Client, name: str) -> Iterator[None]:
    """Check that this takes less time than the longest poll: one that begins before, at the first gateway, still waits
    when it ends."""
    while cluster.leader_of(name, make_topic(client, name, 1), 0) is not cluster.gateways[0]:
        assert client.delete(f"/v1/topics/{name}").status_code == 204
    fetch(client, name, topics=[name], max_wait_ms=0)
    with ThreadPoolExecutor(1) as pool:
        control = pool.submit(fetch, client, name, topics=[name], max_wait_ms=LONG_MS)
        cluster.wait_until_waiting_at(cluster.gateways[0])
        yield
        assert not control.done()
        produce(client, name, 0, 1)
        assert places(control.result(HANG_S)) == {(0, 0)}


def test_a_poll_waiting_at_a_leader_survives_its_departure(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    wanted = [{"topic": name, "partitions": led[:1]}]
    with woken(Gateway(clients[0])), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], name, topic_partitions=wanted, max_wait_ms=LONG_MS)
        cluster.wait_until_waiting()
        leave(leaver)
        assert_left(leaver)
        produce(clients[0], name, led[0], 1)
        assert places(poll.result(HANG_S)) == {(led[0], 0)}


@pytest.mark.soak
def test_a_poll_through_a_leaving_gateway_is_answered(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    client = clients[cluster.gateways.index(leaver)]
    for partitions in (led, [partition for partition in range(PARTITIONS) if partition not in led]):
        wanted = [{"topic": name, "partitions": partitions}]
        control = f"{name}-control-{partitions[0]}"
        with nobody_waits_as_long(cluster, clients[0], control), ThreadPoolExecutor(1) as pool:
            poll = pool.submit(fetch, client, name, topic_partitions=wanted, max_wait_ms=LONG_MS)
            cluster.wait_until_waiting_at(leaver)
            leave(leaver)
            assert poll.result(HANG_S)["batches"] == []
            assert_left(leaver)
        cluster.start()


def test_a_poll_forwarded_by_a_leaving_gateway_must_be_repeated(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """The leader may hold records for its fetch_id by then:
    a client that got an empty answer would never ask for them."""
    leaver, led = leaver_of(cluster, name, topic_id)
    elsewhere = next(partition for partition in range(PARTITIONS) if partition not in led)
    wanted = {"topic_partitions": [{"topic": name, "partitions": [elsewhere]}], "member_id": "m", "fetch_id": "1"}
    with ThreadPoolExecutor(1) as pool:
        path = f"/v1/share-groups/{name}/fetch"
        client = clients[cluster.gateways.index(leaver)]
        poll = pool.submit(client.post, path, json={**wanted, "max_wait_ms": LONG_MS})
        cluster.wait_until_waiting()
        leave(leaver)
        assert_left(leaver)
        answer = poll.result(HANG_S)
    assert (answer.status_code, answer.json()["code"], answer.json()["definite"]) == (503, "REQUEST_TIMED_OUT", False)
    produce(clients[0], name, elsewhere, 1)
    assert places(fetch(clients[0], name, **wanted, max_wait_ms=LONG_MS)) == {(elsewhere, 0)}


def test_records_held_at_a_gateway_that_left_can_be_settled_at_once(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    for partition in led:
        produce(clients[0], name, partition, 5)
    wanted = [{"topic": name, "partitions": led}]
    held = fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=LONG_MS)
    while len(places(held)) < 5 * len(led):
        more = fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=LONG_MS)
        held["batches"] += more["batches"]
    leave(leaver)
    acknowledge(clients[0], name, held)
    assert_left(leaver)
    assert fetch(clients[0], name, topic_partitions=wanted, max_wait_ms=0)["batches"] == []


def test_acknowledgements_in_progress_are_answered_by_a_leaving_gateway(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """Through all gateways, the leaving one too while it takes requests; no acknowledgement is answered as failed."""
    leaver, led = leaver_of(cluster, name, topic_id)
    for partition in led:
        produce(clients[0], name, partition, 40)
    wanted = [{"topic": name, "partitions": led}]

    def one_by_one(client: httpx.Client, member_id: str) -> int:
        settled = 0
        while True:
            try:
                answer = fetch(
                    client, name, topic_partitions=wanted, member_id=member_id, max_records=1, max_wait_ms=1000
                )
            except httpx.TransportError:
                return settled  # it no longer takes requests
            if not answer["batches"]:
                return settled
            try:
                acknowledge(client, name, answer)
            except httpx.TransportError:  # a kept connection was closed as it was used: a repeat learns the truth
                acknowledge(clients[0], name, answer)
            settled += 1

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(one_by_one, client, f"m{index}") for index, client in enumerate(clients)]
        while fetch(clients[0], name, topic_partitions=wanted, member_id="n", max_records=1, max_wait_ms=0)["batches"]:
            break
        leave(leaver)
        assert_left(leaver)
        assert sum(worker.result(60) for worker in working) > 0
