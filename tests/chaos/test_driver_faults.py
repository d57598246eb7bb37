"""The drivers of both stores fail inside, at each of their calls: no loop ends, and every promise holds."""

import asyncio
import re
from pathlib import Path

import pytest

from sharequeue.stack.stack import Stack
from tests import driver_faults
from tests.chaos.checker import check, report
from tests.chaos.run import Run

RUN_S = 12.0
LEAST_PLANTED = 60
"""So many different faults at least."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "begun"
    driver_faults.plant(monkeypatch, file)
    return file


@pytest.mark.soak
def test_every_promise_holds_while_drivers_fail_inside(begun: Path, cluster: Stack, tmp_path: Path, seed: int) -> None:
    async def go() -> Run:
        run = Run(cluster, seed, RUN_S, stores=False, resets=1)
        run.steps = []
        await run.run()
        return run

    begun.touch()
    run = asyncio.run(go())
    violations = check(run.history)
    assert not violations, f"seed {seed}: {report(run.history, violations)}"
    assert not run.complaints, f"seed {seed}: " + "\n".join(run.complaints)
    logs = "".join(log.read_text() for log in (tmp_path / "data" / "logs").glob("*.log"))
    planted = set(re.findall(r"^planted .*", logs, re.MULTILINE))
    print(*sorted(planted), sep="\n")
    assert len(planted) >= LEAST_PLANTED
    assert {"planted before read_response", "planted behind send_packed_command"} <= planted
