"""Appends with keys through two gateways, while these and the broker are killed and paused, as real processes."""

import asyncio
import itertools
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from sharequeue.repeats import Every
from sharequeue.stack.stack import Stack, temporary_stack
from sharequeue_kafka.cluster import Place
from tests.chaos.checker import produced_is_kept, report
from tests.chaos.clients import Gateways, Producer
from tests.chaos.history import History, Outcome
from tests.chaos.lives import Known
from tests.chaos.nemesis import BROKER, Nemesis, Step
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, read

CLIENTS: Final = 16
TOPICS: Final = {"orders": 3}
PAUSE_S: Final = 4.0
"""Longer than another gateway, and a repeat, wait before they fence the one that has begun."""
DEADLINE_S: Final = 240  # for a hang


def blows(seed: int, count: int) -> list[Step]:
    """Kill or pause one process after the other: of three, each once."""
    draw = random.Random(f"blows {seed}")
    steps: list[Step] = []
    while len(steps) < count:
        victims = ["gateway", "gateway 2", f"{BROKER}1"]
        draw.shuffle(victims)
        for victim in victims:
            action = draw.choice(("kill", "pause"))
            steps.append(
                Step(draw.uniform(0, 1), victim, action, draw.uniform(0, PAUSE_S if action == "pause" else 0.5))
            )
    return steps[:count]


class Appending:
    """One run. `history` has each try with its answer, and in the end what is in the log."""

    def __init__(self, stack: Stack, brokers: Brokers, seed: int) -> None:
        self._stack, self._brokers = stack, brokers
        self._gateways = [Gateways(stack.urls, f"{number} {seed}") for number in range(CLIENTS)]
        self.history = History(limit=1, lock_s=0, groups=(), in_kafka=True)
        self.nemesis = Nemesis(stack, self.history, brokers)
        values = itertools.count()
        self._clients = [
            Producer(f"c{number}-{seed}", gateways, self.history, TOPICS, values, keyed=1)
            for number, gateways in enumerate(self._gateways)
        ]

    async def run(self, steps: list[Step]) -> None:
        topic_ids = {}
        for topic, partitions in TOPICS.items():
            body = {"name": topic, "partitions": partitions}
            made = await self._gateways[0].until_answered("POST", "/v1/topics", body)
            topic_ids[topic] = made.document["topic_id"]
        supervising = asyncio.create_task(self.nemesis.supervise())
        async with asyncio.TaskGroup() as appending:
            for client in self._clients:
                appending.create_task(client.run())
            for step in steps:
                await self.nemesis.run([step])
            for client in self._clients:
                client.stopping = True
        supervising.cancel()
        async with cluster_of(self._brokers) as cluster:
            for topic, topic_id in topic_ids.items():
                for partition in range(TOPICS[topic]):
                    records = await read(cluster, Place(topic_id, partition), committed=True)
                    self.history.log[topic, partition] = {each.offset: int(each.value or b"") for each in records}
        for gateways in self._gateways:
            await gateways.close()


async def until_settled(database_url: str) -> None:
    """Wait until the sweep has settled every append."""
    connection = await asyncpg.connect(database_url)
    async with asyncio.timeout(DEADLINE_S):
        async for _ in Every(0.1, at_once=True):
            if await connection.fetchval("SELECT count(*) FROM log.append_intents") == 0:
                break
    await connection.close()


@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_a_key_appends_once_while_gateways_and_broker_are_killed_and_paused(
    kafka: Brokers, tmp_path: Path, database_url: str, new_redis: Callable[[], str], seed: int, count: int
) -> None:
    stores = {"postgres_url": database_url, "redis_url": new_redis(), "kafka": kafka.address}
    steps = blows(seed, count)

    async def play(stack: Stack) -> Appending:
        run = Appending(stack, kafka, seed)
        await run.run(steps)
        await until_settled(database_url)
        return run

    with temporary_stack(tmp_path / "data", **stores, gateways=2) as stack:
        run = asyncio.run(play(stack))
    history, tries = run.history, run.history.produced
    requests = {one.values for one in tries}
    answered = {one.values for one in tries if one.outcome is Outcome.OK}
    print(
        f"seed {seed}: {len(history.troubles)} blows, {len(requests)} requests, {len(tries)} tries, "
        f"{sum(map(len, history.log.values()))} records"
    )
    assert len(history.troubles) >= count
    assert requests == answered
    violations = list(produced_is_kept(Known(history)))
    assert not violations, f"seed {seed}: {report(history, violations)}\n" + "\n".join(kafka.skipped_ends())
    assert not run.nemesis.complaints, "\n".join(run.nemesis.complaints)


def test_no_other_program_takes_the_port_of_a_broker_that_was_killed(kafka: Brokers) -> None:
    host, port = kafka.address.split(":")
    kafka.kill(1)
    try:
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind((host, int(port)))
    finally:
        kafka.start(1)
