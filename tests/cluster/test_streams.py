"""A stream through any gateway: records of all leaders, reconnects elsewhere, gateways and leaders that die."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import acknowledge, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.event_source import EventSource, StreamEvent

PARTITIONS = 6
Open = Callable[..., EventSource]


RESUME_MS = 30_000
"""As long as a lock: a busy machine may take longer than the default of 5 s to open a stream again."""


@pytest.fixture
def open_stream() -> Iterator[Open]:
    """Opens streams at a gateway, and cuts them at the end."""
    sources: list[EventSource] = []

    def open_one(gateway: ServiceProcess, name: str, **options: Any) -> EventSource:
        sources.append(EventSource(gateway.url, name, name, **{"resume_ms": RESUME_MS, **options}))
        return sources[-1]

    yield open_one
    for source in sources:
        source.cut()


def counts(event: StreamEvent) -> set[int]:
    return {batch["delivery_count"] for batch in event.data["batches"]}


def take(source: EventSource, records: int) -> list[StreamEvent]:
    """Events with so many records together."""
    events: list[StreamEvent] = []
    while sum(len(places(event.data)) for event in events) < records:
        event = source.next(30)
        if event.kind == "message":
            events.append(event)
    return events


def seen(events: list[StreamEvent]) -> list[tuple[int, int]]:
    return sorted(place for event in events for place in places(event.data))


def test_st_051_a_stream_has_the_records_of_all_leaders(
    cluster: GatewayCluster, clients: list[httpx.Client], open_stream: Open, name: str
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)
    source = open_stream(cluster.gateways[1], name, window=7)
    for partition in range(PARTITIONS):
        produce(clients[partition % 3], name, partition, 5)
    got: list[tuple[int, int]] = []
    turn = 0
    while len(got) < PARTITIONS * 5:
        event = source.next()
        assert len(places(event.data)) <= 7
        assert counts(event) == {1}
        got += places(event.data)
        acknowledge(clients[turn % 3], name, event.data)
        turn += 1
    assert len(set(got)) == len(got)


def test_a_stream_has_a_topic_that_is_made_again_at_another_gateway(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """Another topic keeps it open. Its gateway hears that there is a new one, and asks for it by its name."""
    other = f"{name}-other"
    make_topic(clients[1], other, 1)
    make_topic(clients[1], name, 1)
    source = EventSource(cluster.gateways[1].url, name, f"{other},{name}")
    try:
        produce(clients[1], other, 0, 1)
        assert len(take(source, 1)) == 1
        assert clients[0].delete(f"/v1/topics/{name}").status_code == 204
        make_topic(clients[0], name, 1)
        produce(clients[0], name, 0, 2)
        assert seen(take(source, 2)) == [(0, 0), (0, 1)]
    finally:
        source.cut()


def test_st_053_a_reconnect_at_another_gateway_takes_the_stream_over(
    cluster: GatewayCluster, clients: list[httpx.Client], open_stream: Open, name: str
) -> None:
    make_topic(clients[0], name, PARTITIONS)
    older = open_stream(cluster.gateways[0], name)
    events = []
    for partition in range(4):
        produce(clients[0], name, partition, 2)
        events += take(older, 2)
    newer = open_stream(cluster.gateways[1], name, last_id=events[1].id)
    assert (older.next().kind, older.ended()) == ("replaced", True)
    again = take(newer, 4)
    assert [event.id for event in again] == [event.id for event in events[2:]]
    assert seen(again) == seen(events[2:])
    assert {count for event in again for count in counts(event)} == {1}
    produce(clients[2], name, 5, 1)
    assert seen(take(newer, 1)) == [(5, 0)]
    newest = open_stream(cluster.gateways[2], name)
    assert seen(take(newest, 9)) == sorted([*seen(events), (5, 0)])


def test_st_054_a_stream_whose_gateway_is_killed_goes_on_elsewhere(
    cluster: GatewayCluster, clients: list[httpx.Client], open_stream: Open, name: str
) -> None:
    """Nothing is lost, and nothing comes twice within a delivery: the positions are in Redis."""
    make_topic(clients[0], name, PARTITIONS)
    source = open_stream(cluster.gateways[0], name)
    events = []
    for partition in range(PARTITIONS):
        produce(clients[1], name, partition, 2)
        events += take(source, 2)
    cluster.gateways[0].kill()
    assert source.ended()
    again = open_stream(cluster.gateways[1], name, last_id=events[2].id)
    produce(clients[1], name, 0, 1)
    got = take(again, 2 * (PARTITIONS - 3) + 1)
    assert seen(got) == sorted([*seen(events[3:]), (0, 2)])
    assert {count for event in got for count in counts(event)} == {1}
    for event in (*events, got[-1]):
        acknowledge(clients[2], name, event.data)


def test_st_055_a_stream_outlives_its_leader(
    cluster: GatewayCluster, clients: list[httpx.Client], open_stream: Open, name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    leader = cluster.leader_of(name, topic_id, 0)
    others = [index for index, gateway in enumerate(cluster.gateways) if gateway is not leader]
    source = open_stream(cluster.gateways[others[0]], name, window=4)
    produce(clients[others[0]], name, 0, 6)
    first = take(source, 4)
    leader.kill()
    for event in first:
        acknowledge(clients[others[1]], name, event.data)
    rest = take(source, 2)
    assert seen([*first, *rest]) == [(0, offset) for offset in range(6)]
    assert {count for event in rest for count in counts(event)} == {1}


def test_st_056_a_gateway_that_stops_says_so(
    cluster: GatewayCluster, clients: list[httpx.Client], open_stream: Open, name: str
) -> None:
    make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, 1)
    source = open_stream(cluster.gateways[2], name)
    first = source.next()
    cluster.gateways[2].stop()
    closed = source.next()
    while closed.kind == "problem":
        closed = source.next()
    assert (closed.kind, closed.data["retriable"], source.ended()) == ("closed", True, True)
    again = open_stream(cluster.gateways[0], name, last_id=closed.id)
    produce(clients[0], name, 0, 1)
    assert seen(take(again, 1)) == [(0, 1)]
    acknowledge(clients[1], name, first.data)
