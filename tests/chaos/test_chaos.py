"""Three gateways, two coordinators of each kind, eight consumers and four producers, while any of it is broken.

Two of the gateways have wrong clocks.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.chaos.checker import check, report
from tests.chaos.run import SETTINGS, Run
from tests.wrong_clocks import set_clocks

SLICE_S, SOAK_S = 12.0, 180.0
CLUSTER: dict[str, Any] = {"gateways": 3, "coordinators": 2, "share_coordinators": 2, "settings": SETTINGS}


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of two gateways have clocks that are an hour ahead and an hour behind."""
    set_clocks(monkeypatch, {"gateway-0": 1, "gateway-2": -1})


@pytest.fixture
def cluster(tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]) -> Iterator[Stack]:
    with temporary_stack(tmp_path / "data", postgres_url=new_database(), redis_url=new_redis(), **CLUSTER) as stack:
        yield stack


@pytest.fixture
def cluster_with_stores(tmp_path: Path) -> Iterator[Stack]:
    """The stores are its own: they may be broken too."""
    with temporary_stack(tmp_path / "data", **CLUSTER) as stack:
        yield stack


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
    assert min(states["committed"], states["aborted"]) > 3


def test_every_promise_holds_while_services_die_pause_and_restart(cluster: Stack, seed: int) -> None:
    async def go() -> Run:
        run = Run(cluster, seed, SLICE_S, stores=False, resets=1)
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
