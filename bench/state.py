"""`python -m bench.state`: what 100,000 delayed single records cost, through the whole stack,
beside a queue without them.

Ten workers fetch and accept one record each, again and again, in short turns: in a share-partition with nothing else,
then in one with 100,000 delayed records of 100 reasons, and so on. The sums of all turns are compared, so neither a
busy machine nor one snapshot decides. Then the services are killed one after the other, and the state is loaded again.
The last column says what the project asks of each number.
"""

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import click
import httpx
import uvloop
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table
from sharequeue_gateway.leader.loading.paged_state import restored_from_pages

from bench.processes import cpu_seconds, family_cpu_seconds, resident_bytes
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.slices import Slices
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack

TOKEN: Final = "a token of the cluster that only its services know"
WORKERS: Final = 10
AT_ONCE: Final = 2000
HOUR_MS: Final = 3_600_000
SERVICES: Final = ("gateway", "share coordinator")
NONE, DELAYED = "none", "delayed"


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

    def cells(self) -> tuple[str, ...]:
        bar, holds = "", ""
        if self.most is not None:
            bar = f"{self.compared:.3f} of <= {self.most} x" if self.times else f"< {self.most:,}"
            holds = "yes" if self.compared <= self.most else "NO"
        return self.measured, "" if self.none is None else f"{self.none:,.2f}", f"{self.delayed:,.2f}", bar, holds


class Costs:
    """What one of the two queues has cost in all its turns."""

    def __init__(self) -> None:
        self.settled = 0
        self.wal_bytes = 0.0
        self.full_pages = 0
        self.cpu_s: dict[str, float] = {}
        self.times_ms: list[float] = []

    def p(self, percent: int) -> float:
        times = sorted(self.times_ms)
        return times[len(times) * percent // 100]


class Workers:
    """Ten workers that fetch from one topic, in the group of its name, through one gateway."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._http = httpx.AsyncClient(base_url=stack.url, timeout=60)

    async def call(self, method: str, path: str, body: Any) -> Any:
        response = await self._http.request(method, path, json=body)
        assert response.is_success, response.text
        return response.json()

    async def fetch(self, topic: str, member: str, count: int) -> dict[str, Any]:
        body = {
            "topics": [topic],
            "member_id": member,
            "max_records": count,
            "max_wait_ms": 10_000,
            "with_records": False,
        }
        answer = await self.call("POST", f"/v1/share-groups/{topic}/fetch", body)
        (batch,) = answer["batches"]
        return {name: batch[name] for name in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}

    async def settle(self, topic: str, member: str, settled: list[dict[str, Any]]) -> None:
        body = {"member_id": member, "acknowledgements": settled}
        answer = await self.call("POST", f"/v1/share-groups/{topic}/acknowledge", body)
        assert answer["failed_count"] == 0, answer

    async def prepare(self, topic: str, delayed: int, settled: int) -> SharePartitionKey:
        made = await self.call("POST", "/v1/topics", {"name": topic})
        config = {
            "share.partition.max.delayed.records": 2 * delayed + AT_ONCE,
            "share.record.lock.duration.ms": 600_000,
        }
        await self.call("PATCH", f"/v1/share-groups/{topic}/config", config)
        records = {"records": [{"value": 1}] * AT_ONCE}
        for _ in range(0, 2 * delayed + settled + AT_ONCE, AT_ONCE):
            await self.call("POST", f"/v1/topics/{topic}/records", records)
        rng = random.Random(7)
        for _ in range(0, 2 * delayed, AT_ONCE):
            batch = await self.fetch(topic, "filler", AT_ONCE)
            first, last = batch["first_offset"], batch["last_offset"]
            entries = []
            for offset in range(first, last + 1):
                entry = {
                    "topic": topic,
                    "partition": 0,
                    "first_offset": offset,
                    "last_offset": offset,
                    "type": "accept",
                }
                if offset % 2:
                    reason = f"{rng.randrange(100):03} the warehouse did not answer in time"
                    delay_ms = rng.randrange(HOUR_MS, 12 * HOUR_MS)
                    entry |= {"type": "release", "reason": reason, "delay_ms": delay_ms}
                entries.append(entry)
            await self.settle(topic, "filler", entries)
        return SharePartitionKey(topic, made["topic_id"], 0)

    async def checkpoint(self) -> None:
        """One before all turns. Later ones come when PostgreSQL wants them: with one before each turn, every row would
        be removed in a later turn than it was written in, with a full page in the WAL for 80 rows."""
        assert self._stack.postgres is not None
        connection = await asyncpg.connect(self._stack.postgres.url)
        await connection.execute("CHECKPOINT")
        await connection.close()

    async def turn(self, topic: str, count: int, costs: Costs) -> None:
        """Settle `count` records of a topic."""
        assert self._stack.postgres is not None
        connection = await asyncpg.connect(self._stack.postgres.url)
        left = iter(range(count))

        async def work(member: str) -> None:
            for _ in left:
                batch = await self.fetch(topic, member, 1)
                before = time.perf_counter()
                await self.settle(topic, member, [batch | {"type": "accept"}])
                costs.times_ms.append(1000 * (time.perf_counter() - before))

        before = dict(self.cpu())
        begin = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
        pages = await connection.fetchval("SELECT wal_fpi FROM pg_stat_wal")
        await asyncio.gather(*(work(f"worker-{number}") for number in range(WORKERS)))
        costs.wal_bytes += await connection.fetchval(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8", begin
        )
        for name, seconds in self.cpu():
            costs.cpu_s[name] = costs.cpu_s.get(name, 0) + seconds - before[name]
        await asyncio.sleep(0.2)  # PostgreSQL tells its counters late
        costs.full_pages += await connection.fetchval("SELECT wal_fpi FROM pg_stat_wal") - pages
        costs.settled += count
        await connection.close()

    def cpu(self) -> Iterator[tuple[str, float]]:
        for name in SERVICES:
            yield name, cpu_seconds(self._stack.service(name).pid)
        assert self._stack.postgres is not None
        yield "PostgreSQL", family_cpu_seconds(self._stack.postgres.pid)

    async def close(self) -> None:
        await self._http.aclose()


async def restarted(service: ServiceProcess) -> None:
    service.kill()
    service.start()
    while not service.ready():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)


async def longest_stop(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """The longest time in ms for which this event loop did nothing else,
    and the CPU that this process took in one stop.

    The CPU does not depend on what else the machine does.
    """
    longest = used = 0.0

    async def watch() -> None:
        nonlocal longest, used
        while True:
            before, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            longest = max(longest, 1000 * (time.perf_counter() - before))
            used = max(used, 1000 * (time.process_time() - cpu))

    watching = asyncio.create_task(watch())
    await work()
    watching.cancel()
    return longest, used


class Pinger(threading.Thread):
    """Asks a service for a sign of life all the time; knows the longest time that it took."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.longest_ms = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self._url) as client:
            client.get("/livez")
            while not self.ended.is_set():
                before = time.perf_counter()
                client.get("/livez")
                self.longest_ms = max(self.longest_ms, 1000 * (time.perf_counter() - before))


async def compared(workers: Workers, turns: int, settled: int) -> list[Row]:
    """The costs of settling, turn by turn."""
    await workers.checkpoint()
    costs = {NONE: Costs(), DELAYED: Costs()}
    for topic in costs:
        await workers.turn(topic, settled, Costs())  # the first turn pays for what filling left behind
    for turn in range(turns):
        for topic in (NONE, DELAYED) if turn % 2 else (DELAYED, NONE):
            await workers.turn(topic, settled, costs[topic])
    none, delayed = costs[NONE], costs[DELAYED]

    def each(number: Callable[[Costs], float]) -> tuple[float, float]:
        return number(none) / none.settled, number(delayed) / delayed.settled

    rows = [
        Row(f"CPU of {name} for a record, ms", *each(lambda of, name=name: 1000 * of.cpu_s[name]))  # type: ignore[misc]
        for name in none.cpu_s
    ]
    return [
        *rows,
        Row("CPU of the three for a record, ms", *each(lambda of: 1000 * sum(of.cpu_s.values())), 1.1, True),
        Row("WAL of a record, bytes", *each(lambda of: of.wal_bytes), 1.1, True),
        Row("full pages in the WAL for 1,000 records", *each(lambda of: 1000 * of.full_pages)),
        Row("p50 of an acknowledgement, ms", none.p(50), delayed.p(50)),
        Row("p99 of an acknowledgement, ms", none.p(99), delayed.p(99), 1.2, True),
    ]


async def memory(stack: Stack, workers: Workers) -> list[Row]:
    """What the loaded state adds to the memory of freshly started services."""
    grown = {}
    for topic in (NONE, DELAYED):
        for name in SERVICES:
            stack.service(name).kill()
        assert stack.redis is not None
        async with Redis.from_url(stack.redis.url) as redis:
            await redis.flushall()  # it lists share-partitions to load, in use or not
        for name in reversed(SERVICES):
            await restarted(stack.service(name))
        await workers.settle(topic, "m", [await workers.fetch(topic, "m", 1) | {"type": "accept"}])
        grown[topic] = [resident_bytes(stack.service(name).pid) / 2**20 for name in SERVICES]
    return [
        Row(f"memory of the {name}, more than without, MiB", None, delayed - none, 40)
        for name, none, delayed in zip(SERVICES, grown[NONE], grown[DELAYED], strict=True)
    ]


async def loads(stack: Stack, workers: Workers, key: SharePartitionKey) -> list[Row]:
    """How long a load takes after both services were killed, and what it stops."""
    gateway, coordinator = (stack.service(name) for name in SERVICES)
    await restarted(coordinator)
    await restarted(gateway)
    pingers = [Pinger(service.url) for service in (gateway, coordinator)]
    for pinger in pingers:
        pinger.start()
    before, cpu = time.perf_counter(), cpu_seconds(gateway.pid) + cpu_seconds(coordinator.pid)
    batch = await workers.fetch(DELAYED, "m", 1)
    loaded_s = time.perf_counter() - before
    cpu = cpu_seconds(gateway.pid) + cpu_seconds(coordinator.pid) - cpu
    for pinger in pingers:
        pinger.ended.set()
        await asyncio.to_thread(pinger.join)
    await workers.settle(DELAYED, "m", [batch | {"type": "accept"}])

    client = ShareStateClient(coordinator.url, cluster_token=TOKEN)
    now_ms = time.time_ns() // 1_000_000

    async def load() -> None:
        page = (await client.read(key.group_id, [key], 1 << 40))[key]
        config = ShareGroupConfig(dead_letter_topic_name="")
        start = page.start_offset or 0
        await restored_from_pages(
            client,
            key,
            page,
            config,
            start_offset=start,
            leader_epoch=1 << 40,
            locks=[],
            now_ms=now_ms,
            slices=Slices(),
        )

    cpu_here = time.process_time()
    stop, used = await longest_stop(load)
    cpu_here = time.process_time() - cpu_here
    await client.close()
    return [
        Row("first fetch after a crash of both, s", None, loaded_s, 1.5),
        Row("CPU of that fetch in both services, s", None, cpu),
        Row("longest /livez of the gateway in it, ms", None, pingers[0].longest_ms),
        Row("longest /livez of the share coordinator in it, ms", None, pingers[1].longest_ms),
        Row("CPU of a load in this process, s", None, cpu_here),
        Row("longest stop of its loop, ms", None, stop),
        Row("most CPU in one stop, ms", None, used, 50),
    ]


async def measure(stack: Stack, delayed: int, turns: int, settled: int) -> None:
    workers = Workers(stack)
    await workers.prepare(NONE, 0, (turns + 1) * settled)
    key = await workers.prepare(DELAYED, delayed, (turns + 1) * settled)
    rows = await compared(workers, turns, settled)
    rows += await memory(stack, workers)
    rows += await loads(stack, workers, key)
    await workers.close()
    table = Table(
        title=f"{delayed:,} delayed single records of 100 reasons; {turns} x {settled:,} records settled by each"
    )
    for column in ("measured", "none", "delayed", "asked", "holds"):
        table.add_column(column, justify="left" if column == "measured" else "right")
    for row in rows:
        table.add_row(*row.cells())
    Console(width=130).print(table)


@click.command()
@click.option("--delayed", default=100_000, show_default=True)
@click.option("--turns", default=8, show_default=True, help="Turns of each queue.")
@click.option("--settled", default=5_000, show_default=True, help="Records settled in one turn.")
def main(delayed: int, turns: int, settled: int) -> None:
    """Settle records beside delayed ones and without, and print what each costs."""
    settings = {f"SHAREQUEUE_{name}_CLUSTER_TOKEN": TOKEN for name in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")}
    settings["SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS"] = str(HOUR_MS)  # a turn of the other queue may take minutes
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory), settings=settings) as stack,
    ):
        uvloop.run(measure(stack, delayed, turns, settled))


if __name__ == "__main__":
    main()
