"""`python -m bench.transactions`: what transactions cost, on a stack of its own, each with its bar.

    produce     10 requests of 100 records each, in a transaction and without one, in turns
    commit      appends to other topics, while transactions over 1,000 partitions commit one after another without a
                pause, and while nothing else happens; PostgreSQL has WAL files to use again
    W2, W3      of a read_committed and of a read_uncommitted group, without any transaction, in turns; the control
                compares two read_uncommitted groups in the same turns
    settle      10 records settled and 10 produced: `acknowledge` with `produce`, and in two calls, in turns
    many        a commit that settles 10,000 records, each by an acknowledgement of its own

The rows are Markdown, for docs/benchmarks.md. Exits 1 if a bar does not hold. The load of the machine hits both sides
of a row alike; still, believe only a run on a quiet machine.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

import asyncpg
import click
import msgspec
import uvloop

from bench.levels import VALUES, Compared, Ratio, levels
from bench.queues import new_name
from bench.settling import ACKNOWLEDGEMENTS, settle_many, steps
from bench.settling import RECORDS as STEP
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import CreateTopicRequest
from sharequeue.protocol.messages.transactions import BeginTransactionRequest, CommitTransactionRequest
from sharequeue.stack.stack import Stack, temporary_stack
from sharequeue_http.calling.caller import Client

REQUESTS: Final = 10
RECORDS: Final = 100
APPENDERS: Final = 4
PACE_S: Final = 0.02
"""From the end of an append to the next one of the same client: the machine is not busy with appends alone."""
COMMITS: Final = 8
"""Transactions of one round. Their commits follow each other at once: no client can make more of them, as large commits
run one at a time."""
CALM_S: Final = 0.5
"""How long appends are measured alone, before the commits of each round."""
WAL_FILES: Final = 34
"""Files of 16 MB of PostgreSQL's WAL: more than 40 rounds of commits write."""


class Report:
    """The rows of the table."""

    def __init__(self) -> None:
        self.held = True
        click.echo("| measured | without | with | ratio | bar |\n| --- | ---: | ---: | ---: | --- |")

    def at_most(self, what: str, without: float, with_it: float, most: float) -> None:
        self._row(what, without, with_it, with_it / without, f"at most {most:g}", with_it / without <= most)

    def compared(self, what: str, found: Compared, least: float | None = None) -> None:
        """`least`: the smallest median ratio that is right; None: any is."""
        bar = "" if least is None else f"at least {least:g}"
        held = least is None or found.ratio.median >= least
        self._row(what, found.without, found.with_it, found.ratio, bar, held)
        click.echo(f"| the same, control | | | {found.control} | |")

    def told(self, what: str, without: float, with_it: float) -> None:
        self._row(what, without, with_it, with_it / without, "", held=True)

    def alone(self, what: str, value: float, most: float | None = None) -> None:
        """A row with one number. `most`: None: it has no bar."""
        held = most is None or value <= most
        self.held &= held
        bar = "" if most is None else f"at most {most:g}"
        click.echo(f"| {what} | | {value:,.2f} | | {bar}{'' if held else ' **missed**'} |")

    def _row(self, what: str, without: float, with_it: float, ratio: float | Ratio, bar: str, held: bool) -> None:
        self.held &= held
        digits = 0 if without > 1000 else 2
        missed = "" if held else " **missed**"
        shown = f"{ratio:.3f}" if isinstance(ratio, float) else str(ratio)
        click.echo(f"| {what} | {without:,.{digits}f} | {with_it:,.{digits}f} | {shown} | {bar}{missed} |")


def body(values: Sequence[str], partitions: int = 0) -> bytes:
    """A produce request. With `partitions`, the records go to one after another."""
    records: list[dict[str, Any]] = [{"value": value} for value in values]
    if partitions:
        records = [{**record, "partition": number % partitions} for number, record in enumerate(records)]
    return msgspec.json.encode({"records": records})


class Transactional:
    """One client that produces to one topic, in transactions or not."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, deadline_s=60)
        self._path = {"topic": new_name()}

    async def create(self, partitions: int) -> None:
        await self._client.call(apis.CREATE_TOPIC, CreateTopicRequest(name=self._path["topic"], partitions=partitions))

    async def begin(self) -> str:
        begun = await self._client.call(apis.BEGIN_TRANSACTION, BeginTransactionRequest())
        return str(begun.transaction_id)

    async def produce(self, request: bytes, transaction_id: str | None = None) -> None:
        headers = {"Transaction-Id": transaction_id} if transaction_id else {}
        await self._client.relay(apis.PRODUCE_RECORDS, request, path=self._path, headers=headers)

    async def commit(self, transaction_id: str) -> None:
        path = {"transaction": transaction_id}
        await self._client.call(apis.COMMIT_TRANSACTION, CommitTransactionRequest(), path=path)

    async def close(self) -> None:
        await self._client.close()


# 10 × 100 records


async def produces(url: str, rounds: int) -> tuple[float, float]:
    """Milliseconds for REQUESTS × RECORDS records, the medians: without a transaction, and in one."""
    client = Transactional(url)
    await client.create(1)
    request = body(VALUES(RECORDS))

    async def without() -> None:
        for _ in range(REQUESTS):
            await client.produce(request)

    async def within() -> None:
        transaction_id = await client.begin()
        for _ in range(REQUESTS):
            await client.produce(request, transaction_id)
        await client.commit(transaction_id)

    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 2):
        for kind, work in enumerate((without, within)):
            took = await milliseconds(work)
            if turn > 1:  # the first ones warm up
                times[kind].append(took)
    await client.close()
    return median(times[0]), median(times[1])


async def milliseconds(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return 1000 * (time.perf_counter() - began)


# A commit of many partitions


class Commits(NamedTuple):
    """Milliseconds: p99 of appends alone and beside commits, and the median of a commit."""

    alone: float
    beside: float
    commit: float
    appends_beside: int


async def recycle_wal(stack: Stack) -> None:
    """Give PostgreSQL WAL files that it can use again, as a server has that has run for an hour.

    A new server creates each file when it is needed. Commits of many partitions write more WAL than appends, and so
    meet more of these moments, in which an append waits for up to 10 ms.
    """
    assert stack.postgres is not None
    connection = await asyncpg.connect(stack.postgres.url)
    for _ in range(WAL_FILES):
        await connection.execute("SELECT pg_logical_emit_message(false, 'bench', '')")
        await connection.execute("SELECT pg_switch_wal()")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def commits(url: str, rounds: int, partitions: int) -> Commits:
    """Appends of one record to topics of their own, while transactions over `partitions` partitions commit."""
    client = Transactional(url)
    await client.create(partitions)
    appends: list[tuple[float, float]] = []
    tasks = [asyncio.create_task(append_for_ever(url, appends)) for _ in range(APPENDERS)]
    request = body(VALUES(partitions), partitions)
    alone: list[float] = []
    beside: list[float] = []
    commit_times = []
    for turn in range(rounds + 1):
        transactions = [await client.begin() for _ in range(COMMITS)]
        for transaction_id in transactions:
            await client.produce(request, transaction_id)
        await asyncio.sleep(CALM_S)
        appends.clear()
        calm = time.perf_counter()
        await asyncio.sleep(CALM_S)
        began = time.perf_counter()
        for transaction_id in transactions:
            await client.commit(transaction_id)
        ended = time.perf_counter()
        await asyncio.sleep(CALM_S)  # those that began beside a commit have ended, too
        if turn:  # the first one warms up
            commit_times.append(1000 * (ended - began) / COMMITS)
            alone += [1000 * (end - start) for start, end in appends if start >= calm and end <= began]
            beside += [1000 * (end - start) for start, end in appends if end > began and start < ended]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await client.close()
    return Commits(quantiles(alone, n=100)[98], quantiles(beside, n=100)[98], median(commit_times), len(beside))


async def append_for_ever(url: str, appends: list[tuple[float, float]]) -> None:
    """Note when each append began and ended."""
    client = Transactional(url)
    await client.create(1)
    request = body(VALUES(1))
    try:
        while True:
            began = time.perf_counter()
            await client.produce(request)
            appends.append((began, time.perf_counter()))
            await asyncio.sleep(PACE_S)
    finally:
        await client.close()


@click.command()
@click.option("--rounds", default=100, show_default=True, help="Of produce, each way.")
@click.option("--commits", "commit_rounds", default=40, show_default=True, help=f"Rounds of {COMMITS} commits.")
@click.option("--partitions", default=1000, show_default=True)
@click.option("--new-server", is_flag=True, help="Commits on a PostgreSQL that has no WAL files to use again.")
@click.option("--turns", default=60, show_default=True, help="Of W2 and W3: three runs each.")
@click.option("--scale", default=1.0, show_default=True, help="Of a run of W2 and W3: 1 is 10,000 and 3,000 records.")
@click.option(
    "--only", type=click.Choice(["produce", "commit", "W2", "W3", "settle", "many"]), help="One measurement alone."
)
def main(
    rounds: int, commit_rounds: int, partitions: int, new_server: bool, turns: int, scale: float, only: str | None
) -> None:
    """Measure what transactions cost."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-") as home:
        Path(home).chmod(0o755)
        with temporary_stack(Path(home) / "stack") as stack:
            if only in (None, "produce"):
                without, within = uvloop.run(produces(stack.url, rounds))
                report.at_most(f"{REQUESTS} × {RECORDS} records in a transaction, ms", without, within, 1.5)
            if only in (None, "commit"):
                if not new_server:
                    asyncio.run(recycle_wal(stack))
                found = uvloop.run(commits(stack.url, commit_rounds, partitions))
                what = f"append, p99, while transactions over {partitions:,} partitions commit, ms"
                report.at_most(what, found.alone, found.beside, 1.5)
            for name in ("W2", "W3"):
                if only in (None, name):
                    costs = uvloop.run(levels(stack, name, turns, scale))
                    what = f"{name} of a read_committed group, no transaction"
                    report.compared(f"{what}, records/s", costs.rates, 0.98)
                    report.compared(f"{what}, gateway's CPU for a record, µs", costs.cpu)
            if only in (None, "settle"):
                apart, together = uvloop.run(steps(stack, rounds))
                what = f"{STEP} records settled and {STEP} produced, in two calls and in one"
                report.told(f"{what}, ms", apart.ms, together.ms)
                report.told(f"{what}, CPU of the gateway, ms", apart.cpu_ms, together.cpu_ms)
            if only in (None, "many"):
                settled = settle_many(stack, 4)
                what = f"a commit that settles {ACKNOWLEDGEMENTS:,} records one by one"
                report.alone(f"{what}, ms", settled.ms)
                report.alone(f"{what}, longest stop of the gateway, CPU, ms", settled.stop_ms, 100)
    if only in (None, "commit"):
        click.echo(f"\nA commit took {found.commit:.0f} ms; {found.appends_beside:,} appends ran beside one.")
    if not report.held:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
