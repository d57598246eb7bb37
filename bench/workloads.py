"""The workloads, the same for every queue. The timed records are produced, fetched and durably acknowledged.

W1 one by one · W2 one producer and one consumer in batches of 100 · W3 four producers and eight consumers in batches
of 10 · W4 is W2 behind a backlog. W2+ is W2 with each acknowledgement in one round trip with the next fetch. N8 and
N32 are W1 with 8 and 32 clients at once. `paced` and `wake_up` measure times, not rates.
"""

import asyncio
import random
import string
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

PRELOAD_AT_ONCE: Final = 1000
PACE_S: Final = 0.002
REST_S: Final = 0.01
"""Until a fetch surely waits."""
_LETTERS: Final = string.ascii_letters + string.digits

Values = Callable[[int], list[str]]
"""Makes so many values."""


def random_values(length: int) -> Values:
    """Make values that nothing compresses: slices of one long random text, from another place for each record."""
    rng = random.Random(length)
    text = "".join(rng.choices(_LETTERS, k=1 << 22))
    places = len(text) - length

    def values(count: int) -> list[str]:
        return [text[place : place + length] for place in (int(rng.random() * places) for _ in range(count))]

    return values


def constant_values(length: int) -> Values:
    """Make values that are all the same: a log that compresses stores next to nothing."""
    return lambda count: ["v" * length] * count


class Queue(Protocol):
    """One client's connection to one queue."""

    async def produce(self, values: list[str]) -> None:
        """Returns when the values are durable."""

    async def fetch(self, max_records: int, done: Any = None) -> tuple[int, Any]:
        """Acknowledge `done` and fetch more, in one round trip.

        Returns: the number of records, whose values were decoded, and the token that acknowledges them.
        """

    async def acknowledge(self, token: Any) -> None:
        """Returns when the acknowledgement is durable."""

    async def close(self) -> None: ...


Connect = Callable[[], Awaitable[Queue]]


@asynccontextmanager
async def connected(connect: Connect, count: int) -> AsyncIterator[list[Queue]]:
    """Open so many connections to one queue."""
    queues = [await connect() for _ in range(count)]
    try:
        yield queues
    finally:
        for queue in queues:
            await queue.close()


class OneByOne(NamedTuple):
    sends_per_second: float
    receives_per_second: float


async def one_by_one(connect: Connect, values: Values, records: int, clients: int = 1) -> OneByOne:
    """W1, N8, N32: each call of a client waits for the one before. First all send, then all receive."""
    received = 0

    async def send(queue: Queue, texts: Iterable[str]) -> None:
        for text in texts:
            await queue.produce([text])

    async def receive(queue: Queue) -> None:
        nonlocal received
        while received < records:
            count, token = await queue.fetch(1)
            if count:
                await queue.acknowledge(token)
            received += count

    async with connected(connect, clients) as queues:
        texts = iter(values(records))
        started = time.perf_counter()
        await asyncio.gather(*(send(queue, texts) for queue in queues))
        sent = time.perf_counter()
        receiving = [asyncio.create_task(receive(queue)) for queue in queues]
        await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
        done = time.perf_counter()
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
    return OneByOne(records / (sent - started), received / (done - sent))


async def end_to_end(
    connect: Connect,
    values: Values,
    records: int,
    *,
    batch: int,
    producers: int = 1,
    consumers: int = 1,
    together: bool = False,
    ahead: bool = False,
) -> float:
    """W2, W3, W4: records per second, from the first produce to the last acknowledgement.

    `together`: each acknowledgement is part of the next fetch. `ahead`: the next fetch is under way beside it.
    """
    produced = acknowledged = 0

    async def produce(queue: Queue) -> None:
        nonlocal produced
        while produced < records:
            produced += batch
            await queue.produce(values(batch))

    async def consume(queue: Queue) -> None:
        nonlocal acknowledged
        held, token = 0, None
        while acknowledged < records:
            count, fetched = await queue.fetch(batch, token)
            acknowledged += held
            held, token = count, fetched
            if held and (not together or acknowledged + held >= records):
                await queue.acknowledge(token)
                acknowledged += held
                held, token = 0, None

    async def consume_ahead(queue: Queue) -> None:
        nonlocal acknowledged
        fetching = asyncio.create_task(queue.fetch(batch))
        try:
            while acknowledged < records:
                count, token = await fetching
                fetching = asyncio.create_task(queue.fetch(batch))
                if count:
                    await queue.acknowledge(token)
                    acknowledged += count
        finally:
            fetching.cancel()

    async with connected(connect, producers + consumers) as queues:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for queue in queues[:producers]:
                group.create_task(produce(queue))
            consumer = consume_ahead if ahead else consume
            consuming = [group.create_task(consumer(queue)) for queue in queues[producers:]]
            await asyncio.wait(consuming, return_when=asyncio.FIRST_COMPLETED)
            seconds = time.perf_counter() - started
            done = acknowledged
            for task in consuming:
                task.cancel()
    return done / seconds


async def paced(connect: Connect, values: Values, records: int) -> list[float]:
    """Send a record each 2 ms. Returns: milliseconds from the time when a record was due to its acknowledgement."""
    times: list[float] = []
    due: deque[float] = deque()

    async def receive(queue: Queue) -> None:
        while len(times) < records:
            count, token = await queue.fetch(10)
            if count:
                await queue.acknowledge(token)
            now = time.perf_counter()
            times.extend(1000 * (now - due.popleft()) for _ in range(count))

    async with connected(connect, 2) as (producer, consumer):
        receiving = asyncio.create_task(receive(consumer))
        began = time.perf_counter()
        for number, text in enumerate(values(records)):
            due.append(began + number * PACE_S)
            await asyncio.sleep(max(0.0, due[-1] - time.perf_counter()))
            await producer.produce([text])
        await receiving
    return times


async def wake_up(connect: Connect, values: Values, records: int) -> list[float]:
    """Produce for a fetch that waits. Returns: milliseconds from the call that sent a record to the record in hand."""
    times = []
    async with connected(connect, 2) as (producer, consumer):
        for text in values(records):
            waiting = asyncio.create_task(consumer.fetch(1))
            await asyncio.sleep(REST_S)
            began = time.perf_counter()
            sending = asyncio.create_task(producer.produce([text]))
            count, token = await waiting
            while not count:
                count, token = await consumer.fetch(1)
            times.append(1000 * (time.perf_counter() - began))
            await sending
            await consumer.acknowledge(token)
    return times


async def preload(connect: Connect, values: Values, records: int) -> None:
    """The backlog of W4."""
    async with connected(connect, 1) as (queue,):
        for _ in range(records // PRELOAD_AT_ONCE):
            await queue.produce(values(PRELOAD_AT_ONCE))
