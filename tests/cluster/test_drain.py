"""A gateway that stops hands everything over: nothing in flight waits for a timeout.

The lease is far longer than any of these tests may take, so a test that waits for it fails.
"""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import acknowledge, fetch, places, produce
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6
AT_ONCE_S = 25.0
"""`At once` on a busy machine: a quarter of the lease, and less than polls wait."""


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    with new_cluster(SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS="60000") as stack:
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


def leave(gateway: ServiceProcess) -> float:
    """Send SIGTERM. Returns: the time."""
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    return time.monotonic()


def assert_left(gateway: ServiceProcess, since: float) -> None:
    assert gateway.process is not None
    assert gateway.process.wait(AT_ONCE_S) == 0
    assert time.monotonic() - since < AT_ONCE_S


def test_a_poll_waiting_at_a_leader_survives_its_departure(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    wanted = [{"topic": name, "partitions": led[:1]}]
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], name, topic_partitions=wanted, max_wait_ms=30_000)
        cluster.wait_until_waiting()
        since = leave(leaver)
        assert_left(leaver, since)
        produce(clients[0], name, led[0], 1)
        assert places(poll.result(AT_ONCE_S)) == {(led[0], 0)}
    assert time.monotonic() - since < AT_ONCE_S


def test_a_poll_through_a_leaving_gateway_is_answered(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    client = clients[cluster.gateways.index(leaver)]
    for partitions in (led, [partition for partition in range(PARTITIONS) if partition not in led]):
        wanted = [{"topic": name, "partitions": partitions}]
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(fetch, client, name, topic_partitions=wanted, max_wait_ms=30_000)
            cluster.wait_until_waiting()
            since = leave(leaver)
            assert poll.result(AT_ONCE_S)["batches"] == []
            assert_left(leaver, since)
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
        poll = pool.submit(client.post, path, json={**wanted, "max_wait_ms": 30_000})
        cluster.wait_until_waiting()
        assert_left(leaver, leave(leaver))
        answer = poll.result(AT_ONCE_S)
    assert (answer.status_code, answer.json()["code"], answer.json()["definite"]) == (503, "REQUEST_TIMED_OUT", False)
    produce(clients[0], name, elsewhere, 1)
    assert places(fetch(clients[0], name, **wanted, max_wait_ms=5000)) == {(elsewhere, 0)}


def test_records_held_at_a_gateway_that_left_can_be_settled_at_once(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    leaver, led = leaver_of(cluster, name, topic_id)
    for partition in led:
        produce(clients[0], name, partition, 5)
    wanted = [{"topic": name, "partitions": led}]
    held = fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=5000)
    while len(places(held)) < 5 * len(led):
        more = fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=5000)
        held["batches"] += more["batches"]
    since = leave(leaver)
    acknowledge(clients[0], name, held)
    assert time.monotonic() - since < AT_ONCE_S
    assert_left(leaver, since)
    assert fetch(clients[0], name, topic_partitions=wanted, max_wait_ms=0)["batches"] == []


def test_fetches_in_progress_leave_no_lock_at_a_leaving_gateway(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, topic_id: str
) -> None:
    """Their answers hold every record that they acquired: others would wait for the end of a lock that nobody knows
    of."""
    leaver, led = leaver_of(cluster, name, topic_id)
    produce(clients[0], name, led[0], 300)
    wanted = [{"topic": name, "partitions": led[:1]}]
    got: list[tuple[int, int]] = []

    def consume(member_id: str) -> None:
        while True:
            answer = fetch(
                clients[0], name, topic_partitions=wanted, member_id=member_id, max_records=1, max_wait_ms=2000
            )
            if not answer["batches"]:
                return
            got.extend((batch["first_offset"], batch["delivery_count"]) for batch in answer["batches"])
            acknowledge(clients[0], name, answer)

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(consume, f"m{index}") for index in range(4)]
        deadline = time.monotonic() + AT_ONCE_S
        while len(got) < 50:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert_left(leaver, leave(leaver))
        for worker in working:
            worker.result(60)
    assert sorted(got) == [(offset, 1) for offset in range(300)]


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
        since = leave(leaver)
        assert_left(leaver, since)
        assert sum(worker.result(60) for worker in working) > 0


@pytest.mark.parametrize("how", ["released", "expired"])
def test_a_forwarded_poll_wakes_for_released_records(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, how: str
) -> None:
    """A release through a third gateway, or a lock that ends, wakes a poll that waits at the leader."""
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    _, (partition, *_) = leaver_of(cluster, name, topic_id)
    produce(clients[0], name, partition, 1)
    wanted = [{"topic": name, "partitions": [partition]}]
    lock = {"lock_duration_ms": 3000} if how == "expired" else {}
    held = fetch(clients[1], name, topic_partitions=wanted, member_id="m", max_wait_ms=5000, **lock)
    assert places(held) == {(partition, 0)}
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], name, topic_partitions=wanted, member_id="n", max_wait_ms=30_000)
        if how == "released":
            cluster.wait_until_waiting()
            acknowledge(clients[2], name, held, "release")
        answer = poll.result(AT_ONCE_S)
    assert places(answer) == {(partition, 0)}
    assert answer["batches"][0]["delivery_count"] == 2
    acknowledge(clients[1], name, answer)
