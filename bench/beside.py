"""`python -m bench.beside outcomes scheduled`: W2 beside the same W2 with one thing more, in turns.

    outcomes    one stack; every second group sets `share.outcomes.keep.ms`, so each range that it accepts is a row
    scheduled   two stacks, and one of them has 1,000,000 records that are scheduled for next week

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

VALUES: Final = random_values(98)
REST_S: Final = 2.0
"""Longer than what is written later, such as rows of outcomes, waits for its write."""
SCHEDULE: Final = """
INSERT INTO log.scheduled_records (schedule_id, topic_id, partition, deliver_at_ms, bytes, tail)
SELECT gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 0,
  (extract(epoch FROM now() + interval '7 days') * 1000)::bigint + n, 22, ',"key":null,"value":1}'
FROM generate_series(1, $1::int) n
"""
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
        await end_to_end(lambda: ShareQueue.connect(self._stack.url, queue), VALUES, 500, batch=100)
        before = self._cpu_s()
        rate = await end_to_end(lambda: ShareQueue.connect(self._stack.url, queue), VALUES, records, batch=100)
        await asyncio.sleep(REST_S)
        self.cpu_s += self._cpu_s() - before
        self.wall_s += records / rate
        self.records += records


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
    another, config = (one, KEPT) if part == "outcomes" else (other, {})
    await compare(f"{part}, alike", Side(one, {}), Side(another, {}), pairs, records)
    if part == "scheduled":
        await fill(other, scheduled)
    await compare(part, Side(one, {}), Side(another, config), pairs, records)


@click.command()
@click.argument("parts", nargs=-1, required=True, type=click.Choice(("outcomes", "scheduled")))
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
