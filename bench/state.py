"""`python -m bench.state`: what 10,000 delayed single records cost, through the whole stack,
beside a queue without them.

    settle        ten workers fetch and accept one record each, again and again, in short turns: in a share-partition
                  with nothing else, then in one with 10,000 delayed records of five reasons of 1,024 characters each,
                  and so on. The sums of all turns are compared, so neither a busy machine nor one snapshot decides:
                  CPU, WAL, time
    memory        what the loaded state adds to the memory of services that have just started
    first-fetch   both services are killed; what the first fetch after that takes
    stops         how long a process that loads the state stops its event loop

`python -m bench.state memory stops` measures these two alone. `stops` comes last: it takes the share-partition from its
gateway. Each number stands beside its bar, if it has one. Exit code 1: a bar does not hold. Other programs on the
machine change times; they hardly change CPU, bytes and memory.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import uvloop
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table
from sharequeue_gateway.leader.loading.paged_state import restored_from_pages

from bench.processes import resident_bytes
from bench.single_records import HOUR_MS, PRUNE_MS, SERVICES, Costs, Workers
from bench.stops import Pinger, longest_stop
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.slices import Slices
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack

TOKEN: Final = "a token of the cluster that only its services know"
NONE, DELAYED = "none", "delayed"
WARM_UP: Final = 2
PARTS: Final = ("settle", "memory", "first-fetch", "stops")


class Row(NamedTuple):
    """`most`: the bar of the number with delays, or of its ratio to the one without if `times`."""

    measured: str
    none: float | None
    delayed: float
    most: float | None = None
    times: bool = False

    @property
    def compared(self) -> float:
        return self.delayed / self.none if self.times and self.none else self.delayed

    @property
    def holds(self) -> bool:
        return self.most is None or self.compared <= self.most

    def cells(self) -> tuple[str, ...]:
        bar, holds = "", ""
        if self.most is not None:
            bar = f"{self.compared:.3f} of <= {self.most} x" if self.times else f"<= {self.most:,}"
            holds = "yes" if self.holds else "NO"
        return self.measured, "" if self.none is None else f"{self.none:,.2f}", f"{self.delayed:,.2f}", bar, holds


class Bench:
    """Two queues on a stack, and the parts that measure them."""

    def __init__(self, stack: Stack, workers: Workers, key: SharePartitionKey, turns: int, settled: int) -> None:
        """`key`: the share-partition with the delayed records."""
        self._stack = stack
        self._workers = workers
        self._key = key
        self._turns = turns
        self._settled = settled

    async def part(self, name: str) -> list[Row]:
        if name == "settle":
            return await self._settling()
        if name == "memory":
            return await self._memory()
        return await self._first_fetch() if name == "first-fetch" else await self._stops()

    async def _settling(self) -> list[Row]:
        """The costs of settling, turn by turn."""
        workers = self._workers
        costs = {NONE: Costs(), DELAYED: Costs()}
        for turn in range(self._turns):
            for topic in (NONE, DELAYED) if turn % 2 else (DELAYED, NONE):
                await workers.turn(topic, self._settled, costs[topic])
        none, delayed = costs[NONE], costs[DELAYED]

        def each(number: Callable[[Costs], float]) -> tuple[float, float]:
            return number(none) / none.settled, number(delayed) / delayed.settled

        rows = [
            Row(f"CPU of {name} for a record, ms", *each(lambda of, name=name: 1000 * of.cpu_s[name]))  # type: ignore[misc]
            for name in none.cpu_s
        ]
        return [
            *rows,
            Row("CPU of the three for a record, ms", *each(lambda of: 1000 * sum(of.cpu_s.values())), 1.3, True),
            Row("WAL of a record, bytes", *each(lambda of: of.wal_bytes), 1.1, True),
            Row("full pages in the WAL for 1,000 records", *each(lambda of: 1000 * of.full_pages)),
            Row("p50 of an acknowledgement, ms", none.p(50), delayed.p(50)),
            Row("p99 of an acknowledgement, ms", none.p(99), delayed.p(99), 1.3, True),
        ]

    async def _memory(self) -> list[Row]:
        """What the loaded state adds to the memory of freshly started services."""
        grown = {}
        for topic in (NONE, DELAYED):
            for name in SERVICES:
                self._stack.service(name).kill()
            assert self._stack.redis is not None
            async with Redis.from_url(self._stack.redis.url) as redis:
                await redis.flushall()  # it lists share-partitions to load, in use or not
            for name in reversed(SERVICES):
                await restarted(self._stack.service(name))
            await self._settle_one(topic)
            grown[topic] = [resident_bytes(self._stack.service(name).pid) / 2**20 for name in SERVICES]
        return [
            Row(f"memory of the {name}, more than without, MiB", None, delayed - none, 40)
            for name, none, delayed in zip(SERVICES, grown[NONE], grown[DELAYED], strict=True)
        ]

    async def _first_fetch(self) -> list[Row]:
        """How long the first fetch takes after both services were killed, and what it stops."""
        services = [self._stack.service(name) for name in SERVICES]
        for service in reversed(services):
            await restarted(service)
        pingers = [Pinger(service.url) for service in services]
        for pinger in pingers:
            pinger.start()
        before, cpu = time.perf_counter(), dict(self._workers.cpu())
        await self._settle_one(DELAYED)
        loaded_s = time.perf_counter() - before
        used = {name: seconds - cpu[name] for name, seconds in self._workers.cpu()}
        for pinger in pingers:
            pinger.ended.set()
            await asyncio.to_thread(pinger.join)
        return [
            Row("first fetch after a crash of both, settled, s", None, loaded_s, 1.5),
            *(Row(f"CPU of {name} in it, s", None, seconds) for name, seconds in used.items()),
            *(
                Row(f"longest /livez of the {name} in it, ms", None, pinger.longest_ms)
                for name, pinger in zip(SERVICES, pingers, strict=True)
            ),
        ]

    async def _stops(self) -> list[Row]:
        """The longest stop of an event loop that loads the state as a gateway does: the one of this process."""
        client = ShareStateClient(self._stack.service("share coordinator").url, cluster_token=TOKEN)
        key = self._key
        now_ms = time.time_ns() // 1_000_000

        async def load() -> None:
            page = (await client.read(key.group_id, [key], 1 << 40))[key]
            config = ShareGroupConfig(dead_letter_topic_name="")
            await restored_from_pages(
                client,
                key,
                page,
                config,
                start_offset=page.start_offset or 0,
                leader_epoch=1 << 40,
                locks=[],
                now_ms=now_ms,
                slices=Slices(),
            )

        gc.freeze()  # as the services do: what this program has made is not looked at in the middle of a load
        cpu = time.process_time()
        stop, used = await longest_stop(load)
        cpu = time.process_time() - cpu
        await client.close()
        return [
            Row("CPU of a load in a process of its own, s", None, cpu, 0.2),
            Row("longest stop of its loop, ms", None, stop),
            Row("most CPU in one stop, ms", None, used, 20),
        ]

    async def _settle_one(self, topic: str) -> None:
        await self._workers.settle(topic, "m", [await self._workers.fetch(topic, "m", 1) | {"type": "accept"}])


async def restarted(service: ServiceProcess) -> None:
    service.kill()
    service.start()
    while not service.ready():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)


async def measure(stack: Stack, parts: Sequence[str], delayed: int, turns: int, settled: int) -> bool:
    """Print what each part measures, when it is over. Returns: whether every bar holds."""
    console = Console(width=130)
    workers = Workers(stack)
    holds = True
    before = time.monotonic()

    def passed() -> str:
        nonlocal before
        passed_s, before = time.monotonic() - before, time.monotonic()
        return f"{passed_s:,.0f} s"

    ready = (turns + WARM_UP) * settled + 100
    await workers.prepare(NONE, 0, ready)
    key = await workers.prepare(DELAYED, delayed, ready)
    for turn in range(WARM_UP):
        for topic in (NONE, DELAYED):
            await workers.turn(topic, settled, Costs())  # pays for what filling left behind, its snapshot among it
        if turn == 0:
            await workers.begin()
    console.print(f"prepared in {passed()}")
    bench = Bench(stack, workers, key, turns, settled)
    for part in parts:
        rows = await bench.part(part)
        table = Table(title=f"{part}: {passed()}", title_justify="left")
        for column in ("measured", "none", "delayed", "bar", "holds"):
            table.add_column(column, justify="left" if column == "measured" else "right")
        for row in rows:
            table.add_row(*row.cells())
        console.print(table)
        holds = holds and all(row.holds for row in rows)
    await workers.close()
    return holds


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--delayed", default=10_000, show_default=True)
@click.option("--turns", default=6, show_default=True, help="Turns of each queue.")
@click.option("--settled", default=3_000, show_default=True, help="Records settled in one turn.")
def main(parts: tuple[str, ...], delayed: int, turns: int, settled: int) -> None:
    """Settle records beside delayed ones and without, load them after a crash, and print what that costs.

    PARTS: what to measure. Default: all of it.
    """
    settings = {f"SHAREQUEUE_{name}_CLUSTER_TOKEN": TOKEN for name in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")}
    settings["SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS"] = str(HOUR_MS)  # a turn of the other queue may take minutes
    settings["SHAREQUEUE_SHARE_COORDINATOR_PRUNE_INTERVAL_MS"] = str(PRUNE_MS)
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory), settings=settings) as stack,
    ):
        holds = uvloop.run(
            measure(stack, [part for part in PARTS if part in (parts or PARTS)], delayed, turns, settled)
        )
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
