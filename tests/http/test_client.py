"""The Python client consumes: it keeps its locks, follows its topics, and does all that without async too."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from sharequeue.client import (
    ApiError,
    IllegalState,
    Produced,
    Producer,
    ShareConsumer,
    sync,
)
from sharequeue.client.consuming import fetching
from sharequeue.stack.stack import Stack
from tests.http.client_calls import (
    NOTHING_MS,
    ask,
    configure,
    consumers,
    in_event_loop,
    produce,
    seen_by_another,
    until,
)


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


# Locks


LOCK_MS = 8000
"""The client renews such a lock after half of it; a machine may stand still for the rest."""


def lock_ends_ms(client: httpx.Client, name: str) -> list[int]:
    """When the locks of a group's records end."""
    (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight")["partitions"]
    return [batch["lock_expires_at_ms"] for batch in partition["batches"] if "lock_expires_at_ms" in batch]


@in_event_loop
async def test_locks_are_renewed_while_records_are_being_processed(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    configure(client, name, share_record_lock_duration_ms=LOCK_MS)
    await produce(stack, name, *range(3))
    async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
        records = await consumer.poll()
        consumer.acknowledge(records[1])
        await consumer.commit()
        acquired = lock_ends_ms(client, name)
        await until(lambda: min(lock_ends_ms(client, name)) > max(acquired))
        assert await seen_by_another(stack, name, name, NOTHING_MS) == []
        assert records[0].lock_remaining_ms > 0
        consumer.acknowledge(records[0])
        consumer.acknowledge(records[2])
        assert await consumer.commit() == {(name, 0): 2}
    idle = {"acknowledgement": "explicit", "max_poll_interval_ms": 1, "lock_duration_ms": 1000}
    await produce(stack, name, "left alone")
    async with consumers(stack, name, name, **idle) as consumer:
        assert len(await consumer.poll()) == 1
        assert await seen_by_another(stack, name, name) == [(3, 2)]


@in_event_loop
async def test_a_group_may_forbid_renewing(
    stack: Stack, client: httpx.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    configure(client, name, share_record_lock_duration_ms=1000, share_renew_acknowledge_enable=False)
    await produce(stack, name, 0)
    async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
        (record,) = await consumer.poll()
        configure(client, name, share_record_lock_duration_ms=60_000)
        assert await seen_by_another(stack, name, name) == [(0, 2)]
        consumer.acknowledge(record, "renew")
        await consumer.poll(0)
        assert record.lost
    assert "renewing" in caplog.text


@in_event_loop
async def test_a_record_renewed_by_the_user_is_returned_until_it_is_settled(
    stack: Stack, client: httpx.Client, name: str
) -> None:
    configure(client, name, share_record_lock_duration_ms=30_000)
    await produce(stack, name, *range(3))
    async with consumers(stack, name, name, acknowledgement="explicit", renew=False) as consumer:
        records = await consumer.poll()
        await until(lambda: records[0].lock_remaining_ms < 29_500)
        ended = time.monotonic() + records[0].lock_remaining_ms / 1000
        consumer.acknowledge(records[0], "accept")
        consumer.acknowledge(records[1], "renew")
        consumer.acknowledge(records[2], "renew")
        again = await consumer.poll()
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 1), (2, 1)]
        assert time.monotonic() + again[0].lock_remaining_ms / 1000 > ended + 0.2
        with pytest.raises(IllegalState, match="2 records"):
            await consumer.poll()
        for record in again:
            consumer.acknowledge(record)
        assert await consumer.commit() == {(name, 0): 2}


# Topics


@in_event_loop
async def test_a_topic_may_be_created_later_and_grow(
    stack: Stack, client: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "METADATA_REFRESH_S", 0.1)
    async with consumers(stack, name, name) as consumer:
        assert await consumer.poll(NOTHING_MS) == []
        polling = asyncio.create_task(consumer.poll(60_000))
        await produce(stack, name, "first")
        assert [record.value for record in await polling] == ["first"]
        ask(client, "PATCH", f"/v1/topics/{name}", {"partitions": 2})
        await produce(stack, name, "second", partition=1)
        while not (records := await consumer.poll(1000)):
            pass
        assert [(record.partition, record.value) for record in records] == [(1, "second")]
        await consumer.commit()
        other = f"{name}-other"
        await produce(stack, other, "third")
        consumer.subscribe([other])
        assert consumer.subscription == [other]
        assert [record.value for record in await consumer.poll()] == ["third"]
    async with ShareConsumer(stack.url, name) as nothing:
        with pytest.raises(IllegalState, match="subscribe"):
            await nothing.poll()
    with pytest.raises(IllegalState, match="closed"):
        await nothing.poll()


@in_event_loop
async def test_invalid_consumer_arguments_are_refused(stack: Stack, name: str) -> None:
    async with ShareConsumer(stack.url, "a/b", [name]) as consumer:
        with pytest.raises(ApiError) as refused:
            await consumer.poll(1000)
        assert refused.value.status in (404, 422)
    async with ShareConsumer(stack.url, name, ["no topic"]) as consumer:
        with pytest.raises(ApiError) as invalid:
            await consumer.poll(1000)
        assert invalid.value.error.code == "INVALID_TOPIC_EXCEPTION"


@in_event_loop
async def test_an_unreachable_service_is_retried_until_the_timeout(name: str) -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with ShareConsumer(url, name, [name], request_timeout_ms=2000) as consumer:
            assert await consumer.poll(100) == []
            with pytest.raises(ApiError, match="cannot reach"):
                await consumer.poll(10_000)
        with pytest.raises(ApiError, match=r"cannot reach|in time"):  # the last try may have too little time left
            async with Producer(url, deadline_ms=200) as producer:
                await producer.send(name, 1)


# Without async


@pytest.fixture
def threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.usefixtures("threads")
def test_the_sync_client_produces_and_consumes(stack: Stack, name: str) -> None:
    with sync.Producer(stack.url) as producer:
        assert producer.send(name, {"n": 0}) == Produced(name, 0, 0)
        later = producer.send_soon(name, {"n": 1})
        assert later.result(10) == Produced(name, 0, 1)
        assert len(producer.send_many(name, [{"n": 2}, {"n": 3}])) == 2
        with pytest.raises(ApiError, match="topic name"):
            producer.send("no such name", 1)
    with sync.ShareConsumer(stack.url, name, [name], acknowledgement="explicit", max_records=2) as consumer:
        for record in consumer.poll():
            consumer.acknowledge(record)
        assert consumer.commit() == {(name, 0): 2}
        for record in consumer.poll():
            consumer.acknowledge(record, "release")
    with sync.ShareConsumer(stack.url, name, [name]) as consumer:
        got = []
        for record in consumer:
            got.append((record.value["n"], record.delivery_count))
            if len(got) == 2:
                consumer.commit()
                break
        assert got == [(2, 2), (3, 2)]
        assert consumer.poll(NOTHING_MS) == []
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll()
    consumer.close()
    with sync.Producer(stack.url) as producer:
        producer.close()
