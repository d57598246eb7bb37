"""`python -m bench.gateways`: one hot partition with four groups, through one gateway and through two.

Each of two gateways leads two groups, and clients spread evenly over both. So half of all fetches and acknowledgements
are passed on, unless the clients call the leader that answers name. The program also prints the CPU of a call that its
gateway serves, and of a call that is passed on, over both gateways.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console
from rich.table import Table
from sharequeue_gateway.cluster.generation import Generation, Node

from bench.processes import cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import PRELOAD_AT_ONCE
from sharequeue.http.calling.caller import Client
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import CreateTopicRequest, Topic
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess, temporary_stack

GROUPS: Final = 4
VALUE: Final = "v" * 98
BATCH: Final = 100


async def make_topic(url: str, records: int) -> Topic:
    """Create a topic of one partition with this many records."""
    name = new_name()
    client = Client(url)
    topic: Topic = await client.call(apis.CREATE_TOPIC, CreateTopicRequest(name=name))
    await client.close()
    queue = ShareQueue(url, name)
    for _ in range(records // PRELOAD_AT_ONCE):
        await queue.produce([VALUE] * PRELOAD_AT_ONCE)
    await queue.close()
    return topic


def named_groups(topic: Topic, gateways: list[ServiceProcess]) -> dict[str, ServiceProcess]:
    """Group ids and their leaders: each gateway leads the same number."""
    generation = Generation(1, tuple(Node(f"gateway-{place}", "") for place in range(len(gateways))))
    groups: dict[str, ServiceProcess] = {}
    number = 0
    while len(groups) < GROUPS:
        group = f"{topic.name}-{number}"
        leader = generation.leader_of(SharePartitionKey(group, topic.topic_id, 0)).node_id
        gateway = gateways[int(leader.removeprefix("gateway-"))]
        if list(groups.values()).count(gateway) < GROUPS // len(gateways):
            groups[group] = gateway
        number += 1
    return groups


async def consume(url: str, topic: str, group: str, records: int, *, follow: bool = False) -> None:
    queue = ShareQueue(url, topic, group, follow=follow)
    done = 0
    while done < records:
        count, token = await queue.fetch(BATCH)
        await queue.acknowledge(token)
        done += count
    await queue.close()


async def throughput(gateways: list[ServiceProcess], records: int, *, follow: bool = False) -> float:
    """Records per second that four groups fetch and acknowledge, two consumers each."""
    topic = await make_topic(gateways[0].url, records)
    groups = named_groups(topic, gateways)
    started = time.perf_counter()
    await asyncio.gather(
        *(
            consume(gateways[place % len(gateways)].url, topic.name, group, records // 2 - BATCH, follow=follow)
            for group in groups
            for place in range(2)
        )
    )
    return GROUPS * (records - 2 * BATCH) / (time.perf_counter() - started)


async def cpu_per_cycle(gateways: list[ServiceProcess], records: int) -> dict[str, float]:
    """CPU of all gateways in ms for a fetch and an acknowledgement of 100 records, served at once and passed on."""
    topic = await make_topic(gateways[0].url, records)
    groups = named_groups(topic, gateways)
    costs = {}
    for what, through in (("served there", 0), ("passed on", 1)):
        group = next(name for name, leader in groups.items() if leader is gateways[0])
        del groups[group]
        before = sum(cpu_seconds(gateway.pid) for gateway in gateways)
        await consume(gateways[through].url, topic.name, group, records)
        costs[what] = 1000 * (sum(cpu_seconds(gateway.pid) for gateway in gateways) - before) / (records / BATCH)
    return costs


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--records", default=40_000, show_default=True, help="in the partition; each group reads them all")
def main(rounds: int, records: int) -> None:
    """Measure one hot partition through one gateway and through two, and print medians."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    followed: list[float] = []
    costs: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count, measured in rates.items():
            with (
                tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
                temporary_stack(Path(directory), gateways=count) as stack,
            ):
                gateways = [service for service in stack.services if service.name.startswith("gateway")]
                measured.append(uvloop.run(throughput(gateways, records)))
                if count > 1:
                    followed.append(uvloop.run(throughput(gateways, records, follow=True)))
                    for what, cost in uvloop.run(cpu_per_cycle(gateways, records)).items():
                        costs.setdefault(what, []).append(cost)
    table = Table(title="one partition, four groups, eight consumers, batches of 100: medians")
    table.add_column("measured")
    table.add_column("", justify="right")
    one, two = (statistics.median(rates[count]) for count in (1, 2))
    table.add_row("one gateway, records/s", f"{one:,.0f}")
    table.add_row("two gateways, records/s", f"{two:,.0f}")
    table.add_row("ratio", f"{two / one:.2f}")
    following = statistics.median(followed)
    table.add_row("two gateways, clients call the leader, records/s", f"{following:,.0f}")
    table.add_row("ratio", f"{following / one:.2f}")
    for what, found in costs.items():
        table.add_row(f"gateways' CPU for fetch and acknowledge, {what}, ms", f"{statistics.median(found):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
