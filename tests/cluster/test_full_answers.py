"""A leader finds records that another gateway appended: at once, and in whole answers over holes of its memory."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from tests.cluster.calls import fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import LONG_MS, Gateway, woken

BATCHES = 9
"""The leader appends the last one too, so that it knows where the log ends."""


@pytest.fixture
def leader(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> httpx.Client:
    """The client of the gateway that leads the one partition of a topic, in the group of its name."""
    topic_id = make_topic(clients[0], name, 1)
    leader = cluster.leader_of(name, topic_id, 0)
    fetch(clients[0], name, topics=[name], max_wait_ms=0)
    return clients[cluster.gateways.index(leader)]


@pytest.fixture
def other(clients: list[httpx.Client], leader: httpx.Client) -> httpx.Client:
    return next(client for client in clients if client is not leader)


@pytest.mark.parametrize("through", ["leader", "other"])
@pytest.mark.parametrize("limits", [{"max_records": 500}, {"min_bytes": 3000}], ids=["max_records", "min_bytes"])
def test_alternating_batches_of_two_gateways_come_in_one_answer(
    leader: httpx.Client, other: httpx.Client, name: str, through: str, limits: dict[str, int]
) -> None:
    """The leader has only its own batches in memory. It knew the log end,
    and once answered with the first batch alone."""
    for turn in range(BATCHES):
        produce((leader, other)[turn % 2], name, 0, 10)
    client = {"leader": leader, "other": other}[through]
    with woken(Gateway(leader), Gateway(other)):
        answer = fetch(client, name, topics=[name], max_wait_ms=LONG_MS, **limits)
    assert places(answer) == {(0, offset) for offset in range(10 * BATCHES)}
    values = [record["value"] for batch in answer["batches"] for record in batch["records"]]
    assert values == list(range(10)) * BATCHES


def test_records_appended_at_another_gateway_are_found_by_the_next_fetch(
    leader: httpx.Client, other: httpx.Client, name: str, new_redis: Callable[[], str]
) -> None:
    """A fetch that does not wait finds them too, before the leader heard of the append: it reads the log end."""
    with redis.Redis.from_url(new_redis()) as server:
        for turn in range(15):
            server.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # all stop to listen, for a second
            produce(other, name, 0, 1)
            client, max_wait_ms = ((leader, 0), (other, 0), (leader, 1))[turn % 3]
            answer = fetch(client, name, topics=[name], max_wait_ms=max_wait_ms)
            assert places(answer) == {(0, turn)}, f"turn {turn}"


PARTITIONS = 6
EACH = 10


def produce_everywhere(client: httpx.Client, topic: str) -> None:
    """12 kB, evenly over the partitions."""
    for partition in range(PARTITIONS):
        records = [{"value": secrets.token_hex(75), "partition": partition} for _ in range(EACH)]
        assert client.post(f"/v1/topics/{topic}/records", json={"records": records}).status_code == 200


@pytest.mark.parametrize("limits", [{"min_bytes": 11_000}, {"min_bytes": 1_000_000, "max_records": 55}])
def test_min_bytes_counts_what_all_leaders_have(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, limits: dict[str, int]
) -> None:
    """No leader alone has enough. Each counted for itself, so the fetch waited to its end: longer than the other one,
    which waits for twice the records, and for half of the time."""
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    leaders = [cluster.leader_of(name, topic_id, partition) for partition in range(PARTITIONS)]
    produce_everywhere(clients[0], name)
    with ThreadPoolExecutor() as threads:
        waits = {"topics": [name], "max_wait_ms": LONG_MS // 2, "min_bytes": 23_000}
        other = threads.submit(fetch, clients[2], f"{name}-other", **waits)
        answer = fetch(clients[1], name, topics=[name], max_wait_ms=LONG_MS, **limits)
        assert not other.done()
        produce_everywhere(clients[0], name)  # so the other one ends
    assert len({leaders[partition].name for partition, _ in places(answer)}) > 1
    assert len(places(answer)) == min(PARTITIONS * EACH, limits.get("max_records", 500))


def test_less_than_min_bytes_of_all_leaders_comes_when_the_wait_ends(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 1)
    answer = fetch(clients[1], name, topics=[name], max_wait_ms=500, min_bytes=100_000)
    assert len(places(answer)) == PARTITIONS
