"""Workers while what they call is away, and while their processes are killed: long runs for `make soak`."""

import asyncio
import contextlib
import random
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from sharequeue.stack.stack import Stack
from sharequeue.worker import Context, Reject, Worker
from sharequeue.worker.process import Process
from tests.http.calls import Gateway, wait_until
from tests.system.test_work import work

ORDERS = 5_000
POISON = 50
WAITS_S = (1, 3, 9, 27, 81, 243, 600, 600)
"""The first pauses of a worker's own backoff."""
CLOCKS_S = 0.05
"""How much earlier than its pause a record may seem to come: this process and PostgreSQL measure apart."""
KILLS = 200
RESTARTS = 24
RESTART_S = 5.0
IN_HAND = 6
"""The functions of a killed process whose outcomes were not sent, on average: two run, others have just ended."""


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@pytest.mark.soak
@pytest.mark.parametrize("away_s", [90.0, 1200.0])
def test_an_outage_costs_no_order(stack: Stack, gateway: Gateway, name: str, away_s: float) -> None:
    """The provider is away. No record comes before its pause is over, and only poison is a dead letter."""
    asyncio.run(outage(stack, gateway, name, away_s))


async def outage(stack: Stack, gateway: Gateway, name: str, away_s: float) -> None:
    app = Worker(stack.url)
    failed_at: dict[int, float] = {}
    early: list[int] = []
    paid: Counter[int] = Counter()
    back_at = 0.0
    all_paid = asyncio.Event()

    @app.task(name, group=name, concurrency=32)
    async def pay(order: int, context: Context) -> None:
        nonlocal back_at
        if order < POISON:
            raise Reject("no such order")
        back_at = back_at or time.monotonic() + away_s
        if order in failed_at and time.monotonic() < failed_at[order] + WAITS_S[context.attempt - 2] - CLOCKS_S:
            early.append(order)
        if time.monotonic() < back_at:
            failed_at[order] = time.monotonic()
            raise ConnectionError("the provider is away")
        paid[order] += 1
        if len(paid) == ORDERS - POISON:
            all_paid.set()

    for first in range(0, ORDERS, 1000):
        gateway.produce(name, *range(first, first + 1000))
    process = Process(app, grace_s=10)
    running = asyncio.create_task(process.run())
    async with asyncio.timeout(away_s + 720):
        await all_paid.wait()
    print("DONE", round(time.monotonic() - back_at), "s after the end")
    process.stop()
    assert await running == 0
    assert early == []
    assert failed_at, "the outage was noticed"
    assert set(paid.values()) == {1}
    letters = gateway.letters(f"dlq.{name}", POISON)
    assert {letter["headers"]["__dlq.errors.reason"] for letter in letters} == {"no such order"}


SHOP = """
import os, time
from sharequeue.worker import Worker

app = Worker({url!r}, lock={lock!r}, set_retries=False)
runs = os.open({runs!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.task({name!r}, group={name!r}, concurrency=2)
def fulfil(order: int) -> None:
    os.write(runs, f"{{order}} {{os.getpid()}}\\n".encode())
    time.sleep({takes_s})
"""


class Shop:
    """Workers of one program, each a process of its own, and the runs of its function."""

    def __init__(self, folder: Path, url: str, name: str, lock: str, takes_s: float) -> None:
        self._folder = folder
        self._runs = folder / "runs"
        self._runs.touch()
        text = SHOP.format(url=url, name=name, runs=str(self._runs), lock=lock, takes_s=takes_s)
        (folder / "shop.py").write_text(text)
        self._workers = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._workers.__enter__()
        self.running = [self.worker() for _ in range(4)]
        return self

    def __exit__(self, *fault: Any) -> None:
        self._workers.__exit__(*fault)

    def worker(self) -> "subprocess.Popen[str]":
        return self._workers.enter_context(work(self._folder, "shop:app"))

    def runs(self) -> list[tuple[int, int]]:
        """(order, process id) of each run, in the order of their begins."""
        return [(int(order), int(pid)) for order, pid in map(str.split, self._runs.read_text().splitlines())]


def stop(worker: "subprocess.Popen[str]") -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0


@pytest.mark.soak
def test_a_rolling_restart_runs_no_order_twice(
    shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """Every five seconds a worker begins beside four, and when it has begun an order, the oldest one is stopped."""
    orders = 0
    with Shop(tmp_path, shared_stack.url, name, "30s", 0.2) as shop:

        def begun(worker: "subprocess.Popen[str]", at: float) -> bool:
            nonlocal orders
            gateway.produce(name, *range(orders, orders + 2))
            orders += 2
            return time.monotonic() > at and worker.pid in {pid for _, pid in shop.runs()}

        for _ in range(RESTARTS):
            shop.running.append(shop.worker())
            wait_until(partial(begun, shop.running[-1], time.monotonic() + RESTART_S), 300)
            stop(shop.running.pop(0))
        wait_until(lambda: gateway.window(name, name) == (orders, []), 600)
        for process in shop.running:
            stop(process)
    runs = shop.runs()
    print("ORDERS", orders, "PROCESSES", len({pid for _, pid in runs}))
    assert sorted(order for order, _ in runs) == [*range(orders)]


@pytest.mark.soak
def test_killed_workers_repeat_what_they_had_in_hand(
    shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    """Workers are killed at 200 moments. Each order is done; a repeat follows the end of its process."""
    moments = random.Random(seed)
    gateway.configure(name, share_delivery_count_limit=10)
    for first in range(0, ORDERS, 1000):
        gateway.produce(name, *range(first, first + 1000))
    killed: list[int] = []

    with Shop(tmp_path, shared_stack.url, name, "2s", 0.02) as shop:
        while len(killed) < KILLS:
            more = len(shop.runs()) + moments.randrange(1, 2 * ORDERS // KILLS)
            wait_until(lambda more=more: len(shop.runs()) >= min(more, ORDERS))
            victim = shop.running.pop(moments.randrange(4))
            victim.kill()
            killed.append(victim.pid)
            shop.running.append(shop.worker())
        wait_until(lambda: gateway.window(name, name) == (ORDERS, []))
        for process in shop.running:
            stop(process)
    done = shop.runs()
    assert {order for order, _ in done} == {*range(ORDERS)}
    last = dict(done)
    repeated = [(order, pid) for order, pid in done if last[order] != pid]
    assert {pid for _, pid in repeated} <= {*killed}
    print("REPEATED", len(repeated))
    assert len(repeated) <= KILLS * IN_HAND
    assert not gateway.http.get(f"/v1/topics/dlq.{name}").is_success
