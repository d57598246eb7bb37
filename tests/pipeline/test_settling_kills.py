"""From a group to a topic while whoever takes part is killed in each phase of a micro-batch: each record once."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway
from tests.pipeline.conftest import wait_for
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_cluster import kill
from tests.pipeline.test_sink_kills import driven, each_once, task_workers
from tests.pipeline.test_source import produce, settled
from tests.pipeline.test_transactional_sink import committed, open_transactions

PHASES = {"acquire": "/fetch", "begin": "/v1/transactions", "write": "/records", "commit": "/commit", "end": "/commit"}
"""The path of the request that is under way at the kill. In `end` the commit has happened, and its answer was lost."""
ROUNDS = 2
RECORDS = 1200


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    with temporary_stack(tmp_path / "stack") as stack:
        yield stack


class Killer:
    """Kills one victim in one phase: the rule of a proxy."""

    def __init__(self, stack: Stack, victim: str, phase: str) -> None:
        self._stack, self._victim, self._phase = stack, victim, phase
        self.driver: subprocess.Popen[str] | None = None
        self.done = False
        self._lost = False

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> Instead | None:
        if self.done or self.driver is None or method != "POST" or not path.endswith(PHASES[self._phase]):
            return None
        if self._phase == "end" and not self._lost:
            self._lost = True
            return Instead(503, {"Retry-After": "0"}, after=True)
        if self._victim == "task":
            workers = task_workers(self.driver)
            for worker in workers:
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
            self.done = bool(workers)
            return None
        self.done = True
        if self._victim == "driver":
            kill(self.driver)
        else:
            service = self._stack.service(self._victim)
            service.kill()
            service.start()
        return None


def wait_for_kill(killer: Killer, driver: subprocess.Popen[str], proxy: Proxy, what: str) -> None:
    """Wait until the victim was killed, or the driver has ended: for the next call of a phase, again and again."""

    def calls() -> int:
        return sum(path.endswith(tuple(PHASES.values())) for _, path, _ in proxy.requests)

    while not killer.done and driver.poll() is None:
        before = calls()
        wait_for(
            lambda n=before: killer.done or driver.poll() is not None or calls() > n, f"{what}: the next call", 600
        )


@pytest.mark.soak
@pytest.mark.usefixtures("spark_home")
@pytest.mark.parametrize("victim", ["driver", "task", "gateway", "share coordinator"])
def test_each_record_is_in_the_output_once(own_stack: Stack, name: str, tmp_path: Path, victim: str) -> None:
    """The rows differ at each run, and locks may end while a driver starts again."""
    with httpx.Client(base_url=own_stack.url, timeout=60) as http, Proxy(own_stack.url).running() as proxy:
        gateway = Gateway(http)
        produce(gateway, f"{name}-in", RECORDS, partitions=2)
        gateway.create_topic(name, 2)
        gateway.configure(f"{name}-in", share_record_lock_duration_ms=8000, share_delivery_count_limit=10)
        killed: list[str] = []
        driver = driven(tmp_path, "settling", proxy.url, f"{name}-in", name, tmp_path, 60)
        try:
            for phase in [*PHASES] * ROUNDS:
                proxy.rule = killer = Killer(own_stack, victim, phase)
                while not killer.done:
                    if driver.poll() is not None:
                        driver = driven(tmp_path, "settling", proxy.url, f"{name}-in", name, tmp_path, 60)
                    killer.driver = driver
                    wait_for_kill(killer, driver, proxy, f"{victim}, {phase}")
                    assert killer.done or driver.returncode, "the driver has read everything"
                killed.append(phase)
            while driver.wait(600) != 0:  # it was killed, or a lock ended on a busy machine
                driver = driven(tmp_path, "settling", proxy.url, f"{name}-in", name, tmp_path, 60)
        finally:
            kill(driver)
        assert killed == [*PHASES] * ROUNDS
        wait_for(lambda: settled(gateway, f"{name}-in", f"{name}-in"), "every record is settled", 60)
        each_once(committed(gateway, name), RECORDS)
        assert open_transactions(gateway) == []
