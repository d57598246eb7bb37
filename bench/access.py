"""`python -m bench.access`: what keys and rights cost, and what wrong keys do to a good one, on stacks of its own.

    CPU      one record produced, one fetched and accepted, and a fetch that finds nothing: by a caller with a key, on a
             stack with 1,000 rights, beside a stack with `authentication=off`, in turns; a second stack with `off` is
             the control
    flood    how long a produce of a caller with a key takes, alone and while connections send wrong keys as fast
             as they are answered, in turns; the control is the same flood of another gateway of this machine

The rows are Markdown, for docs/benchmarks.md. Exits 1 if a bar does not hold. CPU time counts, so another load of the
machine hits both sides alike; of the flood, believe only a run on a quiet machine.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final
from urllib.parse import urlsplit

import click
import httpx
import uvloop

from bench.levels import Compared, compared
from bench.processes import thread_cpu_seconds
from bench.queues import new_name
from sharequeue.protocol.access.keys import make_key
from sharequeue.stack.stack import Stack, temporary_stack

KINDS: Final = ("without", "control", "with")
ORDERS: Final = tuple(itertools.permutations(KINDS))
SERVICES: Final = ("gateway", "group coordinator", "share coordinator")
USER: Final = "User:bench"
RIGHTS: Final = 1000
NAMES: Final = ("topic", "partition", "first_offset", "last_offset", "delivery_count")
PRODUCE: Final = "a produce of one record"
FETCH: Final = "a fetch of one record that accepts the last one"
EMPTY: Final = "a fetch that finds nothing"
BARRED: Final = (PRODUCE, FETCH)
CALLS: Final = 50
"""Of each kind in a turn."""
WARM: Final = 2
"""Turns that are not measured."""
LEAST_US: Final = 0.1
"""What a service costs that did nothing in a turn."""
MOST_CPU: Final = 1.05
MOST_P99: Final = 2.0
FLOOD_S: Final = 1.0
"""One turn of the flood, and one without it."""
SETTLES_S: Final = 2.0
"""The time that a flood has to settle after a pause: it sends on all connections at once first, for a second or more on
2,000 of them. That burst is not measured."""
PACE_S: Final = 0.002


class Caller:
    """One connection to a gateway, with as little around it as possible. `key`: None for a caller without one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str | None) -> None:
        self._reader = reader
        self._writer = writer
        self._login = "" if key is None else f"Authorization: Bearer {key}\r\n"

    @classmethod
    async def open(cls, url: str, key: str | None) -> "Caller":
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port), key)

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{self._login}"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(answer[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class Side:
    """A stack with one topic and one group of the same name, used by one caller."""

    def __init__(self, stack: Stack, key: str | None, name: str) -> None:
        self.stack = stack
        self.key = key
        self.name = name
        self._pids = [stack.service(service).pid for service in SERVICES]

    async def open(self) -> None:
        self.caller = await Caller.open(self.stack.url, self.key)

    def cpu(self) -> list[float]:
        return [thread_cpu_seconds(pid) for pid in self._pids]

    async def produce(self) -> None:
        status, body = await self.caller.call("POST", f"/v1/topics/{self.name}/records", {"records": [{"value": 1}]})
        assert status == 200, body

    async def fetch(self, accept: Sequence[dict[str, object]] = ()) -> list[dict[str, object]]:
        """Fetch one record, and accept those of the last fetch. Returns: what accepts it."""
        body = {"topics": [self.name], "member_id": "m", "max_records": 1, "max_wait_ms": 0, "acknowledgements": accept}
        status, answer = await self.caller.call("POST", f"/v1/share-groups/{self.name}/fetch", body)
        assert status == 200, answer
        batches: list[dict[str, object]] = json.loads(answer)["batches"]
        return [{**{name: batch[name] for name in NAMES}, "type": "accept"} for batch in batches]

    async def turn(self) -> dict[str, list[float]]:
        """Microseconds of CPU of each service for one call, by the kind of call."""
        found, before = {}, self.cpu()

        def note(kind: str) -> None:
            nonlocal before
            now = self.cpu()
            found[kind] = [1e6 * (b - a) / CALLS for a, b in zip(before, now, strict=True)]
            before = now

        for _ in range(CALLS):
            await self.produce()
        note(PRODUCE)
        held: list[dict[str, object]] = []
        for _ in range(CALLS):
            held = await self.fetch(held)
            assert held
        note(FETCH)
        await self.fetch(held)
        for _ in range(CALLS):
            await self.fetch()
        note(EMPTY)
        return found


def prepared(stack: Stack, name: str, *, rights: bool) -> Side:
    """Make the topic, and, on a stack that asks for keys, a key and all rights: most are those of others, and those of
    the caller are prefixes, of which the last one covers the topic."""
    admin = {} if stack.admin_key is None else {"Authorization": f"Bearer {stack.admin_key.read_text().strip()}"}
    with httpx.Client(base_url=stack.url, headers=admin, timeout=60) as http:
        http.post("/v1/topics", json={"name": name}).raise_for_status()
        config = {"config": {"share.auto.offset.reset": "earliest"}}
        http.patch(f"/v1/share-groups/{name}/config", json=config).raise_for_status()
        if not rights:
            return Side(stack, None, name)
        wanted = [("READ", "TOPIC"), ("WRITE", "TOPIC"), ("READ", "GROUP")]
        entries = [
            {"principal": USER, "operation": operation, "resource_type": kind, "pattern_type": "PREFIXED"}
            | {"resource_name": name if number == 0 else f"a-{number}-"}
            for operation, kind in wanted
            for number in range(100)
        ]
        entries += [
            {"principal": f"User:u{number % 50}", "operation": "READ", "resource_type": "TOPIC"}
            | {"resource_name": f"t-{number}"}
            for number in range(RIGHTS - len(entries))
        ]
        http.post("/v1/acls", json={"acls": entries}).raise_for_status()
        key: str = http.post("/v1/keys", json={"principal": USER}).raise_for_status().json()["key"]
        while http.get("/v1/topics", headers={"Authorization": f"Bearer {key}"}).status_code == 401:
            time.sleep(0.1)
    return Side(stack, key, name)


def side(stacks: contextlib.ExitStack, *, keys: bool) -> Side:
    """A side on a stack of its own."""
    home = stacks.enter_context(tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp"))
    return prepared(stacks.enter_context(temporary_stack(Path(home), require_keys=keys)), new_name(), rights=keys)


async def cpu(sides: dict[str, Side], turns: int) -> dict[tuple[str, str], Compared]:
    """By (kind of call, service), the CPU of a call, in turns of all orders."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for side in sides.values():
        await side.open()
    for turn in range(WARM + turns):
        for kind in ORDERS[turn % len(ORDERS)]:
            for call, costs in (await sides[kind].turn()).items():
                for service, cost in zip(SERVICES, costs, strict=True):
                    if turn >= WARM:
                        found.setdefault((call, service, kind), []).append(max(cost, LEAST_US))
    for side in sides.values():
        side.caller.close()
    rows = dict.fromkeys((call, service) for call, service, _ in found)
    return {row: compared(*(found[(*row, kind)] for kind in KINDS)) for row in rows}


async def flood(url: str, key: str, connections: int) -> None:
    """Send requests with a wrong key, one after another on each connection, until this process is killed."""

    async def one() -> None:
        while True:
            caller = await Caller.open(url, key)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # its connection was closed: open another
                while True:
                    status, _ = await caller.call("GET", "/v1/topics")
                    assert status == 401
            caller.close()

    await asyncio.gather(*(one() for _ in range(connections)))


@contextlib.contextmanager
def flooder(url: str, key: str, connections: int) -> Iterator[int]:
    """A process that floods, paused. Gives its id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.access", "--flood", url, "--key", key, "--connections", str(connections)]
    )
    time.sleep(3)  # it imports, and opens its connections
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield process.pid
        assert process.poll() is None, "the flood has ended"
    finally:
        process.kill()
        process.wait()


async def times(side: Side, seconds: float) -> list[float]:
    """How long each produce takes, in ms."""
    found, until_s = [], time.perf_counter() + seconds
    while (before := time.perf_counter()) < until_s:
        await side.produce()
        found.append(1000 * (time.perf_counter() - before))
        await asyncio.sleep(PACE_S)
    return found


async def latencies(side: Side, other: Side, turns: int, connections: int) -> dict[str, list[list[float]]]:
    """The times of all turns, alone and beside each flood. A wrong key has the id of a right one: the most costly."""

    def wrong_key(of: Side) -> str:
        assert of.key is not None
        return make_key(bytes.fromhex(of.key.split("_")[1]), bytes(32)).text

    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    await side.open()
    with (
        flooder(other.stack.url, wrong_key(other), connections) as control,
        flooder(side.stack.url, wrong_key(side), connections) as wrong,
    ):
        floods = {"without": None, "control": control, "with": wrong}
        for turn in range(WARM + turns):
            for kind in ORDERS[turn % len(ORDERS)]:
                if (pid := floods[kind]) is not None:
                    os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(SETTLES_S)
                measured = await times(side, FLOOD_S)
                if pid is not None:
                    os.kill(pid, signal.SIGSTOP)
                if turn >= WARM:
                    found[kind].append(measured)
    side.caller.close()
    return found


def show_cpu(rows: dict[tuple[str, str], Compared]) -> bool:
    click.echo("| CPU, µs | off | with a key | ratio | control | bar |\n| --- | ---: | ---: | ---: | ---: | --- |")
    held = True
    for (call, service), found in rows.items():
        barred = service == "gateway" and call in BARRED
        missed = barred and found.ratio.median > MOST_CPU
        held &= not missed
        bar = f"at most {MOST_CPU}{' **missed**' if missed else ''}" if barred else ""
        if barred and not 2 - MOST_CPU <= found.control.median <= MOST_CPU:
            bar += ", but two stacks with `off` differ as much: run it again on a quiet machine"
        click.echo(
            f"| {call}, {service} | {found.without:,.1f} | {found.with_it:,.1f} | {found.ratio} | {found.control} | {bar} |"
        )
    return held


def show_flood(found: dict[str, list[list[float]]]) -> bool:
    click.echo("| a produce, ms | alone | a flood elsewhere | beside wrong keys | ratio | bar |")
    click.echo("| --- | ---: | ---: | ---: | ---: | --- |")
    all_times = {kind: [each for turn in turns for each in turn] for kind, turns in found.items()}
    held = True
    for name, number in (("median", 49), ("p99", 98)):
        alone, control, wrong = (quantiles(all_times[kind], n=100)[number] for kind in KINDS)
        bar = f"at most {MOST_P99:g}" if name == "p99" else ""
        if bar and wrong / alone > MOST_P99:
            held, bar = False, f"{bar} **missed**"
        click.echo(f"| {name} | {alone:.2f} | {control:.2f} | {wrong:.2f} | {wrong / alone:.2f} | {bar} |")
    return held


@click.command()
@click.option("--turns", default=30, show_default=True)
@click.option("--only", type=click.Choice(["cpu", "flood"]))
@click.option("--connections", default=4, show_default=True, help="those of each flood")
@click.option("--flood", "url", hidden=True)
@click.option("--key", hidden=True)
def main(turns: int, only: str | None, connections: int, url: str | None, key: str | None) -> None:
    if url is not None:
        uvloop.run(flood(url, key or "", connections))
    held = True
    if only != "flood":
        with contextlib.ExitStack() as stacks:
            sides = {kind: side(stacks, keys=kind == "with") for kind in KINDS}
            held &= show_cpu(uvloop.run(cpu(sides, turns)))
    if only != "cpu":
        with contextlib.ExitStack() as stacks:
            flooded, other = side(stacks, keys=True), side(stacks, keys=True)
            held &= show_flood(uvloop.run(latencies(flooded, other, turns, connections)))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
