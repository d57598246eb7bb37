"""A gateway whose machine has a wrong clock: locks, delays, retention and keys go by PostgreSQL's."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.http.calls import Gateway, wait_until

HOURS = 28
AHEAD = f"""
import runpy, sys, time
right, right_ns = time.time, time.time_ns
time.time = lambda: right() + {HOURS} * 3600
time.time_ns = lambda: right_ns() + {HOURS} * 3600 * 10**9
module = sys.argv[1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Gateways that are started have a wrong clock as long as this holds `[True]`."""
    usual: Callable[..., Any] = ServiceProcess.popen
    ahead = [True]

    def popen(command: Sequence[str], **options: Any) -> Any:
        module = command[-1]
        if module != "sharequeue_gateway" or not ahead[0]:
            return usual(command, **options)
        return subprocess.Popen([sys.executable, "-P", "-c", AHEAD, module], **options)

    monkeypatch.setattr(ServiceProcess, "popen", staticmethod(popen))
    return ahead


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str, redis_url: str, wrong: list[bool]) -> Iterator[Stack]:
    settings = {"SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "200"}
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    with temporary_stack(tmp_path / "data", **stores, settings=settings) as stack:
        yield stack


@pytest.mark.soak
def test_a_wrong_clock_removes_no_record_and_delays_none(own_stack: Stack, wrong: list[bool]) -> None:
    with httpx.Client(base_url=own_stack.url, timeout=40) as http:
        gateway = Gateway(http)
        gateway.create_topic("t", **{"retention.ms": 3_600_000})
        gateway.create_topic("full", **{"retention.bytes": 1})
        now_ms = int(time.time() * 1000)
        gateway.produce("t", 1, 2, 3, timestamp_ms=now_ms)
        gateway.produce_batches("full", 1, 1)
        gateway.produce("full", "x")
        wait_until(lambda: gateway.describe_topic("full")["partitions"][0]["log_start_offset"] == 2)
        assert gateway.read("full", offset=2)["records"][0]["timestamp_ms"] > now_ms + 3_600_000, "its clock is wrong"
        assert gateway.describe_topic("t")["partitions"][0]["log_start_offset"] == 0

        gateway.configure("g", **{"share.auto.offset.reset": "by_duration:PT1H"})
        one = {"max_records": 1, "acquire_mode": "record_limit"}
        (batch,) = gateway.fetch("g", "t", **one)["batches"]
        assert batch["first_offset"] == 0, "what was produced within the last hour"
        assert abs(batch["lock_expires_at_ms"] - now_ms) < 3_600_000
        assert gateway.settle("g", "t", 0, 0, "release", delay_ms=100) == "applied"
        process = own_stack.service("gateway")
        process.kill()
        wrong[0] = False
        process.start()
        wait_until(process.ready)
        wait_until(lambda: gateway.acquire("g", "t", member="m2", **one) == ["0-0×2"])
