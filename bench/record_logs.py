"""The runs of `bench.kafka_log`: one workload through one stack, or through Kafka's own share consumer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer

from bench.kafka.__main__ import kafkas
from bench.processes import cpu_seconds, family_cpu_seconds, threads_cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import Connect, Values, connected, end_to_end, random_values
from sharequeue.stack.stack import Stack
from tests.kafka.kafka import Kafka

LENGTH: Final = 98
VALUES: Final = random_values(LENGTH)
BACKLOG: Final = "bench_backlog"
BATCH_BYTES: Final = 1 << 20
AT_ONCE: Final = 10_000
SERVICES: Final = ("service process", "gateway", "share coordinator", "group coordinator")
"""`service process`: all three in one."""
CLIENTS, ALL, COMPILER = "the clients", "all", "in Kafka: the compiler of its JVM"
PROCESSES: Final = (*SERVICES, "PostgreSQL", "Redis", "Kafka", CLIENTS, ALL, COMPILER)


class Run(NamedTuple):
    """`rate`: records per second. `cpu_us`: of each of PROCESSES, for a record, in microseconds."""

    rate: float
    cpu_us: Mapping[str, float]


class Load(NamedTuple):
    """The settings of one run. `records`: how many a full run has.

    `consumers`: with 0 the run only produces. `producers`: with 0 all records are there before the run begins.
    `together`: each acknowledgement goes with the next fetch. `ahead`: the next fetch is under way beside it.
    """

    records: int
    batch: int
    producers: int = 1
    consumers: int = 1
    together: bool = False
    ahead: bool = False


W2: Final = Load(60_000, 100)
W3: Final = Load(20_000, 10, 4, 8)
PRODUCES: Final = {
    "batches of 100, one caller": Load(60_000, 100, 1, 0),
    "batches of 10, four callers": Load(20_000, 10, 4, 0),
    "one record, one caller": Load(1_000, 1, 1, 0),
    "one record, 32 callers": Load(5_000, 1, 32, 0),
}
BESIDE_KAFKA: Final = Load(200_000, 100, 0)
"""Longer, because Kafka's clients become fast only after a while."""


async def produce(connect: Connect, values: Values, load: Load) -> float:
    """Records per second of producers alone: each call waits for the one before."""
    left = load.records

    async def send(queue: Any) -> None:
        nonlocal left
        while left > 0:
            left -= load.batch
            await queue.produce(values(load.batch))

    async with connected(connect, load.producers) as queues:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*map(send, queues))
        return load.records / (asyncio.get_running_loop().time() - began)


class RecordLog:
    """A stack whose records are in PostgreSQL, or in the topics of `broker`."""

    def __init__(self, stack: Stack, broker: Kafka | None = None) -> None:
        self._stack = stack
        self._broker = broker

    async def run(self, load: Load, *, keyed: bool = False, topic: str = "") -> Run:
        """One run. `keyed`: each produce has an Idempotency-Key. `topic`: one with records; a new one has none."""
        topic = topic or new_name()

        def connect() -> Awaitable[ShareQueue]:
            return ShareQueue.connect(self._stack.url, topic, keyed=keyed)

        await end_to_end(connect, VALUES, 500, batch=100)  # a warm-up, which also makes the topic
        if not load.producers:
            await produce(connect, VALUES, load._replace(producers=1))
        before = self._cpu_seconds()
        if load.consumers:
            rate = await end_to_end(connect, VALUES, **load._asdict())
        else:
            rate = await produce(connect, VALUES, load)
        used = self._cpu_seconds()
        return Run(rate, {name: 1e6 * (used[name] - before[name]) / load.records for name in used})

    def _cpu_seconds(self) -> dict[str, float]:
        assert self._stack.postgres is not None
        assert self._stack.redis is not None
        found = {
            **{service.name: threads_cpu_seconds(service.pid) for service in self._stack.services},
            "PostgreSQL": family_cpu_seconds(self._stack.postgres.pid),
            "Redis": cpu_seconds(self._stack.redis.pid),
            CLIENTS: time.process_time(),
        }
        if self._broker is None:
            return {**found, ALL: sum(found.values())}
        found["Kafka"] = cpu_seconds(self._broker.pid)
        return {**found, ALL: sum(found.values()), COMPILER: threads_cpu_seconds(self._broker.pid, "Compiler")}


async def native(broker: Kafka, load: Load, commit: str) -> Run:
    """A run of Kafka's producer and share consumer. Their JVM starts with each run, and its start does not count."""
    before = cpu_seconds(broker.pid)
    rate, clients_us = await asyncio.to_thread(
        kafkas, broker, load.records, commit, "beside" if load.producers else "before"
    )
    broker_us = 1e6 * (cpu_seconds(broker.pid) - before) / load.records
    return Run(rate, {"Kafka": broker_us, CLIENTS: clients_us, ALL: broker_us + clients_us})


async def fill(broker: Kafka, records: int, tell: Callable[[int], None]) -> None:
    """Write the backlog with one producer, in batches of BATCH_BYTES."""
    broker.create_topic(BACKLOG, 1)
    options = {"acks": "all", "max_batch_size": BATCH_BYTES, "max_request_size": 2 * BATCH_BYTES}
    async with AIOKafkaProducer(bootstrap_servers=broker.address, **options) as producer:
        written = 0
        while written < records:
            batch = producer.create_batch()
            for value in VALUES(min(AT_ONCE, records - written)):
                if batch.append(key=None, value=f'"{value}"'.encode(), timestamp=None) is None:
                    break
                written += 1
            await (await producer.send_batch(batch, BACKLOG, partition=0))
            tell(written)
