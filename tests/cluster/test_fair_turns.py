"""A client with one URL is given records of each leader's partitions, within twice as many fetches as there are
partitions."""

import itertools
from collections import Counter

import httpx
import pytest

from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6
RECORDS = 150


def fill(
    cluster: GatewayCluster,
    client: httpx.Client,
    group: str,
    topic: str,
    partitions: int = PARTITIONS,
    leaders: int = 3,
) -> None:
    """A topic with a backlog in each partition, of which so many gateways lead some in a group."""
    while True:
        topic_id = make_topic(client, topic, partitions)
        if len({cluster.leader_of(group, topic_id, partition).name for partition in range(partitions)}) == leaders:
            break
        assert client.delete(f"/v1/topics/{topic}").status_code == 204
    for partition in range(partitions):
        produce(client, topic, partition, RECORDS)


def taken_from(answer: dict) -> Counter[int]:
    """The number of delivered records of each partition."""
    taken: Counter[int] = Counter()
    for batch in answer["batches"]:
        taken[batch["partition"]] += batch["last_offset"] - batch["first_offset"] + 1
    return taken


def test_ss_028_each_leader_has_its_turn(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> None:
    """Otherwise the last one in partition order gets none while the others have records."""
    fill(cluster, clients[0], name, name)
    taken: Counter[int] = Counter()
    for _ in range(4 * PARTITIONS):
        answer = fetch(clients[0], name, topics=[name], max_records=10, max_wait_ms=0)
        assert sum(taken_from(answer).values()) == 10
        taken += taken_from(answer)
        acknowledge(clients[0], name, answer)
    assert set(taken) == set(range(PARTITIONS))
    assert max(taken.values()) <= 3 * min(taken.values()), "a leader's turns are as many as its partitions"


@pytest.mark.parametrize("partitions", [6, 12])
def test_single_records_come_from_each_partition_within_two_rounds(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, partitions: int
) -> None:
    fill(cluster, clients[0], name, name, partitions)
    taken: Counter[int] = Counter()
    for _ in range(2 * partitions):
        taken += taken_from(fetch(clients[0], name, topics=[name], max_records=1, max_wait_ms=0))
    assert set(taken) == set(range(partitions))


@pytest.mark.parametrize("acknowledging", [True, False])
def test_ss_028_each_leader_has_its_turn_in_a_session(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, acknowledging: bool
) -> None:
    """`acknowledging`: in calls of their own, which count in the session too; else with the next fetch."""
    fill(cluster, clients[0], name, name)
    taken: Counter[int] = Counter()
    epochs = itertools.count()
    carried: list[dict] = []
    for turn in range(2 * PARTITIONS):
        named = {"topics": [name]} if turn == 0 else {"acknowledgements": carried}
        answer = fetch(
            clients[0], name, member_id="m", max_records=10, max_wait_ms=0, share_session_epoch=next(epochs), **named
        )
        taken += taken_from(answer)
        if acknowledging:
            body = {"member_id": "m", "acknowledgements": acknowledgements_of(answer, "accept")}
            body["share_session_epoch"] = next(epochs)
            assert clients[0].post(f"/v1/share-groups/{name}/acknowledge", json=body).json()["failed_count"] == 0
        else:
            carried = acknowledgements_of(answer, "accept")
    assert set(taken) == set(range(PARTITIONS))


def test_groups_and_topics_polled_in_turn_have_their_own_turns(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    places = [(f"{name}-g{group}", f"{name}-t{topic}") for group in range(2) for topic in range(2)]
    for group, topic in places[:2]:
        fill(cluster, clients[0], group, topic, leaders=3)
    taken = {place: Counter[int]() for place in places}
    for _ in range(2 * PARTITIONS):
        for group, topic in places:
            taken[group, topic] += taken_from(fetch(clients[0], group, topics=[topic], max_records=5, max_wait_ms=0))
    assert [set(of_place) for of_place in taken.values()] == [set(range(PARTITIONS))] * len(places)


def test_fetches_at_every_gateway_in_turn_serve_each_partition(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    fill(cluster, clients[0], name, name)
    taken: Counter[int] = Counter()
    for turn in range(2 * PARTITIONS * len(clients)):
        taken += taken_from(fetch(clients[turn % 3], name, topics=[name], max_records=5, max_wait_ms=0))
    assert set(taken) == set(range(PARTITIONS))
