"""`python -m bench.pages`: what 20 open pages of `/ui` do to the calls of others, on a stack of its own.

Chromium shows each view for a minute, and says what it asked for and when; then it ends. A program without a browser
asks the same for 20 pages, each at another place of that minute, as 20 people on machines of their own would: with
connections that stay open, and with the headers of a browser.

A client produces a record and fetches it, and accepts it with the next fetch, at a steady pace, in turns: beside the
program with 20 pages, beside the program without one, and alone. Each round begins with the next of the three. The two
turns without pages say how much the machine itself changes the numbers. A table before has the CPU of the gateway's
loop for each call of the pages. The rows are Markdown. Believe only a run on a quiet machine. Exits 1 if the p99 of a
call with pages is above 1.10 of the one beside the program without pages.
"""

import asyncio
import itertools
import multiprocessing
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from urllib.parse import urlsplit

import click
import httpx

from bench.processes import thread_cpu_seconds
from sharequeue.stack.stack import Stack, temporary_stack
from tests.browser.__main__ import chromium
from tests.browser.chromium import browser
from tests.browser.ui import measured, views
from tests.browser.ui_story import Story

MOST_P99: Final = 1.10
PACE_S: Final = 0.01
OPENING_S: Final = 10.0
"""A page asks for its files and for all that it shows when it is opened: that is over then."""
MINUTE_S: Final = 60.0
CALLS: Final = ("produce", "fetch")
LED: Final = "sharequeue_led_share_partitions"
ASKED: Final = f"""performance.getEntriesByType('resource').filter((it) => it.startTime >= {1000 * OPENING_S}).map((it) =>
  [it.startTime / 1000 - {OPENING_S}, it.name.replace(location.origin, '').replace(/from_ms=(\\d+)/, (_all, ms) =>
    'from_ms=-' + Math.round(performance.timeOrigin + it.startTime - ms))])"""
"""The second and the path of each request of a page; a time before now is negative."""
HEADERS: Final = """Accept: application/json\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r
Cache-Control: no-cache\r\nPragma: no-cache\r\nConnection: keep-alive\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r
Sec-Fetch-Site: same-origin\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0\r\n"""

Asked = list[tuple[float, str]]


def recorded(url: str, home: Path) -> list[Asked]:
    """Return what each view asks for in a minute, in a real Chromium."""
    with browser(chromium(), home) as page:
        paths = views(0).values()
        tabs = [page.call("Target.createTarget", url=url + path, newWindow=True)["targetId"] for path in paths]
        time.sleep(OPENING_S + MINUTE_S)
        asked = []
        for tab in tabs:
            with page.at(tab):
                asked.append(sorted((at_s, path) for at_s, path in page.run(ASKED) if at_s < MINUTE_S))
    assert all(asked), asked
    return asked


class Person:
    """Asks what a page asks, and again each minute, from a second of it on."""

    def __init__(self, url: str, asked: Asked, begin_s: float) -> None:
        self.host = urlsplit(url).netloc
        self.asked = asked
        self.begin_s = begin_s
        self.bytes = 0  # of the last answer
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        zero_s = loop.time() - self.begin_s
        async with asyncio.TaskGroup() as calls:
            for minute in itertools.count():
                for at_s, path in self.asked:
                    if minute or at_s >= self.begin_s:
                        await asyncio.sleep(max(0, zero_s + minute * MINUTE_S + at_s - loop.time()))
                        calls.create_task(self.call(path))

    async def call(self, path: str) -> None:
        host, port = self.host.split(":")
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(host, int(port))
        path = re.sub(r"from_ms=-(\d+)", lambda ago: f"from_ms={int(1000 * time.time()) - int(ago[1])}", path)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n{HEADERS}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert head.startswith(b"HTTP/1.1 200 "), (path, head)
        assert length is not None, (path, head)
        self.bytes = len(head) + len(await reader.readexactly(int(length[1])))
        self.idle.append((reader, writer))


def replay(url: str, pages: list[Asked]) -> None:
    """Be the people at these pages. Runs until it is ended."""

    async def run() -> None:
        async with asyncio.TaskGroup() as people:
            for number, asked in enumerate(pages):
                people.create_task(Person(url, asked, MINUTE_S * number / len(pages)).run())
            await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def beside(url: str, pages: list[Asked] | None) -> Iterator[None]:
    """The program beside the calls of others. None: without it."""
    if pages is None:
        yield
        return
    program = multiprocessing.get_context("spawn").Process(target=replay, args=(url, pages), daemon=True)
    program.start()
    time.sleep(3)
    try:
        yield
        assert program.is_alive(), "a page was refused something"
    finally:
        program.terminate()
        program.join()


def turn(http: httpx.Client, seconds: float) -> dict[str, list[float]]:
    """Produce and fetch for so long. Returns: the milliseconds of each call."""
    took: dict[str, list[float]] = {name: [] for name in CALLS}
    fetch: dict[str, object] = {"topics": ["others"], "member_id": "other", "max_records": 1}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, path, body in (
            ("produce", "/v1/topics/others/records", {"records": [{"value": 1}]}),
            ("fetch", "/v1/share-groups/others/fetch", fetch),
        ):
            before = time.perf_counter()
            answer = http.post(path, json=body).raise_for_status()
            took[name].append(1000 * (time.perf_counter() - before))
            time.sleep(PACE_S)
        fetch["acknowledgements"] = [
            {name: batch[name] for name in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}
            | {"type": "accept"}
            for batch in answer.json()["batches"]
        ]
    return took


def costs(stack: Stack, pages: list[Asked]) -> Iterator[tuple[str, int, float, int]]:
    """The calls of all pages: how often a minute, the milliseconds of the gateway's loop, and the bytes of one."""
    pid = stack.service("gateway").pid
    paths: dict[str, str] = {}
    rates = Counter[str]()
    for _, path in itertools.chain(*pages):
        call = re.sub(r"\d+", "N", path)
        paths[call] = re.sub(r"from_ms=-\d+", f"from_ms={int(1000 * time.time()) - 3_600_000}", path)
        rates[call] += 1
    person = Person(stack.url, [], 0)
    with asyncio.Runner() as runner:
        for call, count in rates.most_common():
            before = 0.0
            for number in range(120):
                if number == 20:
                    before = thread_cpu_seconds(pid)
                runner.run(person.call(paths[call]))
            yield call, count, 10 * (thread_cpu_seconds(pid) - before), person.bytes


def row(*cells: Any) -> None:
    click.echo(f"| {' | '.join(map(str, cells))} |")


@click.command()
@click.option("--rounds", default=9, show_default=True, help="of three turns")
@click.option("--seconds", default=30.0, show_default=True, help="of a turn")
@click.option("--pages", default=20, show_default=True)
def main(rounds: int, seconds: float, pages: int) -> None:
    """Compare the calls of others without and with open pages."""
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as home,
        temporary_stack(Path(home) / "stack") as stack,
        httpx.Client(base_url=stack.url, timeout=60) as http,
    ):
        Story(stack.url, lock_ms=3_600_000).shop()  # what workers hold stays loaded for as long as this lasts
        asked = list(itertools.islice(itertools.cycle(recorded(stack.url, Path(home) / "profile")), pages))
        row("call of a page", "a minute", "ms of the loop", "bytes")
        row(*["---"] * 4)
        for call, count, cpu_ms, size in costs(stack, asked):
            row(call, count, f"{cpu_ms:.2f}", f"{size:,}")
        pid = stack.service("gateway").pid
        turn(http, 2)
        sides = {f"{pages} pages": asked, "no page": [], "alone": None}
        took: dict[str, dict[str, list[float]]] = {side: {name: [] for name in CALLS} for side in sides}
        cpu = dict.fromkeys(sides, 0.0)
        led = measured(stack)[LED]
        order = list(sides)
        for _ in range(rounds):
            for side in order:
                with beside(stack.url, sides[side]):
                    before = thread_cpu_seconds(pid)
                    for name, times in turn(http, seconds).items():
                        took[side][name] += times
                    cpu[side] += thread_cpu_seconds(pid) - before
            order = order[1:] + order[:1]
        assert measured(stack)[LED] <= led, "a page has loaded an idle share-partition"
    click.echo()
    row("beside", "CPU of the loop", *(f"{name} {what}" for name in CALLS for what in ("p50", "p99", "ratio of p99")))
    row(*["---"] * 8)
    bad = False
    control = {name: quantiles(took["no page"][name], n=100)[98] for name in CALLS}
    for side in sides:
        cells = [f"{100 * cpu[side] / rounds / seconds:.1f} %"]
        for name in CALLS:
            of = quantiles(took[side][name], n=100)
            ratio = of[98] / control[name]
            bad |= side == next(iter(sides)) and ratio > MOST_P99
            cells += [f"{of[49]:.2f} ms", f"{of[98]:.2f} ms", f"{ratio:.2f}"]
        row(side, *cells)
    sys.exit(bad)


if __name__ == "__main__":
    main()
