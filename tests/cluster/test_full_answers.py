"""A leader finds records that another gateway appended: at once, and in whole answers over holes of its memory."""

from collections.abc import Callable

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
