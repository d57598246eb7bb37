"""The Python client's RecordStream: records as they come, over lost connections, settled one by one."""

import asyncio

import pytest

from sharequeue.client import AcknowledgementError, ApiError, IllegalState, RecordStream, sync
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.http.client_calls import Network, in_event_loop
from tests.http.test_never_begun import counts


@in_event_loop
async def test_st_071_records_are_handed_out_and_settled(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, {"id": 1}, {"id": 2}, {"id": 3})
    async with RecordStream(shared_stack.url, name, [name], window=2) as stream:
        first, second = await anext(stream), await anext(stream)
        assert [first.value, second.value] == [{"id": 1}, {"id": 2}]
        await stream.acknowledge(first)
        third = await anext(stream)
        await stream.acknowledge(second, "renew")
        await stream.acknowledge(second, "release", delay_ms=60_000)
        assert third.offset == 2
        with pytest.raises(IllegalState):
            await stream.acknowledge(first)
    assert gateway.acquire(name, name, member="m2") == ["2-2×2"]


@in_event_loop
async def test_st_072_a_lost_connection_loses_and_doubles_nothing(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    async with Network(gateway.port) as proxy, RecordStream(proxy.url, name, [name], resume_ms=30_000) as stream:
        seen = []
        for turn in range(15):
            await asyncio.to_thread(gateway.produce, name, turn, -turn)
            if turn % 2:
                proxy.cut()
            for _ in range(2):
                record = await anext(stream)
                seen.append((record.offset, record.delivery_count))
                if turn % 3:
                    await stream.acknowledge(record)
        assert sorted(seen) == [(offset, 1) for offset in range(30)]
        assert sum(b"/stream?" in request for request in proxy.requests) > 1, "it was opened again"


@in_event_loop
async def test_st_073_closing_gives_back_what_was_not_handed_out(
    shared_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0, 1, 2)
    async with RecordStream(shared_stack.url, name, [name]) as stream:
        await anext(stream)
    assert counts(gateway.fetch(name, name, member="m2")) == [(0, 0, 2, 2), (1, 2, 2, 1)]


@in_event_loop
async def test_st_074_what_ends_a_stream(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    with pytest.raises(ApiError) as unknown:
        await anext(RecordStream(shared_stack.url, name, [f"{name}-no"]))
    assert unknown.value.error.code == "UNKNOWN_TOPIC_OR_PARTITION"
    first = RecordStream(shared_stack.url, name, [name], member_id="m1")
    record = await anext(first)
    async with RecordStream(shared_stack.url, name, name, member_id="m1") as second:
        again = await anext(second)
        assert (again.offset, again.delivery_count) == (0, 1)
        with pytest.raises(IllegalState, match="replaced"):
            await anext(first)
        await first.close()
        await second.acknowledge(again)
    assert record.offset == 0
    with pytest.raises(ValueError, match="window"):
        RecordStream(shared_stack.url, name, [name], window=2001)


def test_st_075_a_lock_that_has_ended_is_an_error_of_the_acknowledgement(
    shared_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 0)
    with sync.RecordStream(shared_stack.url, name, [name], member_id="m1", window=1) as stream:
        first = next(stream)
        assert gateway.settle(name, name, 0, 0, "renew", lock_duration_ms=1000) == "applied"
        again = next(stream)
        assert (first.delivery_count, again.delivery_count) == (1, 2)
        with pytest.raises(AcknowledgementError):
            stream.acknowledge(first)
        stream.acknowledge(again)
    assert gateway.window(name, name) == (1, [])


@in_event_loop
async def test_what_waits_behind_a_slow_record_is_no_attempt(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    """The records go back before their locks end, and again when they have come again."""
    gateway.create_topic(name)
    gateway.configure(name, share_record_lock_duration_ms=3000)
    gateway.produce(name, 0, 1, 2)

    def third_delivery() -> list[int]:
        """The attempts of the last record, once it has been delivered three times."""
        batches = gateway.in_flight(name)[0]["batches"]
        return [batch["attempt"] for batch in batches if batch["last_offset"] == 2 and batch["delivery_count"] >= 3]

    async with RecordStream(shared_stack.url, name, [name], window=3) as stream:
        await anext(stream)
        while not (attempts := await asyncio.to_thread(third_delivery)):
            pass
        assert attempts == [1]
        records = [await anext(stream) for _ in range(3)]
        assert [(record.offset, record.attempt) for record in records if record.offset] == [(1, 1), (2, 1)]
