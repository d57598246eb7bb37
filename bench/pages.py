"""`python -m bench.pages`: what 20 open pages of `/ui` do to the calls of others, on a stack of its own.

A client produces a record and fetches it, and accepts it with the next fetch, at a steady pace: in turns without pages,
and in turns while Chromium shows 20. Each pair of turns begins with the other side than the pair before. Chromium runs
in the idle class of the scheduler, because the people who look at pages have machines of their own. The rows are
Markdown. Believe only a run on a quiet machine. Exits 1 if the p99 of a call with pages is above 1.10 of the one
without.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Final

import click
import httpx

from bench.processes import thread_cpu_seconds
from sharequeue.stack.stack import temporary_stack
from tests.browser.__main__ import chromium
from tests.browser.chromium import Page, browser
from tests.browser.ui import views
from tests.browser.ui_story import Story

MOST_P99: Final = 1.10
PACE_S: Final = 0.01
OPENING_S: Final = 10.0
"""Pages ask for their files and for all that they show when they are opened."""
CALLS: Final = ("produce", "fetch")


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


def opened(page: Page, url: str, count: int) -> list[str]:
    """Open pages, each in a window of its own. Returns: their targets."""
    paths = itertools.islice(itertools.cycle(views(0).values()), count)
    tabs = [page.call("Target.createTarget", url=url + path, newWindow=True)["targetId"] for path in paths]
    time.sleep(OPENING_S)
    return tabs


@click.command()
@click.option("--pairs", default=10, show_default=True, help="of turns")
@click.option("--seconds", default=30.0, show_default=True, help="of a turn")
@click.option("--pages", default=20, show_default=True)
def main(pairs: int, seconds: float, pages: int) -> None:
    """Compare the calls of others without and with open pages."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as home:
        program = Path(home) / "chromium"
        program.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-sys_nice chrt --idle 0 {chromium()} "$@"\n')
        program.chmod(0o755)
        with (
            temporary_stack(Path(home) / "stack") as stack,
            browser(str(program), Path(home) / "profile") as page,
            httpx.Client(base_url=stack.url, timeout=60) as http,
        ):
            Story(stack.url).shop()
            pid = stack.service("gateway").pid
            turn(http, 2)
            took: dict[bool, dict[str, list[float]]] = {side: {name: [] for name in CALLS} for side in (False, True)}
            cpu = {False: 0.0, True: 0.0}
            for number in range(pairs):
                for side in (number % 2 == 0, number % 2 == 1):
                    tabs = opened(page, stack.url, pages) if side else []
                    before = thread_cpu_seconds(pid)
                    for name, times in turn(http, seconds).items():
                        took[side][name] += times
                    cpu[side] += thread_cpu_seconds(pid) - before
                    for tab in tabs:
                        page.call("Target.closeTarget", targetId=tab)
    click.echo(f"CPU of the gateway's loop: {100 * cpu[False] / pairs / seconds:.1f} % without pages, ", nl=False)
    click.echo(f"{100 * cpu[True] / pairs / seconds:.1f} % with {pages}\n")
    click.echo(
        "| call | calls | p50 without | with | p99 without | with | ratio |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    bad = False
    for name in CALLS:
        without, with_pages = (quantiles(took[side][name], n=100) for side in (False, True))
        ratio = with_pages[98] / without[98]
        bad |= ratio > MOST_P99
        count = len(took[False][name]) + len(took[True][name])
        click.echo(
            f"| {name} | {count:,} | {without[49]:.2f} ms | {with_pages[49]:.2f} ms | {without[98]:.2f} ms "
            f"| {with_pages[98]:.2f} ms | {ratio:.2f} |"
        )
    sys.exit(bad)


if __name__ == "__main__":
    main()
