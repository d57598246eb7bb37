"""Loops over a consumer: they outlast a gateway that is away, share slow records, and end when it is stopped."""

import asyncio
import dataclasses
import socket
import threading
import time
from collections import Counter

import pytest

from sharequeue.client import RecordStream, ShareConsumer, ValueUndecodable, sync
from sharequeue.client.consuming import fetching
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.http.client_calls import Network, consumers, in_event_loop, port_of, produce, until
from tests.http.test_never_begun import counts


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@in_event_loop
async def test_a_loop_waits_for_a_gateway_that_is_away(
    stack: Stack, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(stack, name, 0, 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        consumer = ShareConsumer(f"http://127.0.0.1:{port}", name, [name])
        assert await consumer.poll(0) == []
        consumer._polling._failing_since = time.monotonic() - 3600
        assert await consumer.poll(300) == []
    assert "waiting for the service: cannot reach" in caplog.text
    waiting = asyncio.ensure_future(anext(consumer))
    async with Network(port_of(stack), port):
        assert (await waiting).value == 0
        assert "the service answers again" in caplog.text
        await consumer.close()


@in_event_loop
async def test_a_topic_of_later_is_one_log_line(
    stack: Stack, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MISSING_TOPIC_REFRESH_S", 60)
    await produce(stack, name, *range(6))
    async with consumers(stack, name, name, f"{name}-later", max_records=1) as consumer:
        for _ in range(3):
            assert await consumer.poll()
            assert await consumer.poll(), "a fetch that names no topics"
            consumer._fetching.name_topics_soon(0)
    assert caplog.text.count(f"cannot fetch {name}-later") == 1


@in_event_loop
async def test_three_consumers_share_slow_records(stack: Stack, name: str) -> None:
    await produce(stack, name, *range(60))
    done: Counter[int] = Counter()

    async def work(number: int) -> None:
        async with ShareConsumer(stack.url, name, [name]) as consumer:
            async for _ in consumer:
                await asyncio.sleep(0.15)
                done[number] += 1
                if sum(done.values()) == 60:
                    for each in working:
                        each.cancel()

    working = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.wait(working)
    assert all(17 <= done[number] <= 23 for number in range(3)), done


@dataclasses.dataclass
class Order:
    id: int


@in_event_loop
async def test_values_are_of_the_type_that_the_program_names(stack: Stack, gateway: Gateway, name: str) -> None:
    await produce(stack, name, {"id": 1}, {"id": "x"}, b"bytes", None, {"id": 2})
    async with consumers(stack, name, name, value_type=Order) as consumer:
        good, wrong, *strange, last = await consumer.poll()
        assert good.value == Order(1)
        with pytest.raises(ValueUndecodable, match=rf"{name}-0 offset 1 .* Expected `int`, got `str` - at `\$.id`"):
            wrong.value  # noqa: B018 - reading it is what fails
        for record in strange:
            with pytest.raises(ValueUndecodable):
                record.value  # noqa: B018
        assert last.value == Order(2)
    async with RecordStream(stack.url, f"{name}-stream", [name], value_type=Order | None) as stream:
        assert [(await anext(stream)).offset for _ in range(3)] == [0, 1, 2]
        assert (await anext(stream)).value is None
    with pytest.raises(TypeError):
        ShareConsumer(stack.url, name, [name], value_type=lambda: 1)


# The end


@in_event_loop
async def test_stop_ends_a_loop_and_gives_back_at_once_what_it_has_not_begun(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    await produce(stack, name, *range(4))
    async with consumers(stack, name, name) as consumer:
        seen = []
        async for record in consumer:
            seen.append(record.value)
            if record.value == 1:
                consumer.stop()
                while not (given := counts(await asyncio.to_thread(gateway.fetch, name, name))):
                    pass
                assert given == [(2, 3, 2, 1)], "the record in hand is held"
        assert (seen, consumer.stopped) == ([0, 1], True)
        assert await consumer.poll() == []
    (found,) = gateway.in_flight(name)
    assert found["start_offset"] == 2, "those that the loop worked on are accepted"


@in_event_loop
async def test_stop_ends_a_poll_and_a_loop_that_wait(stack: Stack, name: str) -> None:
    async with Network(port_of(stack)) as network, ShareConsumer(network.url, name, [name]) as consumer:
        for waiting in (asyncio.ensure_future(consumer.poll(600_000)), None):
            if waiting is not None:
                await until(lambda: network.count("/fetch"))
                consumer.stop()
                consumer.stop()
                assert await waiting == []
            else:
                assert [record async for record in consumer] == []


@pytest.mark.parametrize("acknowledgement", ["implicit", "explicit"])
def test_stop_by_another_thread_ends_the_loop_over_a_poll(
    stack: Stack, gateway: Gateway, name: str, acknowledgement: str
) -> None:
    gateway.produce(name, *range(4))
    with sync.ShareConsumer(stack.url, name, [name], acknowledgement=acknowledgement) as consumer:  # type: ignore[arg-type]
        seen = []
        while not consumer.stopped:
            for record in consumer.poll():
                seen.append(record.value)
                if acknowledgement == "explicit":
                    consumer.acknowledge(record)
                if record.value == 1:
                    stopping = threading.Thread(target=consumer.stop)
                    stopping.start()
                    stopping.join()
                    while not (given := counts(gateway.fetch(name, name))):
                        pass
                    assert given == [(2, 3, 2, 1)]
        assert seen == [0, 1]
        assert list(consumer) == []
