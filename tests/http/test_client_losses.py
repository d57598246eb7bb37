"""The Python client loses answers, sessions and services, but no record."""

import asyncio

import httpx
import pytest

from sharequeue.client import (
    ShareConsumer,
)
from sharequeue.stack.stack import Stack
from tests.http.client_calls import (
    NOTHING_MS,
    Network,
    ask,
    consumers,
    in_event_loop,
    port_of,
    produce,
    seen_by_another,
    until,
)


@in_event_loop
async def test_a_poll_is_repeated_after_a_lost_answer(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(6))
    async with (
        Network(port_of(stack)) as network,
        ShareConsumer(network.url, name, [name], max_records=3) as consumer,
    ):
        for values in ([0, 1, 2], [3, 4, 5]):  # the one that opens the session; one with acknowledgements
            network.lose_answer_of(f"/v1/share-groups/{name}/fetch")
            records = await consumer.poll()
            assert network.lost.is_set()
            assert [(record.value, record.delivery_count) for record in records] == [(n, 1) for n in values]
        await consumer.commit()
    assert await seen_by_another(stack, name, name, NOTHING_MS) == []


@in_event_loop
async def test_a_commit_is_repeated_after_a_lost_answer(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(4))
    async with (
        Network(port_of(stack)) as network,
        ShareConsumer(network.url, name, [name], acknowledgement="deferred") as consumer,
    ):
        records = await consumer.poll()
        consumer.acknowledge(records[1])
        consumer.acknowledge(records[2], "reject")
        network.lose_answer_of(f"/v1/share-groups/{name}/acknowledge")
        assert await consumer.commit() == {(name, 0): 2}
        assert network.lost.is_set()
        assert network.count("/acknowledge") == 2
    assert await seen_by_another(stack, name, name) == [(0, 2), (3, 2)]


@in_event_loop
async def test_a_release_with_a_lost_answer_succeeds_though_others_settled_the_record(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    await produce(stack, name, 0, 1)
    path = f"/v1/share-groups/{name}"
    async with (
        Network(port_of(stack)) as network,
        ShareConsumer(network.url, name, [name], acknowledgement="deferred") as consumer,
    ):
        first, second = await consumer.poll()
        consumer.acknowledge(second, "release")
        network.lose_answer_of(f"{path}/acknowledge")
        network.open.clear()  # the repeat waits
        committing = asyncio.create_task(consumer.commit())
        await network.lost.wait()
        (batch,) = ask(client, "POST", f"{path}/fetch", {"member_id": "other", "topics": [name]})["batches"]
        assert batch["delivery_count"] == 2
        accept = {"topic": name, "partition": 0, "first_offset": 1, "last_offset": 1, "type": "accept"}
        ask(client, "POST", f"{path}/acknowledge", {"member_id": "other", "acknowledgements": [accept]})
        network.open.set()
        assert await committing == {(name, 0): 1}
        assert network.count("/acknowledge") == 2
        consumer.acknowledge(first)


@in_event_loop
async def test_a_cancelled_poll_loses_no_records(stack: Stack, name: str) -> None:
    await produce(stack, name, 0)
    async with Network(port_of(stack)) as network, ShareConsumer(network.url, name, [name]) as consumer:
        assert [record.value for record in await consumer.poll()] == [0]
        polling = asyncio.create_task(consumer.poll(60_000))
        await until(lambda: network.count("/fetch") == 2)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await produce(stack, name, 1)
        records = await consumer.poll()
        assert [(record.value, record.delivery_count) for record in records] == [(1, 1)]
        await consumer.commit()
    assert await seen_by_another(stack, name, name, NOTHING_MS) == []


@pytest.mark.parametrize("epochs", [(0,), (0, 1), (0, -1)], ids=["another", "123", "122"])
@in_event_loop
async def test_a_lost_session_is_reopened_and_no_acknowledgement_is_lost(
    stack: Stack, client: httpx.Client, name: str, epochs: tuple[int, ...]
) -> None:
    await produce(stack, name, *range(3))
    async with consumers(stack, name, name, member_id="m-1", max_records=1) as consumer:
        assert [record.value for record in await consumer.poll()] == [0]
        for epoch in epochs:  # a session without partitions takes the place of this one
            body = {"member_id": "m-1", "topics": [], "max_wait_ms": 0, "share_session_epoch": epoch}
            ask(client, "POST", f"/v1/share-groups/{name}/fetch", body)
        assert [record.value for record in await consumer.poll(60_000)] == [1]
        await consumer.commit()
        (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight")["partitions"]
        assert partition["start_offset"] == 2
    assert await seen_by_another(stack, name, name) == [(2, 1)]
