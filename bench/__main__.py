"""`make bench`: sharequeue beside PGMQ and Redis Streams, in one run, on one machine and the same PostgreSQL.

The queues take turns in each round, so a slow moment of the machine does not hit one of them alone. Before and after
each measurement the program looks whether the machine is idle, and how much time its host gave to other machines. A
round that was disturbed is named and printed, but does not count. If less than two thirds of a row's rounds are clean,
the run does not count: exit code 1.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg
import click
import msgspec
import uvloop

from bench.processes import Machine
from bench.queues import Pgmq, PythonClient, RedisStreams, ShareQueue, new_name
from bench.workloads import (
    Connect,
    Queue,
    Values,
    constant_values,
    end_to_end,
    one_by_one,
    paced,
    preload,
    random_values,
    wake_up,
)
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import temporary_stack

VALUES: Final = {"100 B": random_values(98), "1 KiB": random_values(1022), "constant": constant_values(98)}
CLIENTS: Final = {"W1": 1, "N8": 8, "N32": 32}
SHOWN: Final = ("W1", "W2", "W2+", "W3", "N8", "N32", "paced", "wake-up")
"""The workloads of the first table of docs/benchmarks.md."""
WORKLOADS: Final = (*SHOWN, "W4")
KEYED: Final = ("W1", "W3", "N8", "N32")
"""The workloads that are measured with an Idempotency-Key too."""
ONCE: Final = {"1 KiB": ("W2", "W3"), "constant": ("W2",)}
"""Sizes that are not measured in each workload."""
CLEAN: Final = 2 / 3
BUSY: Final = 0.15
"""Share of the machine that something else may use."""
STOLEN: Final = 0.03
LOOK_S: Final = 0.3
ONE_PROCESS: Final = "one process"

Found = TypeVar("Found")


class Peer(NamedTuple):
    """A product to measure. `open_queue` makes the queue of a name, and connects to it."""

    name: str
    open_queue: Callable[[str], Awaitable[Queue]]
    workloads: Sequence[str] = WORKLOADS
    ours: bool = False
    """Whether it is another way to use sharequeue: its ratio is to `ONE_PROCESS`, and not of it."""

    def fresh(self) -> Connect:
        """A function that opens connections to one new queue."""
        queue = new_name()
        return lambda: self.open_queue(queue)


class Measured(NamedTuple):
    """One measurement of a row: records per second, or milliseconds where the row's name ends so."""

    value: float
    disturbed: str
    """The cause of a disturbance; empty: there was none."""


Rows = dict[str, dict[str, list[Measured]]]
"""Measurements by row, then by peer: one for each round."""


async def workload(peer: Peer, name: str, values: Values, scale: float, backlog: int) -> dict[str, float]:
    """One run of one workload. Returns: records per second, or milliseconds, by row."""
    connect = peer.fresh()
    if name in CLIENTS:
        clients = CLIENTS[name]
        records = round((1000 if clients == 1 else 4000) * scale)
        if clients > 1:
            await one_by_one(connect, values, 200, clients)
        rates = await one_by_one(connect, values, records, clients)
        called = name if clients == 1 else f"{clients} clients"
        return {
            f"{called} send": rates.sends_per_second,
            f"{called} receive and acknowledge": rates.receives_per_second,
        }
    await end_to_end(connect, values, 500, batch=100)  # a warm-up, which also makes the queue
    if name in ("paced", "wake-up"):
        run = paced if name == "paced" else wake_up
        times = await run(connect, values, round((2000 if name == "paced" else 300) * scale))
        return {f"{name} p50, ms": statistics.median(times), f"{name} p99, ms": statistics.quantiles(times, n=100)[98]}
    if name == "W4":
        await preload(connect, values, backlog)
    if name == "W3":
        rate = await end_to_end(connect, values, round(20_000 * scale), batch=10, producers=4, consumers=8)
    else:
        rate = await end_to_end(connect, values, round(60_000 * scale), batch=100, together=name == "W2+")
    return {name: rate}


async def others() -> float:
    """The share of the machine that is used while this program does nothing."""
    before = Machine()
    await asyncio.sleep(LOOK_S)
    return Machine().since(before)[0]


async def watched(work: Awaitable[Found]) -> tuple[Found, str]:
    """Do some work. Returns: its result, and the cause of a disturbance, or an empty text."""
    busy, before = await others(), Machine()
    found = await work
    stolen = Machine().since(before)[1]
    busy = max(busy, await others())
    noise = [f"others used {busy:.0%}"] if busy > BUSY else []
    noise += [f"the host took {stolen:.0%}"] if stolen > STOLEN else []
    return found, ", ".join(noise)


async def durable_inserts(connection: Any, seconds: float = 2.0) -> float:
    """Commits per second of single-row INSERTs on one connection: the bound that disk and database set."""
    await connection.execute("CREATE TABLE IF NOT EXISTS bench_inserts (id bigserial PRIMARY KEY, value text)")
    insert = await connection.prepare("INSERT INTO bench_inserts (value) VALUES ($1)")
    started = time.perf_counter()
    count = 0
    while time.perf_counter() - started < seconds:
        await insert.fetch("v" * 98)
        count += 1
    return count / (time.perf_counter() - started)


async def warm_wal(connection: Any) -> None:
    """Have PostgreSQL make WAL files now that it would else make while something is measured."""
    await connection.execute(
        "CREATE TABLE bench_wal AS SELECT repeat(md5(i::text), 32) FROM generate_series(1, 400000) i"
    )
    await connection.execute("DROP TABLE bench_wal")
    await connection.execute("CHECKPOINT")


async def measure(
    peers: Sequence[Peer], workloads: Sequence[str], sizes: Sequence[str], rounds: int, scale: float, backlog: int
) -> Rows:
    """Run all rounds, with the peers in turn."""
    rows: Rows = {}
    for number in range(rounds):
        for size in sizes:
            for name in workloads:
                for peer in peers:
                    if name not in peer.workloads or name not in ONCE.get(size, WORKLOADS):
                        continue
                    found, disturbed = await watched(workload(peer, name, VALUES[size], scale, backlog))
                    for what, value in found.items():
                        row = what if size == "100 B" else f"{what}, {size}"
                        rows.setdefault(row, {}).setdefault(peer.name, []).append(Measured(value, disturbed))
                        note = f" (disturbed: {disturbed})" if disturbed else ""
                        click.echo(f"round {number + 1}: {row}: {peer.name} {value:,.1f}{note}", err=True)
    return rows


def show(rows: Rows, peers: Sequence[Peer]) -> bool:
    """Print medians of the clean rounds as a Markdown table, with ratios. Returns: whether the run counts."""
    names = [peer.name for peer in peers]
    counts = True
    click.echo(f"| records/s | {' | '.join(names)} | clean rounds |")
    click.echo(f"| --- | {'---: | ' * len(names)}---: |")
    for row, found in rows.items():
        rounds = list(zip(*found.values(), strict=True))
        clean = [not any(one.disturbed for one in measured) for measured in rounds]
        enough = sum(clean) >= CLEAN * len(clean)
        counts &= enough
        medians = {
            name: statistics.median(
                one.value for one, kept in zip(found[name], clean, strict=True) if kept or not any(clean)
            )
            for name in found
        }
        cells = [_cell(row, peer, medians) for peer in peers]
        click.echo(f"| {row} | {' | '.join(cells)} | {sum(clean)} of {len(clean)}{'' if enough else ': too few'} |")
    return counts


def _cell(row: str, peer: Peer, medians: dict[str, float]) -> str:
    if peer.name not in medians:
        return ""
    median = medians[peer.name]
    shown = f"{median:,.1f}" if ", ms" in row else f"{median:,.0f}"
    one = medians.get(ONE_PROCESS)
    if peer.name == ONE_PROCESS or one is None:
        return shown
    return f"{shown} ({median / one if peer.ours else one / median:.2f})"


@click.command()
@click.option("--pgmq", type=click.Path(exists=True, path_type=Path), help="install script of PGMQ (the SQL-only one)")
@click.option("--rounds", default=5, show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="fraction of the records of a full run")
@click.option("--backlog", default=1_000_000, show_default=True, help="records of the backlog in W4")
@click.option("--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS), help="without it: all but W4")
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
    """Measure sharequeue beside Redis Streams and PGMQ, and print records per second.

    The services run in one process, as `sharequeue up` starts them, and as three programs. In brackets: the ratio of
    sharequeue to another queue, or of another way to use sharequeue to the plain one.
    """
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory:
        data_dir = Path(directory)
        streams = Redis(data_dir / "streams", append_fsync="always")
        with (
            temporary_stack(data_dir / "up", one_process=True) as stack,
            temporary_stack(data_dir / "three") as three,
            contextlib.ExitStack() as after,
        ):
            after.callback(streams.stop)
            streams_url = streams.start()
            script = None if pgmq is None else pgmq.read_text()

            assert stack.postgres is not None
            assert three.postgres is not None
            pgmq_url = stack.postgres.url if pgmq else None
            peers = [*ways(stack.url, three.url), *others_of(streams_url, pgmq_url)]
            peers = [peer for peer in peers if not only or peer.name in only]

            async def run() -> tuple[float, Rows]:
                async with database(three.postgres.url) as connection:
                    await warm_wal(connection)
                async with database(stack.postgres.url) as connection:
                    if script is not None:
                        await connection.execute(script)
                    await warm_wal(connection)
                    inserts = await durable_inserts(connection)
                click.echo(f"durable single INSERT: {inserts:,.0f}/s on one connection", err=True)
                return inserts, await measure(peers, workloads or SHOWN, sizes or tuple(VALUES), rounds, scale, backlog)

            inserts, rows = uvloop.run(run())
            counts = show(rows, peers)
            if output is not None:
                result = {"durable_inserts_per_second": inserts, "rows": rows}
                output.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    if not counts:
        raise SystemExit("bench: fewer than two thirds of the rounds of a row are clean; this run does not count")


@contextlib.asynccontextmanager
async def database(url: str) -> AsyncIterator[Any]:
    """A connection to PostgreSQL."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def ways(url: str, three_url: str) -> list[Peer]:
    """The ways to use sharequeue: in one process, as `sharequeue up` starts it, and as three programs."""
    return [
        Peer(ONE_PROCESS, lambda queue: ShareQueue.connect(url, queue)),
        Peer("with keys", lambda queue: ShareQueue.connect(url, queue, keyed=True), KEYED, ours=True),
        Peer("Python client", lambda queue: PythonClient.connect(url, queue), ("W1", "W2", "W3"), ours=True),
        Peer("three programs", lambda queue: ShareQueue.connect(three_url, queue), ours=True),
    ]


def others_of(streams_url: str, pgmq_url: str | None) -> list[Peer]:
    """The other products."""
    peers = [Peer("Redis Streams", lambda queue: RedisStreams.connect(streams_url, queue))]
    if pgmq_url is not None:
        peers.append(Peer("PGMQ", lambda queue: Pgmq.connect(pgmq_url, queue)))
    return peers


if __name__ == "__main__":
    main()
