"""`python -m bench.state`: what 100,000 delayed single records cost the share coordinator, and the load of a gateway.

Ten callers settle one record each, again and again, by direct calls: first with nothing delayed, then with all of it.
The share coordinator is then killed, and the state is read and restored as a gateway does it.
"""

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import asyncpg
import click
import httpx
import uvloop
from rich.console import Console
from rich.table import Table
from sharequeue_gateway.share_partition.machine import SharePartition

from bench.processes import cpu_seconds, resident_bytes
from sharequeue.http.caller import Client
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue.protocol.types import Reason, SharePartitionKey, StateAnnotation, StateBatch
from sharequeue.stack.stack import Stack, temporary_stack

TOKEN: Final = "a token of the cluster that only its services know"
CALLERS: Final = 10
FILLED_AT_ONCE: Final = 2000
SETTLED_S: Final = 5
"""Until the first large snapshot is written, and what it holds is pruned."""
NOW_MS: Final = time.time_ns() // 1_000_000
Row = tuple[str, float, float]


async def write(
    client: ShareStateClient,
    key: SharePartitionKey,
    start: int,
    batches: list[StateBatch],
    notes: list[StateAnnotation],
) -> None:
    request = PartitionState(
        partition=0,
        state_epoch=1,
        leader_epoch=1,
        start_offset=start,
        delivery_complete_count=0,
        state_batches=batches,
        annotations=notes,
    )
    (result,) = (await client.state(apis.WRITE_STATE, key.group_id, {key.topic_id: [request]})).values()
    assert result.error_code == 0, result.error_message


async def settle(stack: Stack, client: ShareStateClient, key: SharePartitionKey, first: int, count: int) -> list[float]:
    """Settle `count` records from `first` on. Returns: WAL bytes a record, p50 and p99 in ms, CPU in ms a record."""
    assert stack.postgres is not None
    connection = await asyncpg.connect(stack.postgres.url)
    await connection.execute("CHECKPOINT")
    left = iter(range(first, first + count))
    times: list[float] = []

    async def caller() -> None:
        for offset in left:
            before = time.perf_counter()
            start = offset - CALLERS if first == 0 and offset > CALLERS else 0
            await write(client, key, start, [StateBatch(offset, offset, 2, 1)], [])
            times.append(1000 * (time.perf_counter() - before))

    begin = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
    cpu = cpu_seconds(stack.service("share coordinator").pid)
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    cpu = cpu_seconds(stack.service("share coordinator").pid) - cpu
    wal = await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8", begin)
    await connection.close()
    times.sort()
    return [wal / count, times[len(times) // 2], times[len(times) * 99 // 100], 1000 * cpu / count]


async def fill(client: ShareStateClient, key: SharePartitionKey, count: int) -> None:
    rng = random.Random(7)
    for first in range(0, 2 * count, 2 * FILLED_AT_ONCE):
        offsets = range(first, min(first + 2 * FILLED_AT_ONCE, 2 * count), 2)
        notes = [
            StateAnnotation(
                offset,
                offset,
                1,
                NOW_MS + 100 * rng.randrange(432_000),
                Reason(f"{rng.randrange(100):03} the warehouse did not answer in time"),
            )
            for offset in offsets
        ]
        await write(client, key, 0, [StateBatch(offset, offset, 0, 1) for offset in offsets], notes)


async def longest_stop(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """The longest time in ms for which this event loop did nothing else, and the CPU that this process took in one stop.

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


async def measure(stack: Stack, delayed: int, settled: int) -> None:
    service = stack.service("share coordinator")
    topics = Client(stack.url, deadline_s=60)
    client = ShareStateClient(service.url, cluster_token=TOKEN)
    rows: list[Row] = []
    costs, memory = [], []
    for number, count in enumerate((0, delayed)):
        topic = await topics.call(apis.CREATE_TOPIC, CreateTopicRequest(name=f"bench{number}"))
        key = SharePartitionKey("g", topic.topic_id, 0)
        initial = PartitionState(partition=0, state_epoch=1, start_offset=0)
        await client.state(apis.INITIALIZE_STATE, "g", {key.topic_id: [initial]})
        await client.read("g", [key], 1)
        await fill(client, key, count)
        await settle(stack, client, key, 2 * count, 500)
        await asyncio.sleep(SETTLED_S)
        costs.append(await settle(stack, client, key, 2 * count + 500 if count else 0, settled))
        memory.append(resident_bytes(service.pid) / 2**20)
    names = ("WAL of a settled record, bytes", "p50, ms", "p99, ms", "CPU of a settled record, ms")
    rows += [(name, *pair) for name, *pair in zip(names, *costs, strict=True)]
    rows.append(("memory of the share coordinator, MiB", *memory))

    service.kill()
    service.start()
    while True:
        if service.ready():
            break
        await asyncio.sleep(0.05)
    pinger = Pinger(service.url)
    pinger.start()
    before, cpu = time.perf_counter(), time.process_time()

    async def load() -> None:
        states = await client.read("g", [key], 2)
        read_ms = 1000 * (time.perf_counter() - before)
        state = states[key]
        assert state.error_code == 0, state.error_message
        rows.append(("CPU of reading here, ms", 0, 1000 * (time.process_time() - cpu)))
        await asyncio.to_thread(
            SharePartition.load,
            ShareGroupConfig(dead_letter_topic_name=""),
            state_epoch=1,
            leader_epoch=2,
            start_offset=0,
            state_batches=state.state_batches or [],
            annotations=state.annotations or [],
            now_ms=NOW_MS,
        )
        rows.append(("read after a crash, ms", 0, read_ms))
        rows.append(("CPU of reading and restoring here, ms", 0, 1000 * (time.process_time() - cpu)))

    stop = await longest_stop(load)
    rows.append(("read and restored, ms", 0, 1000 * (time.perf_counter() - before)))
    rows.append(("longest stop of the gateway's loop, ms", 0, stop[0]))
    rows.append(("most CPU in one stop, ms", 0, stop[1]))
    pinger.ended.set()
    await asyncio.to_thread(pinger.join)
    rows.append(("longest /livez of the share coordinator, ms", 0, pinger.longest_ms))
    table = Table(title=f"{delayed:,} delayed single records of 100 reasons")
    for column in ("measured", "none", "delayed"):
        table.add_column(column, justify="left" if column == "measured" else "right")
    for name, none, some in rows:
        table.add_row(name, f"{none:,.2f}" if none else "", f"{some:,.2f}")
    await client.close()
    await topics.close()
    Console().print(table)


@click.command()
@click.option("--delayed", default=100_000, show_default=True)
@click.option("--settled", default=20_000, show_default=True)
def main(delayed: int, settled: int) -> None:
    """Settle records beside delayed ones, and print what each costs."""

    settings = {f"SHAREQUEUE_{name}_CLUSTER_TOKEN": TOKEN for name in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")}
    settings["SHAREQUEUE_SHARE_COORDINATOR_PRUNE_INTERVAL_MS"] = "1000"
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory), settings=settings) as stack,
    ):
        uvloop.run(measure(stack, delayed, settled))


if __name__ == "__main__":
    main()
