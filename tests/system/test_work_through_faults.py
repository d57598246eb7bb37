"""Workers while what they call is away, and while their processes are killed: long runs for `make soak`."""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from sharequeue.stack.stack import Stack
from sharequeue.worker import Context, Reject, Worker
from sharequeue.worker.process import Process
from tests.http.calls import Gateway, wait_until
from tests.system.test_work import work

ORDERS = 5_000
POISON = 50
AWAY_S = 90.0
WAITS_S = (1, 3, 9, 27, 81)
"""The first pauses of a worker's own backoff."""
CLOCKS_S = 0.05
"""How much earlier than its pause a record may seem to come: this process and PostgreSQL measure apart."""
KILLS = 50
IN_HAND = 6
"""The functions of a killed process whose outcomes were not sent, on average: two run, others have just ended."""


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@pytest.mark.soak
def test_an_outage_costs_no_order(stack: Stack, gateway: Gateway, name: str) -> None:
    """The provider is away for 90 s. No record comes before its pause is over, and only poison is a dead letter."""
    asyncio.run(outage(stack, gateway, name))


async def outage(stack: Stack, gateway: Gateway, name: str) -> None:
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
        back_at = back_at or time.monotonic() + AWAY_S
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
    async with asyncio.timeout(AWAY_S + 720):
        await all_paid.wait()
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

app = Worker({url!r}, lock="2s", set_retries=False)
runs = os.open({runs!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.task({name!r}, group={name!r}, concurrency=2)
def fulfil(order: int) -> None:
    os.write(runs, f"{{order}} {{os.getpid()}}\\n".encode())
    time.sleep(0.02)
"""


@pytest.mark.soak
def test_killed_workers_repeat_what_they_had_in_hand(
    shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    """Processes of one worker are killed at 50 moments. Each order is done; a repeat follows the end of its process."""
    moments = random.Random(seed)
    runs = tmp_path / "runs"
    runs.touch()
    (tmp_path / "shop.py").write_text(SHOP.format(url=shared_stack.url, name=name, runs=str(runs)))
    gateway.configure(name, share_delivery_count_limit=10)
    for first in range(0, ORDERS, 1000):
        gateway.produce(name, *range(first, first + 1000))
    killed: list[int] = []

    def lines() -> list[tuple[int, int]]:
        return [(int(order), int(pid)) for order, pid in map(str.split, runs.read_text().splitlines())]

    with contextlib.ExitStack() as workers:
        running = [workers.enter_context(work(tmp_path, "shop:app")) for _ in range(4)]
        while len(killed) < KILLS:
            more = len(lines()) + moments.randrange(1, 2 * ORDERS // KILLS)
            wait_until(lambda more=more: len(lines()) >= min(more, ORDERS))
            victim = running.pop(moments.randrange(4))
            victim.kill()
            killed.append(victim.pid)
            running.append(workers.enter_context(work(tmp_path, "shop:app")))
        wait_until(lambda: gateway.window(name, name) == (ORDERS, []))
        for process in running:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
    done = lines()
    assert {order for order, _ in done} == {*range(ORDERS)}
    last = dict(done)
    repeated = [(order, pid) for order, pid in done if last[order] != pid]
    assert {pid for _, pid in repeated} <= {*killed}
    print("REPEATED", len(repeated))
    assert len(repeated) <= KILLS * IN_HAND
    assert not gateway.http.get(f"/v1/topics/dlq.{name}").is_success
