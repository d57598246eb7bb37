"""`python -m bench.steps`: where the time of one call goes, by process, beside the least that it could take here.

Short turns of all measures alternate, and each number is the median of its turns. The floors are measured on the same
stack in the same run: an empty answer of the gateway's HTTP edge, one durable INSERT, one round trip to Redis.
"""

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import click
import uvloop
from sharequeue_gateway.cluster.redis_client import OwnConnection, redis_client

from bench.processes import threads_cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import end_to_end, random_values
from sharequeue.protocol import apis
from sharequeue.stack.stack import Stack, temporary_stack
from sharequeue_http.calling.caller import Client

CALLS: Final = 50
"""In one turn."""
RECORDS: Final = 5000
"""In one turn of W2."""
VALUES: Final = random_values(98)
PROCESSES: Final = ("client", "gateway", "share coordinator", "PostgreSQL", "Redis")


class Turn(NamedTuple):
    """Microseconds for each call: from its begin to its end, and of CPU in each process."""

    wall: float
    cpu: dict[str, float]


def cpu_of(stack: Stack) -> dict[str, float]:
    """CPU seconds so far of the processes of a stack. A connection of PostgreSQL that has ended does not count."""
    assert stack.postgres is not None
    assert stack.redis is not None
    services = {service.name.replace("service process", "gateway"): service.pid for service in stack.services}
    found = {name: threads_cpu_seconds(pid) for name, pid in services.items() if name in PROCESSES}
    children = Path(f"/proc/{stack.postgres.pid}/task/{stack.postgres.pid}/children").read_text().split()
    postgres = sum(threads_cpu_seconds(int(child)) for child in children)
    return {
        **found,
        "PostgreSQL": postgres,
        "Redis": threads_cpu_seconds(stack.redis.pid),
    }


class Steps:
    """What is measured on one stack, each as a function that makes so many calls."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._topic = new_name()

    async def measures(self) -> dict[str, tuple[int, Callable[[int], Awaitable[Any]]]]:
        """Connect. Returns: by name, the number of calls in a turn, and what makes them."""
        stack = self._stack
        assert stack.postgres is not None
        assert stack.redis is not None
        self._queue = await ShareQueue.connect(stack.url, self._topic)
        self._client = Client(stack.url)
        self._insert = await (await asyncpg.connect(stack.postgres.url)).prepare(
            "INSERT INTO bench_steps (value) VALUES ($1)"
        )
        self._redis = OwnConnection(redis_client(stack.redis.url))
        return {
            "send": (CALLS, self._send),
            "receive and acknowledge": (CALLS, self._receive),
            "W2": (RECORDS, self._batches),
            "floor: an empty answer": (CALLS, self._answer),
            "floor: one durable INSERT": (CALLS, self._commit),
            "floor: one round trip to Redis": (CALLS, self._set),
        }

    async def turn(self, count: int, calls: Callable[[int], Awaitable[Any]]) -> Turn:
        if calls == self._receive:
            await self._queue.produce(VALUES(count))
        before, own, began = cpu_of(self._stack), time.process_time(), time.perf_counter()
        await calls(count)
        wall, own, after = time.perf_counter() - began, time.process_time() - own, cpu_of(self._stack)
        cpu = {"client": own, **{name: after[name] - before[name] for name in after}}
        return Turn(1e6 * wall / count, {name: 1e6 * seconds / count for name, seconds in cpu.items()})

    async def _send(self, count: int) -> None:
        for value in VALUES(count):
            await self._queue.produce([value])

    async def _receive(self, count: int) -> None:
        while count:
            got, token = await self._queue.fetch(1)
            await self._queue.acknowledge(token)
            count -= got

    async def _batches(self, count: int) -> None:
        await end_to_end(lambda: ShareQueue.connect(self._stack.url, f"{self._topic}-w2"), VALUES, count, batch=100)

    async def _answer(self, count: int) -> None:
        for _ in range(count):
            await self._client.relay(apis.LIVEZ)

    async def _commit(self, count: int) -> None:
        for value in VALUES(count):
            await self._insert.fetch(value)

    async def _set(self, count: int) -> None:
        for value in VALUES(count):
            await self._redis.execute([["SET", "bench", value]], 5)


async def measure(stacks: dict[str, Stack], rounds: int) -> dict[tuple[str, str], list[Turn]]:
    """Run all turns, in alternating order. Returns: the turns, by stack and measure."""
    found: dict[tuple[str, str], list[Turn]] = {}
    sides = []
    for side, stack in stacks.items():
        assert stack.postgres is not None
        connection = await asyncpg.connect(stack.postgres.url)
        await connection.execute("CREATE TABLE bench_steps (id bigserial PRIMARY KEY, value text)")
        await connection.close()
        steps = Steps(stack)
        sides.append((side, steps, await steps.measures()))
    for number in range(-2, rounds):  # the first two warm up
        for side, steps, measures in sides if number % 2 else sides[::-1]:
            for name, (count, calls) in measures.items():
                turn = await steps.turn(count, calls)
                if number >= 0:
                    found.setdefault((side, name), []).append(turn)
    return found


def show(found: dict[tuple[str, str], list[Turn]]) -> None:
    """Print the medians as a Markdown table. `waiting`: what is left of the time if each step follows the other."""
    click.echo(f"| µs for each call | wall | {' | '.join(PROCESSES)} | waiting |")
    click.echo(f"| --- |{' ---: |' * (len(PROCESSES) + 2)}")
    for (side, name), turns in found.items():
        wall = statistics.median(turn.wall for turn in turns)
        cpu = {kind: statistics.median(turn.cpu.get(kind, 0.0) for turn in turns) for kind in PROCESSES}
        cells = [f"{wall:,.1f}", *(f"{cpu[kind]:,.1f}" if cpu[kind] >= 0.05 else "" for kind in PROCESSES)]
        waiting = wall - sum(cpu.values())
        cells.append(f"{waiting:,.1f}" if waiting > 0 else "")  # of steps that overlap there is none
        click.echo(f"| {name}, {side} | {' | '.join(cells)} |")


@click.command()
@click.option("--rounds", default=40, show_default=True)
def main(rounds: int) -> None:
    """Measure where the time of a call goes, in one process and in three programs."""
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory) / "up", one_process=True) as stack,
        temporary_stack(Path(directory) / "three") as three,
    ):
        show(uvloop.run(measure({"one process": stack, "three programs": three}, rounds)))


if __name__ == "__main__":
    main()
