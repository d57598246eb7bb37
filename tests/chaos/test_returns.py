"""Topics made again, grown and emptied, groups that begin at `latest`, a PostgreSQL that goes back; under faults."""

import asyncio

import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.checker import report
from tests.chaos.returns import Run
from tests.chaos.returns_checker import check

RUN_S = 180.0


def judge(run: Run) -> None:
    asyncio.run(run.run())
    print(run.told())
    print(
        *(f"{fault.at_s:7.2f} s: {fault.action} {fault.victim} for {fault.hold_s} s" for fault in run.faults), sep="\n"
    )
    history, violations = run.history, check(run.history)
    assert not violations, report(history, violations)
    assert not run.complaints, "\n".join(run.complaints)
    assert min(map(len, (history.accepted, history.deleted, history.sized, history.trimmed, history.latest))) > 0


@pytest.mark.soak
def test_what_returns_is_told_apart_under_faults(cluster_with_stores: Stack, seed: int) -> None:
    judge(Run(cluster_with_stores, seed, RUN_S))
