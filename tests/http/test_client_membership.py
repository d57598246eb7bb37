"""The Python client as a member of a group: it joins, shares partitions, gives them up, and survives restarts."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sharequeue.client import Producer, ShareConsumer
from sharequeue.stack.stack import Stack
from tests.http.calls import Json
from tests.http.client_calls import in_event_loop, seen_by_another, until


def make_topic(client: httpx.Client, name: str, partitions: int = 1) -> None:
    assert client.post("/v1/topics", json={"name": name, "partitions": partitions}).status_code == 201


def take_out(client: httpx.Client, group: str, member_id: str) -> None:
    assert client.delete(f"/v1/share-groups/{group}/members/{member_id}").status_code == 204


def described(client: httpx.Client, group: str) -> Json:
    return dict(client.get(f"/v1/share-groups/{group}").json())


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    """A topic with 6 partitions; the group of the same name assigns at once and has a short heartbeat interval."""
    make_topic(client, name, 6)
    settings = {
        "share.assignment.interval.ms": "0",
        "share.heartbeat.interval.ms": "500",
        "share.session.timeout.ms": "45000",
    }
    assert client.patch(f"/v1/share-groups/{name}/config", json={"config": settings}).status_code == 200
    return name


@contextlib.asynccontextmanager
async def member(stack: Stack, topic: str, member_id: str, **options: Any) -> AsyncIterator[ShareConsumer]:
    async with ShareConsumer(stack.url, topic, member_id=member_id, **options) as consumer:
        consumer.subscribe([topic])
        yield consumer


def shares(*consumers: ShareConsumer) -> list[int]:
    """How many partitions each consumer is assigned."""
    return [sum(map(len, consumer.assignment.values())) for consumer in consumers]


def disjoint(*consumers: ShareConsumer) -> bool:
    """Whether each of the six partitions is assigned to exactly one consumer."""
    held = [p for consumer in consumers for some in consumer.assignment.values() for p in some]
    return sorted(held) == list(range(6))


async def produce(stack: Stack, topic: str, values: range) -> None:
    async with Producer(stack.url) as producer:
        for value in values:
            await producer.send_soon(topic, value, partition=value % 6)
        await producer.flush()


async def consume(consumer: ShareConsumer, seen: Counter[int], partitions: dict[str, set[int]]) -> None:
    while True:
        for record in await consumer.poll(2000):
            seen[record.value] += 1
            partitions.setdefault(consumer.member_id, set()).add(record.partition)


@in_event_loop
async def test_a_member_fetches_its_assigned_partitions(stack: Stack, topic: str) -> None:
    await produce(stack, topic, range(60))
    seen: Counter[int] = Counter()
    partitions: dict[str, set[int]] = {}
    async with member(stack, topic, "m1") as one, member(stack, topic, "m2") as two:
        await until(lambda: disjoint(one, two))
        assert shares(one, two) == [3, 3]
        fetched = {consumer.member_id: set(consumer.assignment[topic]) for consumer in (one, two)}
        tasks = [asyncio.create_task(consume(consumer, seen, partitions)) for consumer in (one, two)]
        await until(lambda: len(seen) == 60)
        for task in tasks:
            task.cancel()
        assert partitions == fetched
    assert set(seen.values()) == {1}


@in_event_loop
async def test_a_member_stops_fetching_lost_partitions(stack: Stack, client: httpx.Client, topic: str) -> None:
    async with member(stack, topic, "m1") as one:
        await until(lambda: shares(one) == [6])
        waiting = asyncio.create_task(one.poll(60_000))
        async with member(stack, topic, "m2") as two:
            await until(lambda: disjoint(one, two) and shares(one, two) == [3, 3])
            mine, others = one.assignment[topic], two.assignment[topic]
            async with Producer(stack.url) as producer:
                await producer.send(topic, "theirs", partition=others[0])
                assert [record.value for record in await two.poll(60_000)] == ["theirs"]
                assert not waiting.done()
                await producer.send(topic, "mine", partition=mine[0])
            assert [record.value for record in await waiting] == ["mine"]
        await until(lambda: shares(one) == [6])
    listed = described(client, topic)
    assert (listed["state"], listed["members"]) == ("Empty", [])


@pytest.mark.parametrize("follow_leaders", [False, True])
@in_event_loop
async def test_consumed_records_are_accepted_when_the_assignment_changes(
    stack: Stack, topic: str, follow_leaders: bool
) -> None:
    """The poll after it fetches other partitions, in another session,
    and takes the acknowledgements along all the same."""
    await produce(stack, topic, range(6))
    async with member(stack, topic, "m1", max_records=6, follow_leaders=follow_leaders) as one:
        seen = [record.value for record in await one.poll(60_000)]
        while len(seen) < 6:
            seen += [record.value for record in await one.poll(60_000)]
        async with member(stack, topic, "m2") as two:
            await until(lambda: disjoint(one, two) and shares(one, two) == [3, 3])
            assert await one.poll(0) == []
            await produce(stack, topic, range(6, 12))
            while len(seen) < 9:
                seen += [record.value for record in await one.poll(60_000)]
            await one.commit()
    assert sorted(seen)[:6] == list(range(6))
    assert [count for _, count in await seen_by_another(stack, topic, topic)] == [1] * 3


@in_event_loop
async def test_an_evicted_member_rejoins(stack: Stack, client: httpx.Client, topic: str) -> None:
    async with member(stack, topic, "m1") as consumer:
        await until(lambda: shares(consumer) == [6])
        polling = asyncio.create_task(consumer.poll(60_000))
        before = described(client, topic)["group_epoch"]
        take_out(client, topic, "m1")
        await until(lambda: described(client, topic)["group_epoch"] >= before + 2)
        await until(lambda: shares(consumer) == [6])
        await produce(stack, topic, range(1))
        assert [record.value for record in await polling] == [0]


@in_event_loop
async def test_a_subscription_can_change_and_end(stack: Stack, client: httpx.Client, topic: str) -> None:
    other = f"{topic}-other"
    make_topic(client, other)
    async with member(stack, topic, "m1") as consumer:
        await until(lambda: shares(consumer) == [6])
        consumer.subscribe([other])
        assert consumer.subscription == [other]
        await until(lambda: consumer.assignment == {other: [0]})
        consumer.subscribe([])
        await until(lambda: described(client, topic)["state"] == "Empty")
        assert consumer.assignment == {}


@in_event_loop
async def test_a_missing_topic_is_waited_for_without_a_session(stack: Stack, name: str) -> None:
    """Without a session the missing topic is the status of the fetch, not an error in its answer."""
    async with ShareConsumer(stack.url, name, [name], follow_leaders=True) as consumer:
        assert await consumer.poll(300) == []
        await produce(stack, name, range(1))
        assert [record.value for record in await consumer.poll(60_000)] == [0]
