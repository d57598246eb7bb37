"""`python -m bench.beside outcomes scheduled worker`: W2 beside the same W2 with one thing more, in turns.

    outcomes    one stack; every second group sets `share.outcomes.keep.ms`, so each range that it accepts is a row
    scheduled   two stacks, and one of them has 1,000,000 records that are scheduled for next week
    worker      one stack; every second turn, a worker with an empty function and 32 hands consumes, from its first
                records to its end; the bar is 60 % of W2's rate, so a time of 1.667

Each pair of turns begins with the other side than the pair before. The ratios are of the sums of all turns: 1.03 is a
price of 3 %. The first line of each part compares two sides that are alike, so it shows what is chance. Other programs
on the machine change times; they hardly change the CPU of the services and of PostgreSQL.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import click
import httpx
import uvloop

from bench.__main__ import database
from bench.processes import cpu_seconds, family_cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import end_to_end, random_values
from sharequeue.stack.stack import Stack, temporary_stack
from sharequeue.worker import Worker
from sharequeue.worker.process import Process

VALUES: Final = random_values(98)
REST_S: Final = 2.0
"""Longer than what is written later, such as rows of outcomes, waits for its write."""
SCHEDULE: Final = """
INSERT INTO log.scheduled_records (schedule_id, topic_id, partition, deliver_at_ms, bytes, tail)
SELECT gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 0,
  (extract(epoch FROM now() + interval '7 days') * 1000)::bigint + n, 22, ',"key":null,"value":1}'
FROM generate_series(1, $1::int) n
"""
BATCH: Final = 100
HANDS: Final = 32
KEPT: Final = {"share.outcomes.keep.ms": "86400000"}


class Side:
    """A stack, the settings of the group of each turn, and the costs of all turns so far."""

    def __init__(self, stack: Stack, config: dict[str, str]) -> None:
        self._stack = stack
        self._config = config
        self.records = 0
        self.wall_s = self.cpu_s = 0.0

    def _cpu_s(self) -> float:
        assert self._stack.postgres is not None
        pids = {service.pid for service in self._stack.services}
        return sum(map(cpu_seconds, pids)) + family_cpu_seconds(self._stack.postgres.pid)

    async def turn(self, records: int) -> None:
        queue = new_name()
        async with httpx.AsyncClient(base_url=self._stack.url) as client:
            path = f"/v1/share-groups/{queue}/config"
            (await client.patch(path, json={"config": self._config})).raise_for_status()
        await self._rate(queue, 500)
        before = self._cpu_s()
        rate = await self._rate(queue, records)
        await asyncio.sleep(REST_S)
        self.cpu_s += self._cpu_s() - before
        self.wall_s += records / rate
        self.records += records

    async def _rate(self, queue: str, records: int) -> float:
        return await end_to_end(lambda: ShareQueue.connect(self._stack.url, queue), VALUES, records, batch=BATCH)


class WorkerSide(Side):
    """A worker consumes, in place of one client."""

    async def _rate(self, queue: str, records: int) -> float:
        app, left, ready = Worker(self._stack.url, set_retries=False), BATCH + records, asyncio.Event()

        @app.task(queue, group=queue, concurrency=HANDS)
        async def count(_: str) -> None:
            nonlocal left
            left -= 1
            if left == records:
                ready.set()
            if not left:
                process.stop()

        process = Process(app, grace_s=30)
        producer = await ShareQueue.connect(self._stack.url, queue)
        async with asyncio.TaskGroup() as group:
            group.create_task(process.run())
            await producer.produce(VALUES(BATCH))
            await ready.wait()
            began = time.perf_counter()
            for _ in range(0, records, BATCH):
                await producer.produce(VALUES(BATCH))
        seconds = time.perf_counter() - began
        await producer.close()
        return records / seconds


async def compare(title: str, plain: Side, more: Side, pairs: int, records: int) -> None:
    for number in range(pairs):
        for side in (plain, more) if number % 2 else (more, plain):
            await side.turn(records)
    click.echo(
        f"{title}: {plain.records / plain.wall_s:,.0f} and {more.records / more.wall_s:,.0f} records a second, "
        f"time {more.wall_s / plain.wall_s:.3f}; CPU of a record {1e6 * plain.cpu_s / plain.records:.1f} and "
        f"{1e6 * more.cpu_s / more.records:.1f} us, {more.cpu_s / plain.cpu_s:.3f}"
    )


async def fill(stack: Stack, scheduled: int) -> None:
    assert stack.postgres is not None
    async with database(stack.postgres.url) as connection:
        await connection.execute(SCHEDULE, scheduled)
        await connection.execute("VACUUM ANALYZE log.scheduled_records")
        await connection.execute("CHECKPOINT")


async def run(part: str, one: Stack, other: Stack, pairs: int, records: int, scheduled: int) -> None:
    another, config = (other, {}) if part == "scheduled" else (one, KEPT if part == "outcomes" else {})
    await compare(f"{part}, alike", Side(one, {}), Side(another, {}), pairs, records)
    if part == "scheduled":
        await fill(other, scheduled)
    kind = WorkerSide if part == "worker" else Side
    await compare(part, Side(one, {}), kind(another, config), pairs, records)


@click.command()
@click.argument("parts", nargs=-1, required=True, type=click.Choice(("outcomes", "scheduled", "worker")))
@click.option("--pairs", default=15, show_default=True)
@click.option("--records", default=30_000, show_default=True, help="of a turn")
@click.option("--scheduled", default=1_000_000, show_default=True)
def main(parts: tuple[str, ...], pairs: int, records: int, scheduled: int) -> None:
    """Compare W2 without and with the named things."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as home:
        for part in parts:
            with (
                temporary_stack(Path(home) / f"{part}-1", one_process=True) as one,
                temporary_stack(Path(home) / f"{part}-2", one_process=True) as other,
            ):
                began = time.monotonic()
                uvloop.run(run(part, one, other, pairs, records, scheduled))
                click.echo(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
