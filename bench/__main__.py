"""`make bench`: sharequeue beside PGMQ and Redis Streams, in one run, on one machine and the same PostgreSQL.

The queues take turns in each round, so a slow moment of the machine does not hit one of them alone.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import click
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from bench.queues import Pgmq, RedisStreams, ShareQueue, new_name
from bench.workloads import Connect, Queue, end_to_end, one_by_one, preload
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import temporary_stack

VALUES = {"100 B": "v" * 98, "1 KiB": "v" * 1022}
WORKLOADS = ("W1", "W2", "W2+", "W3", "W4")
Open = Callable[[str], Awaitable[Queue]]


class Peer:
    """A product to measure. `open_queue` makes the queue of a name, and connects to it."""

    def __init__(self, name: str, open_queue: Open) -> None:
        self.name = name
        self._open = open_queue

    def fresh(self) -> Connect:
        """A function that opens connections to one new queue."""
        queue = new_name()
        return lambda: self._open(queue)


async def workload(peer: Peer, name: str, value: str, scale: float, backlog: int) -> dict[str, float]:
    """One run of one workload. Returns: records per second by column."""
    connect = peer.fresh()
    if name == "W1":
        rates = await one_by_one(connect, value, round(1000 * scale))
        return {"W1 send": rates.sends_per_second, "W1 receive+ack": rates.receives_per_second}
    await end_to_end(connect, value, 500, batch=100)  # a warm-up, which also makes the queue
    if name == "W4":
        await preload(connect, value, backlog)
    if name == "W3":
        rate = await end_to_end(connect, value, round(20_000 * scale), batch=10, producers=4, consumers=8)
    else:
        rate = await end_to_end(connect, value, round(60_000 * scale), batch=100, together=name == "W2+")
    return {name: rate}


async def durable_inserts(url: str, seconds: float = 2.0) -> float:
    """Commits per second of single-row INSERTs on one connection: the bound that disk and database set."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS bench_inserts (id bigserial PRIMARY KEY, value text)")
    insert = await connection.prepare("INSERT INTO bench_inserts (value) VALUES ($1)")
    started = time.perf_counter()
    count = 0
    while time.perf_counter() - started < seconds:
        await insert.fetch(VALUES["100 B"])
        count += 1
    await connection.close()
    return count / (time.perf_counter() - started)


async def measure(
    peers: Sequence[Peer], workloads: Sequence[str], sizes: Sequence[str], rounds: int, scale: float, backlog: int
) -> dict[str, dict[str, list[float]]]:
    """Run all rounds, with the peers in turn. Returns: rates by peer and column."""
    rates: dict[str, dict[str, list[float]]] = {peer.name: {} for peer in peers}
    for number in range(rounds):
        for size in sizes:
            for name in workloads:
                for peer in peers:
                    for column, rate in (await workload(peer, name, VALUES[size], scale, backlog)).items():
                        rates[peer.name].setdefault(f"{column} {size}", []).append(rate)
                        Console(stderr=True).print(f"round {number + 1}: {peer.name} {column} {size}: {rate:,.0f}/s")
    return rates


def show(rates: dict[str, dict[str, list[float]]]) -> None:
    """Medians as a table: a row per workload, a column per queue."""
    table = Table(title="records per second, median")
    table.add_column("workload")
    for name in rates:
        table.add_column(name, justify="right")
    for column in next(iter(rates.values())):
        table.add_row(column, *(f"{statistics.median(found[column]):,.0f}" for found in rates.values()))
    Console().print(table)


@click.command()
@click.option("--pgmq", type=click.Path(exists=True, path_type=Path), help="install script of PGMQ (the SQL-only one)")
@click.option("--rounds", default=3, show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="fraction of the records of a full run")
@click.option("--backlog", default=1_000_000, show_default=True, help="records of the backlog in W4")
@click.option("--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS))
@click.option("--size", "sizes", multiple=True, type=click.Choice(list(VALUES)))
@click.option("--only", multiple=True, help="measure only these queues")
@click.option("--output", type=click.Path(path_type=Path), help="write all measurements to this file, as JSON")
def main(
    pgmq: Path | None,
    rounds: int,
    scale: float,
    backlog: int,
    workloads: tuple[str, ...],
    sizes: tuple[str, ...],
    only: tuple[str, ...],
    output: Path | None,
) -> None:
    """Measure sharequeue beside Redis Streams and PGMQ, and print records per second."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory:
        data_dir = Path(directory)
        streams = Redis(data_dir / "streams", append_fsync="always")
        with temporary_stack(data_dir) as stack, contextlib.ExitStack() as after:
            after.callback(streams.stop)
            streams_url = streams.start()
            script = None if pgmq is None else pgmq.read_text()

            async def run() -> dict[str, Any]:
                assert stack.postgres is not None
                peers = await _peers(stack.url, streams_url, stack.postgres.url, script)
                inserts = await durable_inserts(stack.postgres.url)
                Console(stderr=True).print(f"durable single INSERT: {inserts:,.0f}/s on one connection")
                rates = await measure(
                    [peer for peer in peers if not only or peer.name in only],
                    workloads or WORKLOADS,
                    sizes or tuple(VALUES),
                    rounds,
                    scale,
                    backlog,
                )
                return {"durable_inserts_per_second": inserts, "records_per_second": rates}

            result = uvloop.run(run())
            show(result["records_per_second"])
            if output is not None:
                output.write_bytes(msgspec.json.format(msgspec.json.encode(result)))


async def _peers(url: str, streams_url: str, database_url: str, pgmq_script: str | None) -> list[Peer]:
    async def share_queue(name: str) -> Queue:
        return await ShareQueue.connect(url, name)

    async def redis_streams(name: str) -> Queue:
        return await RedisStreams.connect(streams_url, name)

    async def pgmq_queue(name: str) -> Queue:
        return await Pgmq.connect(database_url, name)

    peers = [Peer(ShareQueue.name, share_queue), Peer(RedisStreams.name, redis_streams)]
    if pgmq_script is not None:
        connection = await asyncpg.connect(database_url)
        await connection.execute(pgmq_script)
        await connection.close()
        peers.append(Peer(Pgmq.name, pgmq_queue))
    return peers


if __name__ == "__main__":
    main()
