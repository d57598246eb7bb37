"""Answers name the leaders of their partitions, so that clients may ask there."""

import time

import httpx

from tests.cluster.calls import acknowledge, fetch, places, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6


def leaders_of(cluster: GatewayCluster, group: str, topic_id: str) -> dict[int, tuple[str, str]]:
    """Node id and URL of each partition's leader."""
    names = {gateway.url: node_id for node_id, gateway in cluster.nodes.items()}
    urls = {partition: cluster.leader_of(group, topic_id, partition).url for partition in range(PARTITIONS)}
    return {partition: (names[url], url) for partition, url in urls.items()}


def named_leaders(answer: dict, topic: str) -> dict[int, tuple[str, str]]:
    leaders = answer.get("leaders", [])
    assert {leader["topic"] for leader in leaders} <= {topic}
    by_partition = {leader["partition"]: (leader["node_id"], leader["url"]) for leader in leaders}
    assert len(by_partition) == len(leaders)
    return by_partition


def test_a_fetch_names_other_leaders_of_its_records(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    leaders = leaders_of(cluster, name, topic_id)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 2)
    seen: set[tuple[int, int]] = set()
    asked = cluster.gateways[0].url
    for _ in range(PARTITIONS * 2):  # a fetch brings a record at least
        answer = fetch(clients[0], name, topics=[name], max_records=3, max_wait_ms=5000)
        got = places(answer)
        elsewhere = {partition for partition, _ in got if leaders[partition][1] != asked}
        assert named_leaders(answer, name) == {partition: leaders[partition] for partition in elsewhere}
        seen |= got
        acknowledge(clients[0], name, answer)
        if len(seen) == PARTITIONS * 2:
            return
    raise AssertionError(f"only {sorted(seen)} came")


def test_a_heartbeat_names_the_leaders_of_assigned_partitions(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
    settings = {"share.assignment.interval.ms": "0"}
    clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": settings}).raise_for_status()
    path = f"/v1/share-groups/{name}/heartbeat"
    joining = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [name]}
    deadline = time.monotonic() + 60
    answer = clients[0].post(path, json=joining).raise_for_status().json()
    while not answer.get("assignment", {}).get("topic_partitions"):
        assert time.monotonic() < deadline, answer
        epoch = {"member_id": "m", "member_epoch": answer["member_epoch"]}
        answer = clients[1].post(path, json=epoch).raise_for_status().json()
    assert named_leaders(answer, name) == leaders_of(cluster, name, topic_id)
    unchanged = clients[2].post(path, json={"member_id": "m", "member_epoch": answer["member_epoch"]}).json()
    assert "assignment" not in unchanged
    assert "leaders" not in unchanged
