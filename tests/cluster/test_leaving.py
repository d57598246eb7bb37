"""A gateway that leaves says so first, and serves on for as long as a load balancer may need to notice.

That time is an hour here, so what ends before it did not wait for it.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.cluster.calls import acknowledge, fetch, make_topic, places, produce
from tests.http.calls import HANG_S, LONG_MS, wait_until


@pytest.fixture
def stack(tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]) -> Iterator[Stack]:
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    settings = {"SHAREQUEUE_GATEWAY_DRAIN_MS": "3600000"}
    with temporary_stack(tmp_path / "data", **stores, gateways=2, settings=settings) as stack:
        yield stack


@pytest.mark.soak
def test_a_leaving_gateway_serves_until_the_last_one_leaves(stack: Stack, name: str) -> None:
    gateways = [service for service in stack.services if service.name.startswith("gateway")]
    first, second = (service.process for service in gateways)
    assert first is not None
    assert second is not None
    with httpx.Client(base_url=gateways[0].url, timeout=HANG_S, verify=False) as leaving:
        first.send_signal(signal.SIGTERM)
        wait_until(lambda: leaving.get("/readyz").status_code == 503, HANG_S)
        strict = leaving.get("/readyz?strict=true").json()
        assert strict["dependencies"]["gateway"] == "is stopping"
        assert "gateway" in strict["lacks"], "no other gateway counts on it"
        make_topic(leaving, name, 4)
        for partition in range(4):
            produce(leaving, name, partition, 1)
        wanted: set[tuple[int, int]] = set()
        while len(wanted) < 4:
            held = fetch(leaving, name, topics=[name], member_id="m", max_wait_ms=LONG_MS)
            wanted |= places(held)
            acknowledge(leaving, name, held)
        assert first.poll() is None
        second.send_signal(signal.SIGTERM)
        assert first.wait(HANG_S) == second.wait(HANG_S) == 0
