"""The Python client produces: in order, once, and a refusal concerns only the refused record."""

import asyncio
import socket
from typing import Any

import httpx
import msgspec
import pytest

from sharequeue.client import (
    ApiError,
    IllegalState,
    InvalidTopic,
    NewRecord,
    Produced,
    Producer,
    Scheduled,
)
from sharequeue.client.consuming.outcomes import outcome_of
from sharequeue.stack.stack import Stack
from tests.http.client_calls import (
    Network,
    ask,
    consumers,
    in_event_loop,
    port_of,
)


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@in_event_loop
async def test_concurrent_sends_share_requests_and_keep_their_order(stack: Stack, name: str) -> None:
    async with Network(port_of(stack)) as network, Producer(network.url) as producer:
        places = await asyncio.gather(*(producer.send(name, {"n": n}) for n in range(300)))
        assert places == [Produced(name, 0, n) for n in range(300)]
        assert network.count(f"/v1/topics/{name}/records") <= 3
        waiting = [await producer.send_soon(name, n) for n in range(2500)]
        await producer.flush()
        assert [(await record).offset for record in waiting] == list(range(300, 2800))
    async with consumers(stack, name, name, max_records=2000) as consumer:
        assert [record.value for record in await consumer.poll()][300:] == list(range(1700))


@in_event_loop
async def test_every_kind_of_record_is_consumed_as_produced(stack: Stack, name: str) -> None:
    records = [
        NewRecord({"id": 1, "ü": [None, 1.5, True]}, "cust-9", {"trace": "x"}, timestamp_ms=1763640000000),
        NewRecord(b"\x00\xff", b"\xfe"),
        NewRecord(None, "gone"),
        NewRecord(msgspec.Raw(b'{"n": 1.10, "big":123456789012345678901234567890}')),
        NewRecord(""),
        NewRecord(0),
        NewRecord([2**64, -(2**63) - 1, 10**300]),
    ]
    async with Producer(stack.url) as producer:
        places = await producer.send_many(name, records)
        assert [place.offset for place in places] == [0, 1, 2, 3, 4, 5, 6]
    async with consumers(stack, name, name) as consumer:
        got = await consumer.poll()
        assert [record.value for record in got[:3]] == [records[0].value, b"\x00\xff", None]
        assert [record.key for record in got] == ["cust-9", b"\xfe", "gone", None, None, None, None]
        assert got[6].value == records[6].value  # beyond 64 bits
        assert (got[0].headers, got[0].timestamp_ms) == ({"trace": "x"}, 1763640000000)
        assert got[3].json == b'{"n": 1.10, "big":123456789012345678901234567890}'
        assert [record.value for record in got[4:6]] == ["", 0]
        assert (got[0].topic, got[0].partition, got[0].delivery_count) == (name, 0, 1)
        assert 0 < got[0].lock_remaining_ms <= 30_000


@in_event_loop
async def test_a_refused_record_does_not_fail_its_neighbours(stack: Stack, client: httpx.Client, name: str) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "config": {"max.message.bytes": "1000"}})
    async with Producer(stack.url) as producer:
        values = ["x" * 2000 if n in (3, 7) else n for n in range(10)]
        outcomes = await asyncio.gather(*(producer.send(name, value) for value in values), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        assert [error.error.code for error in refused] == ["MESSAGE_TOO_LARGE"] * 2
        assert [isinstance(outcome, Produced) for outcome in outcomes].count(True) == 8
        with pytest.raises(ApiError) as whole:
            await producer.send_many(name, ["fits", "x" * 2000])
        assert whole.value.definite
    async with consumers(stack, name, name) as consumer:
        assert [record.value for record in await consumer.poll()] == [0, 1, 2, 4, 5, 6, 8, 9]


@in_event_loop
async def test_a_record_that_cannot_be_encoded_fails_only_its_own_send(stack: Stack, name: str) -> None:
    """It never enters a request: the records of others in that request, and those behind it, would fail too."""
    async with Producer(stack.url) as producer:
        before = await producer.send_soon(name, 1)
        for options in ({"key": "\ud800"}, {"headers": {"h": "\ud800"}}, {"partition": object()}):
            with pytest.raises((TypeError, ValueError)):
                await producer.send_soon(name, 2, **options)
        after = await producer.send_soon(name, 3)
        assert [(await before).offset, (await after).offset] == [0, 1]


@in_event_loop
async def test_a_lost_answer_of_produce_appends_nothing_twice(stack: Stack, name: str) -> None:
    async with Network(port_of(stack)) as network, Producer(network.url) as producer:
        network.lose_answer_of(f"/v1/topics/{name}/records")
        sending = [asyncio.create_task(producer.send(name, n)) for n in range(5)]
        await network.lost.wait()
        assert (await producer.send(name, "while the first request is tried again")).offset == 5
        assert [(await place).offset for place in sending] == [0, 1, 2, 3, 4]
    async with consumers(stack, name, name) as consumer:
        assert [record.value for record in await consumer.poll()][:5] == [0, 1, 2, 3, 4]


@in_event_loop
async def test_invalid_producer_arguments_are_refused(stack: Stack, name: str) -> None:
    async with Producer(stack.url) as producer:
        with pytest.raises(ApiError) as invalid:
            await producer.send("no such name", 1)
        assert (invalid.value.code, invalid.value.retriable, invalid.value.definite) == (
            "INVALID_TOPIC_EXCEPTION",
            False,
            True,
        )
        assert isinstance(invalid.value, InvalidTopic)
        assert invalid.value.problem is not None
        assert invalid.value.problem.request_id
        with pytest.raises(ApiError, match="no partition 7") as unknown:
            await producer.send(name, 1, partition=7)
        assert unknown.value.status == 404
        for unspeakable in (float("nan"), {"total": float("nan"), "note": None}, [1, (float("-inf"),)]):
            with pytest.raises(ValueError, match=r"JSON has no (nan|-inf)"):
                await producer.send(name, unspeakable)
        with pytest.raises(TypeError):
            await producer.send(name, object())
        await producer.send_soon("no such name", 1)
        with pytest.raises(ApiError, match="topic name"):
            await producer.flush()
        await producer.flush()
    with pytest.raises(IllegalState, match="closed"):
        await producer.send(name, 1)


@in_event_loop
async def test_the_buffer_is_bounded_and_large_input_is_cut_into_requests(stack: Stack, name: str) -> None:
    async with (
        Network(port_of(stack)) as network,
        Producer(network.url, max_batch_records=10, max_buffer_bytes=2000) as producer,
    ):
        places = await producer.send_many(name, ["x" * 50] * 95)
        assert [place.offset for place in places] == list(range(95))
        assert network.count(f"/v1/topics/{name}/records") == 10
        for n in range(100):
            await producer.send_soon(name, n)
            assert producer._buffered_bytes <= 2000
    async with consumers(stack, name, name) as consumer:
        assert [record.value for record in await consumer.poll()][95:] == list(range(100))


@in_event_loop
async def test_a_close_sends_what_waits_for_room(stack: Stack, name: str) -> None:
    producer = Producer(stack.url, max_buffer_bytes=1)
    sends = [asyncio.create_task(producer.send(name, n)) for n in range(4)]
    await asyncio.sleep(0)  # they begin to wait
    await producer.close()
    assert [place.offset for place in await asyncio.gather(*sends)] == [0, 1, 2, 3]


@in_event_loop
async def test_a_send_that_waits_for_room_ends_with_its_producer(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = Producer(f"http://127.0.0.1:{silent.getsockname()[1]}", max_buffer_bytes=1)
        await producer.send_soon(name, 1)
        waiting = asyncio.create_task(producer.send(name, 2))
        await asyncio.sleep(0)  # it begins to wait
        with pytest.raises(ApiError, match="closed before the service answered"):
            await producer.close(timeout_ms=1)
        async with asyncio.timeout(10):
            with pytest.raises(IllegalState, match="closed"):
                await waiting


@in_event_loop
async def test_what_a_close_gives_up_before_it_was_sent_was_surely_not_appended(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = Producer(f"http://127.0.0.1:{silent.getsockname()[1]}")
        first = await producer.send_soon(name, 1)
        behind = [
            asyncio.create_task(producer.send(name, 2, idempotency_key=name)),
            asyncio.create_task(producer.send_many(name, [3, 4])),
            asyncio.create_task(producer.send(name, 5)),
        ]
        await asyncio.sleep(0)  # the first one is under way
        with pytest.raises(ApiError, match="closed before the service answered"):
            await producer.close(timeout_ms=1)
        results = await asyncio.gather(first, *behind, return_exceptions=True)
        assert [isinstance(result, ApiError) and result.definite for result in results] == [False, True, True, True]


@in_event_loop
async def test_a_record_with_a_key_of_the_program_is_appended_once(stack: Stack, name: str) -> None:
    async with Network(port_of(stack)) as network, Producer(network.url) as producer:
        first, *rest = await asyncio.gather(
            producer.send(name, 17, idempotency_key=f"{name}-17"), *(producer.send(name, n) for n in range(3))
        )
        assert network.count(f"/v1/topics/{name}/records") <= 3, "it has a request alone"
        async with Producer(stack.url) as another:
            assert await another.send(name, 17, idempotency_key=f"{name}-17") == first
            with pytest.raises(ApiError) as refused:
                await another.send(name, 18, idempotency_key=f"{name}-17")
            assert (refused.value.status, refused.value.definite) == (422, True)
        assert [place.offset for place in (first, *rest)] == [0, 1, 2, 3]


@in_event_loop
async def test_unique_records_share_requests_and_are_appended_once(stack: Stack, name: str) -> None:
    unique = {"within_ms": 3_600_000}
    async with Network(port_of(stack)) as network, Producer(network.url) as producer:
        sends = [producer.send(name, n, key=f"k{n % 50}", unique=unique) for n in range(100)]
        places = await asyncio.gather(*sends)
        assert network.count(f"/v1/topics/{name}/records") <= 3
        assert [place.duplicate for place in places] == [False] * 50 + [True] * 50
        assert [place.offset for place in places] == [*range(50)] * 2
        assert (await producer.send(name, 0, key="k0")).offset == 50


WRONG = [
    {"idempotency_key": ""},
    {"idempotency_key": "x" * 129},
    {"idempotency_key": "a\nb"},
    {"unique": {"within_ms": 5}},
    {"unique": {"within_ms": 0}, "key": "k"},
    {"unique": {"within": 5}, "key": "k"},
    {"delay_ms": -1},
    {"delay_ms": 3654 * 86_400_000},
    {"delay_ms": 1.5},
    {"delay_ms": True},
    {"delay_ms": 1, "deliver_at_ms": 1},
    {"delay_ms": 1, "timestamp_ms": 1},
    {"delay_ms": 1, "unique": {"within_ms": 5}},
]


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_what_the_service_does_not_take_is_refused_where_it_is_passed(arguments: dict[str, Any]) -> None:
    async def send() -> None:
        async with Producer("http://127.0.0.1:9") as producer:  # nothing listens there
            await producer.send("t", 1, **arguments)

    with pytest.raises(ValueError, match=r"key|unique|delay_ms|takes"):
        asyncio.run(send())


@pytest.mark.parametrize("delay_ms", [13 * 3_600_000, -1, 0.5, True])
def test_a_delay_that_no_release_may_have_is_refused_where_it_is_passed(delay_ms: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 43200000"):
        outcome_of("release", None, delay_ms, True)


@in_event_loop
async def test_records_are_scheduled_and_cancelled(stack: Stack, name: str) -> None:
    async with Producer(stack.url) as producer:
        with pytest.raises(ValueError, match="exactly one"):
            await producer.send(name, 1, delay_ms=1, deliver_at_ms=1)  # type: ignore[call-overload]
        first = await producer.send(name, {"n": 1}, key="k", deliver_at_ms=1_893_488_400_000)
        assert first == Scheduled(name, 0, first.schedule_id, 1_893_488_400_000)
        assert await producer.cancel_scheduled(name, schedule_ids=[first.schedule_id]) == [first.schedule_id]
        second = await producer.send(name, b"\xff", key="k", delay_ms=86_400_000)
        assert await producer.cancel_scheduled(name, key="k") == [second.schedule_id]
