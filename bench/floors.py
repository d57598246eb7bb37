"""`python -m bench.floors`: what the readers of the log cost: a sweep of a topic with many groups,
and raises of floors.

One topic of 50 partitions that 2,000 groups read: 100,000 rows. A gateway's own code sweeps it in this process, once
with nothing to remove and once with something in every partition, then raises one floor again and again, as a gateway
does in W2 (one share-partition, every 10 s), then all floors at once.
"""

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import click
import httpx
import uvloop
from rich.console import Console
from rich.table import Table
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.record_log.removing.retaining import Retaining
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from bench.processes import family_cpu_seconds
from bench.stops import longest_stop
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack, temporary_stack

BATCHES: Final = 6
HOLD_MS: Final = 7 * 24 * 3_600_000
INTERVAL_S: Final = 10
RAISES: Final = 300
KEEP: Final = RetentionRule(retention_ms=0, keep=True)


class Cost(NamedTuple):
    wall_ms: float
    cpu_here_ms: float
    cpu_postgres_ms: float
    stop_ms: float
    stop_cpu_ms: float


async def cost_of(stack: Stack, work: Callable[[], Awaitable[Any]]) -> Cost:
    assert stack.postgres is not None
    before, here, there = time.perf_counter(), time.process_time(), family_cpu_seconds(stack.postgres.pid)
    stop, stop_cpu = await longest_stop(work)
    return Cost(
        1000 * (time.perf_counter() - before),
        1000 * (time.process_time() - here),
        1000 * (family_cpu_seconds(stack.postgres.pid) - there),
        stop,
        stop_cpu,
    )


async def filled(stack: Stack, groups: int, partitions: int) -> str:
    """A topic with a few batches in each partition, and its readers. Returns: its id."""
    assert stack.postgres is not None
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as client:
        made = (await client.post("/v1/topics", json={"name": "wide", "partitions": partitions})).json()
        for _ in range(BATCHES):
            for partition in range(partitions):
                records = {"records": [{"value": 1, "partition": partition}] * 10}
                (await client.post("/v1/topics/wide/records", json=records)).raise_for_status()
    connection = await asyncpg.connect(stack.postgres.url)
    await connection.execute(
        """INSERT INTO log.readers (topic_id, partition, group_id, state_epoch, floor, hold_ms)
           SELECT $1::uuid, p, 'group-' || g, 1, 0, $4 FROM generate_series(0, $2 - 1) p, generate_series(1, $3) g""",
        made["topic_id"],
        partitions,
        groups,
        HOLD_MS,
    )
    await connection.execute("ANALYZE log.readers")
    await connection.close()
    topic_id: str = made["topic_id"]
    return topic_id


async def measure(stack: Stack, groups: int, partitions: int) -> None:
    assert stack.postgres is not None
    topic_id = await filled(stack, groups, partitions)
    database = await LogDatabase.open(stack.postgres.url)
    readers, retaining = Readers(database.query), Retaining(database.query)
    now_ms = time.time_ns() // 1_000_000 + 60_000
    removed: list[int] = []

    async def sweep() -> None:
        removed.append(len(await retaining.sweep(topic_id, range(partitions), KEEP, now_ms)))

    def floor(group: int, partition: int, offset: int) -> Floor:
        return Floor(SharePartitionKey(f"group-{group}", topic_id, partition), 1, offset)

    every = [floor(group, partition, 30) for partition in range(partitions) for group in range(1, groups + 1)]

    async def raise_one() -> None:
        for number in range(RAISES):
            assert await readers.raise_floors([floor(1, 0, number % 20)])

    async def raise_all() -> None:
        assert len(await readers.raise_floors(every)) == len(every)

    await sweep()  # the statements are prepared
    idle = await cost_of(stack, sweep)
    one = await cost_of(stack, raise_one)
    all_of_them = await cost_of(stack, raise_all)
    trimming = await cost_of(stack, sweep)
    assert removed == [0, 0, partitions], removed
    await database.close()

    cpu = (one.cpu_here_ms + one.cpu_postgres_ms) / RAISES
    table = Table(title=f"{groups:,} groups x {partitions} partitions")
    for column in ("measured", "wall, ms", "CPU here, ms", "PostgreSQL, ms", "longest stop, ms", "CPU in it", "asked"):
        table.add_column(column, justify="left" if column == "measured" else "right")
    for name, cost, asked in (
        ("a sweep with nothing to remove", idle, "< 2,000; stop < 200"),
        ("a sweep that trims every partition", trimming, "< 2,000; stop < 200"),
        ("a raise of all floors", all_of_them, ""),
    ):
        table.add_row(name, *(f"{number:,.1f}" for number in cost), asked)
    console = Console(width=130)
    console.print(table)
    console.print(
        f"one raise: {cpu:.2f} ms of CPU; every {INTERVAL_S} s: {cpu / INTERVAL_S / 10:.3f} % of one core (asked: < 1 % of W2)"
    )


@click.command()
@click.option("--groups", default=2000, show_default=True)
@click.option("--partitions", default=50, show_default=True)
def main(groups: int, partitions: int) -> None:
    """Sweep a topic that many groups read, and raise floors."""
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory)) as stack,
    ):
        uvloop.run(measure(stack, groups, partitions))


if __name__ == "__main__":
    main()
