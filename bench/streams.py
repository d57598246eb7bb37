"""`python -m bench.streams`: streams beside waiting fetches, on stacks of its own, each with its bar.

    idle      2,000 streams, and 2,000 fetches that wait 30 s each: memory and CPU of the gateway per minute
    flapping  one client that cuts its connection 20 times in 10 s: the highest delivery count
    latency   from before the call of produce to the record in hand: a stream and a waiting fetch in turns

The rows are Markdown, for docs/benchmarks.md. Exits 1 if a bar does not hold.
"""

import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlsplit

import click

from bench.processes import cpu_seconds, resident_bytes
from sharequeue.stack.stack import Stack, temporary_stack

MIB: Final = 1024 * 1024
MOST_RATIO: Final = 1.2
ROUNDS: Final = 8
"""Turns of each way of listening: another load of the machine hits both."""
SETTLE_S: Final = 5.0
CUTS: Final = 20
CUTS_S: Final = 10.0
SETTINGS: Final = {"SHAREQUEUE_GATEWAY_MAX_STREAMS": "20000"}


class Connection:
    """One HTTP connection to a gateway, with as little around it as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, stack: Stack) -> "Connection":
        parts = urlsplit(stack.url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, limit=MIB))

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """One call with an answer of known length."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(length)

    async def stream(self, name: str, member: str, last_id: str = "") -> None:
        """Open a stream of the topic and group `name`, and read its head."""
        path = f"/v1/share-groups/{name}/stream?topic={name}&member_id={member}"
        last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}\r\n".encode())
        status = await self.reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in status, status

    async def event(self) -> tuple[str, dict]:
        """The next event with data: its id, and the data."""
        event_id = ""
        while True:
            line = await self.reader.readline()
            if line.startswith(b"id: "):
                event_id = line[4:].decode().strip()
            elif line.startswith(b"data: "):
                return event_id, json.loads(line[6:])
            elif not line:
                raise EOFError

    def close(self) -> None:
        self.writer.close()


Listen = Callable[[Connection, str, str], Awaitable[None]]


async def wait_for_ever(connection: Connection, name: str, member: str) -> None:
    """Fetch again and again, as a worker does."""
    while True:
        body = {"topics": [name], "member_id": member, "max_wait_ms": 30_000}
        await connection.call("POST", f"/v1/share-groups/{name}/fetch", body)


async def listen_for_ever(connection: Connection, name: str, member: str) -> None:
    await connection.stream(name, member)
    while await connection.reader.readline():
        pass


async def idle(stack: Stack, listen: Listen, count: int, seconds: float) -> tuple[float, float]:
    """Returns: the MiB by which the gateway grew, and its CPU time in seconds per minute."""
    pid = stack.service("gateway").pid
    name = "idle"
    first = await Connection.open(stack)
    await first.call("POST", "/v1/topics", {"name": name, "partitions": 1})
    await first.call("POST", f"/v1/share-groups/{name}/fetch", {"topics": [name], "max_wait_ms": 0})
    before = resident_bytes(pid)
    tasks = []
    for number in range(count):
        connection = await Connection.open(stack)
        tasks.append(asyncio.create_task(listen(connection, name, f"m{number}")))
        if number % 100 == 99:
            await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLE_S)
    cpu_s, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    used_s = (cpu_seconds(pid) - cpu_s) * 60 / (time.monotonic() - began)
    grew = (resident_bytes(pid) - before) / MIB
    assert not any(task.done() for task in tasks), [task for task in tasks if task.done()][:1]
    for task in tasks:
        task.cancel()
    return grew, used_s


async def flapping(stack: Stack) -> int:
    """The highest delivery count that a client saw whose connection is cut again and again."""
    name, last_id, highest = "flapping", "", 0
    producer = await Connection.open(stack)
    await producer.call("POST", "/v1/topics", {"name": name, "partitions": 3})
    for turn in range(CUTS + 1):
        connection = await Connection.open(stack)
        await connection.stream(name, "m1", last_id)
        records = [{"value": index} for index in range(3)]
        await producer.call("POST", f"/v1/topics/{name}/records", {"records": records})
        ends = time.monotonic() + CUTS_S / CUTS
        while (left := ends - time.monotonic()) > 0:
            try:
                event_id, answer = await asyncio.wait_for(connection.event(), left if turn % 2 else min(left, 0.01))
            except TimeoutError:
                break
            last_id = event_id or last_id
            highest = max([highest, *(batch["delivery_count"] for batch in answer["batches"])])
        connection.close()
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
    return highest


async def latencies(stack: Stack, records: int) -> tuple[list[float], list[float]]:
    """Milliseconds from produce to the record in hand: of waiting fetches, and of a stream."""
    producer, fetcher = await Connection.open(stack), await Connection.open(stack)
    found: tuple[list[float], list[float]] = ([], [])
    for name in ("fetches", "streams"):
        await producer.call("POST", "/v1/topics", {"name": name, "partitions": 1})
        await producer.call("POST", f"/v1/share-groups/{name}/fetch", {"topics": [name], "max_wait_ms": 0})
    stream = await Connection.open(stack)
    await stream.stream("streams", "m1")

    async def one(name: str, receive: Callable[[], Awaitable[dict]], settler: Connection) -> float:
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.005)  # until it waits
        began = time.perf_counter()
        sent = asyncio.ensure_future(producer.call("POST", f"/v1/topics/{name}/records", {"records": [{"value": 1}]}))
        answer = await waiting
        took = (time.perf_counter() - began) * 1000
        await sent
        entries = [{**batch, "records": [], "type": "accept"} for batch in answer["batches"]]
        body = {"member_id": answer["member_id"], "acknowledgements": entries}
        await settler.call("POST", f"/v1/share-groups/{name}/acknowledge", body)
        return took

    async def fetch() -> dict:
        body = {"topics": ["fetches"], "member_id": "m1", "max_wait_ms": 30_000}
        return json.loads(await fetcher.call("POST", "/v1/share-groups/fetches/fetch", body))

    async def event() -> dict:
        return (await stream.event())[1]

    settler = await Connection.open(stack)
    for turn in range(ROUNDS + 1):
        for _ in range(records // ROUNDS):
            times = await one("fetches", fetch, settler), await one("streams", event, settler)
            if turn:  # the first round warms up
                found[0].append(times[0])
                found[1].append(times[1])
    return found


class Report:
    """The rows of the table."""

    def __init__(self) -> None:
        self.held = True
        click.echo("| measured | waiting fetches | streams | ratio | bar |\n| --- | ---: | ---: | ---: | --- |")

    def ratio(self, what: str, fetches: float, streams: float) -> None:
        ratio = streams / fetches
        self.held &= ratio <= MOST_RATIO
        click.echo(f"| {what} | {fetches:.2f} | {streams:.2f} | {ratio:.2f} | at most {MOST_RATIO} |")

    def count(self, what: str, count: int, most: int) -> None:
        self.held &= count <= most
        click.echo(f"| {what} | | {count} | | at most {most} |")


@click.command()
@click.option("--streams", default=2000, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Of the idle measurement, after the streams are open.")
@click.option("--records", default=2000, show_default=True, help="For latencies, of each way.")
@click.option("--only", type=click.Choice(["idle", "flapping", "latency"]), help="One measurement alone.")
def main(streams: int, seconds: float, records: int, only: str | None) -> None:
    """Measure streams beside waiting fetches."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report()
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-") as home:
        if only in (None, "idle"):
            measured = []
            for number, listen in enumerate((wait_for_ever, listen_for_ever)):
                with temporary_stack(Path(home) / f"idle-{number}", settings=SETTINGS) as stack:
                    measured.append(asyncio.run(idle(stack, listen, streams, seconds)))
            (fetch_mib, fetch_s), (stream_mib, stream_s) = measured
            report.ratio(f"memory of {streams:,} idle ones, MiB", fetch_mib, stream_mib)
            report.ratio(f"the gateway's CPU for {streams:,} idle ones, s per minute", fetch_s, stream_s)
        if only != "idle":
            with temporary_stack(Path(home) / "stack", settings=SETTINGS) as stack:
                if only in (None, "flapping"):
                    what = f"highest delivery count after {CUTS} cuts in {CUTS_S:.0f} s"
                    report.count(what, asyncio.run(flapping(stack)), 1)
                if only in (None, "latency"):
                    fetches, events = asyncio.run(latencies(stack, records))
                    report.ratio("produce to record, median, ms", median(fetches), median(events))
                    report.ratio(
                        "produce to record, p99, ms", quantiles(fetches, n=100)[98], quantiles(events, n=100)[98]
                    )
    if not report.held:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
