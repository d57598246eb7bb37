"""The workloads, the same for every queue. The timed records are produced, fetched and durably acknowledged.

W1 one by one · W2 one producer and one consumer in batches of 100 · W3 four producers and eight consumers in batches
of 10 · W4 is W2 behind a backlog. W2+ is W2 with each acknowledgement in one round trip with the next fetch.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

PRELOAD_AT_ONCE = 1000


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


class OneByOne(NamedTuple):
    sends_per_second: float
    receives_per_second: float


async def one_by_one(connect: Connect, value: str, records: int) -> OneByOne:
    """W1: each call waits for the one before."""
    queue = await connect()
    try:
        started = time.perf_counter()
        for _ in range(records):
            await queue.produce([value])
        sent = time.perf_counter()
        received = 0
        while received < records:
            count, token = await queue.fetch(1)
            await queue.acknowledge(token)
            received += count
        done = time.perf_counter()
    finally:
        await queue.close()
    return OneByOne(records / (sent - started), records / (done - sent))


async def end_to_end(
    connect: Connect,
    value: str,
    records: int,
    *,
    batch: int,
    producers: int = 1,
    consumers: int = 1,
    together: bool = False,
) -> float:
    """W2, W3, W4: records per second, from the first produce to the last acknowledgement.

    `together`: each acknowledgement is part of the next fetch.
    """
    queues = [await connect() for _ in range(producers + consumers)]
    produced = acknowledged = 0
    values = [value] * batch

    async def produce(queue: Queue) -> None:
        nonlocal produced
        while produced < records:
            produced += batch
            await queue.produce(values)

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

    try:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for queue in queues[:producers]:
                group.create_task(produce(queue))
            consuming = [group.create_task(consume(queue)) for queue in queues[producers:]]
            await asyncio.wait(consuming, return_when=asyncio.FIRST_COMPLETED)
            seconds = time.perf_counter() - started
            done = acknowledged
            for task in consuming:
                task.cancel()
    finally:
        for queue in queues:
            await queue.close()
    return done / seconds


async def preload(connect: Connect, value: str, records: int) -> None:
    """The backlog of W4."""
    queue = await connect()
    values = [value] * PRELOAD_AT_ONCE
    for _ in range(records // PRELOAD_AT_ONCE):
        await queue.produce(values)
    await queue.close()
