"""A group that begins at the end of a topic gets no old record, whichever gateways and calls it begins with."""

from collections.abc import Callable

import httpx
import pytest

from tests.cluster.calls import fetch, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.event_source import EventSource
from tests.http.calls import Gateway, wait_until
from tests.http.membership import Member

PARTITIONS = 8
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
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, OLD)
    gateways = [Gateway(client) for client in clients]
    gateways[0].configure(name, share_auto_offset_reset="latest")
    begin(gateways, name)
    wait_until(lambda: len(begun(gateways[0], name)) == PARTITIONS)
    assert gateways[0].offsets(name) == {(name, partition): (OLD, 0) for partition in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        produce(clients[2], name, partition, 1)
    new: set[tuple[int, int]] = set()
    while len(new) < PARTITIONS:
        new |= places(fetch(clients[0], name, topics=[name], member_id="m2", max_wait_ms=10_000))
    assert new == {(partition, OLD) for partition in range(PARTITIONS)}
