"""A group that begins at the end of a topic gets no old record, whichever gateways and calls it begins with."""

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.cluster.calls import fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.event_source import EventSource
from tests.http.calls import Gateway, wait_until
from tests.http.membership import Member
from tests.outages import paused

PARTITIONS = 8
MANY = 1100
"""One fetch begins at most 500 share-partitions."""
FROZEN_S = 5.0
OLD = 10

Begin = Callable[[list[Gateway], str], None]


def by_topic(gateways: list[Gateway], name: str) -> None:
    for gateway in gateways:
        assert gateway.acquire(name, name) == []


def by_partitions(gateways: list[Gateway], name: str) -> None:
    for partition in range(PARTITIONS):
        named = [{"topic": name, "partitions": [partition]}]
        assert gateways[partition % 3].acquire(name, topic_partitions=named) == []


def by_heartbeat(gateways: list[Gateway], name: str) -> None:
    Member(gateways[1], name, "m1", name).beat_until_assigned(**{name: list(range(PARTITIONS))})
    by_topic(gateways, name)


def by_stream(gateways: list[Gateway], name: str) -> None:
    source = EventSource(str(gateways[1].http.base_url), name, name)
    try:
        wait_until(lambda: len(begun(gateways[0], name)) == PARTITIONS)
    finally:
        source.cut()


def begun(gateway: Gateway, name: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The start offset and the lag of each partition that has a start offset."""
    response = gateway.http.get(f"/v1/share-groups/{name}/offsets")
    found = gateway.offsets(name) if response.status_code == 200 else {}
    return {place: (start, lag) for place, (start, lag) in found.items() if start >= 0}


@pytest.mark.parametrize("begin", [by_topic, by_partitions, by_heartbeat, by_stream])
def test_a_group_at_latest_begins_at_the_end_of_every_partition(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, begin: Begin
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)
    begins_at_the_end(clients, name, range(PARTITIONS), PARTITIONS, begin)


def test_a_group_at_latest_begins_at_the_end_of_more_partitions_than_a_fetch_begins(
    clients: list[httpx.Client], name: str
) -> None:
    make_topic(clients[0], name, MANY)
    begins_at_the_end(clients, name, (0, 499, 500, MANY - 1), MANY, by_topic)


@pytest.mark.parametrize("coordinator", ["group coordinator", "share coordinator"])
def test_a_group_at_latest_begins_at_the_end_though_a_coordinator_is_frozen_meanwhile(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str, coordinator: str
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)

    def begin(gateways: list[Gateway], name: str) -> None:
        fetch = {"topics": [name], "member_id": "m1", "max_wait_ms": 3000}
        with ThreadPoolExecutor() as threads:
            with paused(stack, coordinator):
                asking = [
                    threads.submit(gateway.http.post, f"/v1/share-groups/{name}/fetch", json=fetch)
                    for gateway in gateways
                ]
                time.sleep(FROZEN_S)
            for answer in (each.result() for each in asking):
                assert answer.status_code != 200 or answer.json()["batches"] == []
        by_topic(gateways, name)

    begins_at_the_end(clients, name, range(PARTITIONS), PARTITIONS, begin)


def begins_at_the_end(
    clients: list[httpx.Client], name: str, written: Collection[int], partitions: int, begin: Begin
) -> None:
    """Of these partitions the group gets what comes after its begin, and none of the ten records of before."""
    for partition in written:
        produce(clients[0], name, partition, OLD)
    gateways = [Gateway(client) for client in clients]
    gateways[0].configure(name, share_auto_offset_reset="latest")
    begin(gateways, name)
    wait_until(lambda: len(begun(gateways[0], name)) == partitions, 60)
    found = gateways[0].offsets(name)
    assert {place: found[place] for place in found if place[1] in written} == {
        (name, partition): (OLD, 0) for partition in written
    }
    for partition in written:
        produce(clients[2], name, partition, 1)
    new: set[tuple[int, int]] = set()
    while len(new) < len(written):
        new |= places(fetch(clients[0], name, topics=[name], member_id="m2", max_wait_ms=10_000))
    assert new == {(partition, OLD) for partition in written}
