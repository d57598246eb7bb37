"""A fetch with `priority` keeps the order of its topics over several leaders, through any gateway."""

from collections import Counter

import httpx

from tests.cluster.calls import fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6


def test_the_first_topic_is_served_first_whoever_leads_it(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """Each gateway leads some of the other topic: without levels it would give that first at its own turn."""
    topics = [f"{name}.z", f"{name}.a"]
    make_topic(clients[0], topics[0], 1)
    other_id = make_topic(clients[0], topics[1], PARTITIONS)
    asked = {"topics": topics, "priority": True, "max_records": 1, "max_wait_ms": 0}
    for client in clients:
        fetch(client, name, **asked)
    assert len({cluster.leader_of(name, other_id, partition).url for partition in range(PARTITIONS)}) > 1
    for partition in range(PARTITIONS):
        produce(clients[0], topics[1], partition, 20)
    produce(clients[0], topics[0], 0, 30)
    for client in clients:  # the first fetch of each was counted
        taken = Counter(batch["topic"] for _ in range(10) for batch in fetch(client, name, **asked)["batches"])
        assert taken == {topics[0]: 9, topics[1]: 1}
    rest = [fetch(client, name, **asked)["batches"][0]["topic"] for client in clients]
    assert rest == [topics[0]] * 3
    assert [fetch(clients[0], name, **asked)["batches"][0]["topic"]] == [topics[1]], "the first one is empty"
