"""`python -m bench.gateways`: deliveries through one gateway, two and three, from one hot partition and eight topics.

Four producers and twelve consumers of one group, batches of 10, spread evenly over the gateways. *Following* clients
call the leader that answers name; the others stay where they are, and their gateway passes calls on. The stacks run
side by side and take turns. The last two columns are the CPU of all gateways, and of PostgreSQL, for a delivery.
"""

import contextlib
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import uvloop

from bench.processes import cpu_seconds, family_cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import Connect, Values, end_to_end, random_values
from sharequeue.stack.stack import Stack, temporary_stack

GATEWAYS: Final = (1, 2, 3)
PRODUCERS: Final = 4
CONSUMERS: Final = 12
BATCH: Final = 10
TOPICS: Final = {"one partition": 1, "eight topics": 8}


class Run(NamedTuple):
    rate: float
    gateways_us: float
    postgres_us: float


def connections(stack: Stack, topics: list[str], *, follow: bool) -> Connect:
    """Connect clients in turn to the gateways, and to the topics."""
    numbers = iter(range(1 << 30))

    async def connect() -> ShareQueue:
        number = next(numbers)
        topic = topics[number % len(topics)]
        await (await ShareQueue.connect(stack.url, topic)).close()
        return ShareQueue(stack.urls[number % len(stack.urls)], topic, follow=follow)

    return connect


async def deliveries(stack: Stack, topics: int, values: Values, records: int, *, follow: bool) -> Run:
    """Deliver so many records, new ones all the time, and acknowledge them."""
    assert stack.postgres is not None
    pids = [service.pid for service in stack.services if service.name.startswith("gateway")]
    connect = connections(stack, [new_name() for _ in range(topics)], follow=follow)
    await end_to_end(connect, values, 1000, batch=BATCH, producers=max(PRODUCERS, topics), consumers=CONSUMERS)
    gateways, postgres = sum(map(cpu_seconds, pids)), family_cpu_seconds(stack.postgres.pid)
    rate = await end_to_end(
        connect, values, records, batch=BATCH, producers=max(PRODUCERS, topics), consumers=max(CONSUMERS, topics)
    )
    gateways = sum(map(cpu_seconds, pids)) - gateways
    postgres = family_cpu_seconds(stack.postgres.pid) - postgres
    return Run(rate, 1e6 * gateways / records, 1e6 * postgres / records)


@contextlib.contextmanager
def stacks() -> Iterator[dict[int, Stack]]:
    """Start a stack for each number of gateways."""
    with contextlib.ExitStack() as open_stacks:
        yield {
            count: open_stacks.enter_context(
                temporary_stack(
                    Path(open_stacks.enter_context(tempfile.TemporaryDirectory(prefix="sharequeue-bench-"))),
                    gateways=count,
                )
            )
            for count in GATEWAYS
        }


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--records", default=20_000, show_default=True, help="of one run")
def main(rounds: int, records: int) -> None:
    """Measure one hot partition and eight topics through one to three gateways, and print medians."""
    values = random_values(98)
    found: dict[tuple[str, int, bool], list[Run]] = {}
    with stacks() as running:
        for number in range(rounds):
            for what, topics in TOPICS.items():
                for count, stack in running.items():
                    for follow in (False, True)[: 1 if count == 1 else 2]:
                        run = uvloop.run(deliveries(stack, topics, values, records, follow=follow))
                        found.setdefault((what, count, follow), []).append(run)
                        click.echo(f"round {number + 1}: {what}, {count}, {follow=}: {run.rate:,.0f}/s", err=True)
    click.echo("| | gateways | deliveries/s | of one gateway | gateways, µs | PostgreSQL, µs |")
    click.echo("| --- | --- | ---: | ---: | ---: | ---: |")
    for (what, count, follow), runs in found.items():
        rate, gateways_us, postgres_us = (statistics.median(column) for column in zip(*runs, strict=True))
        one = statistics.median(run.rate for run in found[what, 1, False])
        name = f"{count}, following" if follow else str(count)
        click.echo(f"| {what} | {name} | {rate:,.0f} | {rate / one:.2f} | {gateways_us:.0f} | {postgres_us:.0f} |")


if __name__ == "__main__":
    main()
