"""Three gateways, two coordinators of each kind, eight consumers and four producers, while any of it is broken.

Two of the gateways have wrong clocks.
"""

import asyncio
import random
from collections import Counter

import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.checker import check, report
from tests.chaos.nemesis import Step
from tests.chaos.run import PAUSE_S, Run
from tests.kafka_log.brokers import Brokers
from tests.wrong_clocks import set_clocks

SOAK_S = 180.0
KAFKA_S = 600.0
KILLED = ("gateway", "group coordinator", "share coordinator", "PostgreSQL", "Redis")
BLOW_S = 1.5
"""Between one blow and the next one."""


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of two gateways have clocks that are an hour ahead and an hour behind."""
    set_clocks(monkeypatch, {"gateway-0": 1, "gateway-2": -1})


def judge(run: Run, seed: int) -> None:
    history = run.history
    violations = check(history)
    delivered = sum(len(range_.values) for fetch in history.fetched for range_ in fetch.ranges)
    print(
        f"seed {seed}: {len(history.produced)} produce requests, {len(history.fetched)} fetches, {delivered} deliveries, "
        f"{len(history.acknowledged)} acknowledgements, {len(history.dead_letters)} dead letters, "
        f"{len(history.resets)} resets, {len(history.without_redis)} windows without Redis"
    )
    last = {end.transaction: end.state for end in sorted(history.ends, key=lambda end: end.span.ended_s)}
    states = Counter(last.values())
    print(f"transactions: {dict(states)}; {len(history.committed_reads)} reads of committed records")
    print(*(f"{step.at_s:7.2f} s: {step.action} {step.victim} for {step.hold_s} s" for step in run.steps), sep="\n")
    assert not violations, f"seed {seed}: {report(history, violations)}"
    assert not run.complaints, f"seed {seed}: " + "\n".join(run.complaints)
    assert delivered > 100
    assert history.in_kafka or min(states["committed"], states["aborted"]) > 0


def test_every_promise_holds_while_each_part_is_killed(cluster_with_stores: Stack, seed: int) -> None:
    """In a random order; one gateway is paused beyond its lease, another one restarts."""
    order = random.Random(seed)
    blows = [(name, "kill", 0.5) for name in KILLED] + [("gateway 2", "pause", PAUSE_S), ("gateway 3", "restart", 0.5)]
    order.shuffle(blows)
    steps = [Step(BLOW_S * number, *blow) for number, blow in enumerate(blows, start=1)]

    async def go() -> Run:
        run = Run(cluster_with_stores, seed, BLOW_S * len(steps), stores=True, resets=1)
        run.steps = steps
        await run.run()
        return run

    judge(asyncio.run(go()), seed)


@pytest.mark.soak
def test_every_promise_holds_for_three_minutes(cluster_with_stores: Stack, seed: int) -> None:
    async def go() -> Run:
        run = Run(cluster_with_stores, seed, SOAK_S, stores=True, resets=4)
        await run.run()
        return run

    judge(asyncio.run(go()), seed)


@pytest.mark.soak
def test_every_promise_holds_on_three_brokers_for_ten_minutes(
    cluster_on_kafka: Stack, three_brokers: Brokers, seed: int
) -> None:
    """Brokers are killed, paused and cut off, too."""

    async def go() -> Run:
        run = Run(cluster_on_kafka, seed, KAFKA_S, stores=False, resets=6, brokers=three_brokers)
        await run.run()
        return run

    judge(asyncio.run(go()), seed)
