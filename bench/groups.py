"""`python -m bench.groups`: 10,000 groups of ten share-partitions each, initialised and described.

It prints time and CPU per group for the first and the second half of the groups: if both are equal, the cost is linear.
Then it prints the CPU at rest, the memory of each service and the rows in PostgreSQL.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import asyncpg
import click
import uvloop
from rich.console import Console
from rich.table import Table

from bench.processes import cpu_seconds, family_cpu_seconds, resident_bytes
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import FetchRequest
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue.stack.stack import Stack, temporary_stack
from sharequeue_http.calling.caller import Client

AT_ONCE: Final = 16
AT_REST_S: Final = 10
TABLES: Final = (
    "groups.share_groups",
    "groups.share_group_topics",
    "share_state.share_partitions",
    "share_state.share_records",
)


async def for_each(groups: range, work: Callable[[int], Awaitable[None]]) -> float:
    """Call `work` for all groups, `AT_ONCE` at a time. Returns: seconds."""
    left = iter(groups)

    async def worker() -> None:
        for group in left:
            await work(group)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return time.perf_counter() - started


async def rows(url: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    counts = {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}
    await connection.close()
    return counts


def cpu_of(stack: Stack) -> dict[str, float]:
    """CPU seconds of each service so far, with all processes of PostgreSQL as one."""
    assert stack.postgres is not None
    assert stack.redis is not None
    return {
        **{service.name: cpu_seconds(service.pid) for service in stack.services},
        "PostgreSQL": family_cpu_seconds(stack.postgres.pid),
        "Redis": cpu_seconds(stack.redis.pid),
    }


async def measure(stack: Stack, groups: int, partitions: int) -> None:
    assert stack.postgres is not None
    client = Client(stack.url, deadline_s=120)
    await client.call(apis.CREATE_TOPIC, CreateTopicRequest(name="bench", partitions=partitions))

    async def initialise(group: int) -> None:
        request = FetchRequest(topics=["bench"], member_id="m", max_wait_ms=0)
        await client.call(apis.FETCH_RECORDS, request, path={"group": f"group-{group}"})

    async def describe(group: int) -> None:
        path = {"group": f"group-{group}"}
        await client.call(apis.DESCRIBE_SHARE_GROUP, path=path)
        await client.call(apis.LIST_SHARE_GROUP_OFFSETS, path=path)

    table = Table(title=f"{groups:,} groups of {partitions} share-partitions")
    for column in ("measured", "first half", "second half"):
        table.add_column(column, justify="left" if column == "measured" else "right")
    halves = (range(groups // 2), range(groups // 2, groups))
    for name, work in (("initialise", initialise), ("describe and list offsets", describe)):
        seconds, used = [], [cpu_of(stack)]
        for half in halves:
            seconds.append(await for_each(half, work))
            used.append(cpu_of(stack))
        table.add_row(f"{name}, s", *[f"{some:.1f}" for some in seconds])
        for process in used[0]:
            costs = [1000 * (after[process] - before[process]) for before, after in pairwise(used)]
            of_group = [f"{cost / len(half):.2f}" for cost, half in zip(costs, halves, strict=True)]
            table.add_row(f"  CPU of {process} for a group, ms", *of_group)
    before = cpu_of(stack)
    await asyncio.sleep(AT_REST_S)
    for process, seconds_then in cpu_of(stack).items():
        table.add_row(
            f"CPU of {process} at rest, ms/s", "", f"{1000 * (seconds_then - before[process]) / AT_REST_S:.0f}"
        )
    for service in stack.services:
        table.add_row(
            f"memory of the {service.name} at the end, MiB", "", f"{resident_bytes(service.pid) / 2**20:,.0f}"
        )
    for name, count in (await rows(stack.postgres.url)).items():
        table.add_row(f"rows in {name}", "", f"{count:,}")
    await client.close()
    Console().print(table)


@click.command()
@click.option("--groups", default=10_000, show_default=True)
@click.option("--partitions", default=10, show_default=True)
def main(groups: int, partitions: int) -> None:
    """Initialise and describe many groups, and print what each half costs."""
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory)) as stack,
    ):
        uvloop.run(measure(stack, groups, partitions))


if __name__ == "__main__":
    main()
