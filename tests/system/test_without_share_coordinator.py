"""While the share coordinator is away nothing is acquired that nobody could settle, and accepted work stays done.

The lock is shorter than the outage: without the rule, every accepted record would be delivered again.
"""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.event_source import EventSource
from tests.http.calls import Gateway, acknowledge_range, offsets, problem, ranges, wait_until

LOCK_MS = 1_000
OUTAGE_S = 5.0
DEADLINE_MS = 3_000


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    settings = {"SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": str(DEADLINE_MS)}
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    with temporary_stack(tmp_path / "data", **stores, settings=settings) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        yield Gateway(http)


def accepted_after(gateway: Gateway, name: str, first: int, last: int) -> dict[str, Any]:
    """Accept until the outcome is known, as a client does. The first try also makes the locks short: so they end while
    no coordinator is there, and none ends before this."""
    accept = [acknowledge_range(name, first, last, "accept", delivery_count=1)]
    shorter = acknowledge_range(name, first, last, "renew", delivery_count=1, lock_duration_ms=LOCK_MS)
    gateway.try_acknowledge(name, [shorter, *accept])
    while True:
        (result,) = gateway.try_acknowledge(name, accept).json()["results"]
        if result["status"] not in ("unknown", "failed") or not result["retriable"]:
            found: dict[str, Any] = result
            return found
        time.sleep(0.1)


def test_accepted_records_are_never_delivered_again(own_stack: Stack, gateway: Gateway, name: str) -> None:
    """The share coordinator is paused: tests/chaos/test_chaos.py kills it."""
    coordinator = own_stack.service("share coordinator").process
    assert coordinator is not None
    gateway.configure(name, share_record_lock_duration_ms=LOCK_MS)
    gateway.produce(name, *range(20))
    held = gateway.acquire(name, name, max_records=10, acquire_mode="record_limit", lock_duration_ms=60_000)
    assert held == ["0-9×1"]
    coordinator.send_signal(signal.SIGSTOP)
    outcome: list[dict[str, Any]] = []
    accepting = threading.Thread(target=lambda: outcome.append(accepted_after(gateway, name, 0, 9)))
    accepting.start()
    try:
        ends = time.monotonic() + OUTAGE_S
        wait_until(lambda: gateway.try_fetch(name, name, max_records=1, max_wait_ms=0).status_code == 503)
        while time.monotonic() < ends:
            away = problem(gateway.try_fetch(name, name, max_wait_ms=300), 503, "COORDINATOR_NOT_AVAILABLE", 15)
            assert "nothing is acquired while acknowledgements cannot be made durable" in away["detail"]
            gateway.produce(name, "more")
    finally:
        coordinator.send_signal(signal.SIGCONT)
    accepting.join(60)
    assert outcome[0]["status"] in ("applied", "ignored"), "ignored: it was durable between two tries"
    delivered: set[int] = set()

    def ten_is_delivered() -> bool:
        """The fetches before the first 503 may have got it, and its lock ends."""
        delivered.update(offsets(gateway.fetch(name, name, max_wait_ms=5_000)))
        return 10 in delivered

    wait_until(ten_is_delivered)
    assert min(delivered) == 10
    assert gateway.window(name, name)[0] == 10


@pytest.mark.soak
def test_st_061_a_stream_says_that_nothing_can_be_acquired_and_goes_on(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    coordinator = own_stack.service("share coordinator")
    gateway.produce(name, 0)
    source = EventSource(own_stack.url, name, name, window=10)
    assert ranges(source.next().data) == ["0-0×1"]
    coordinator.kill()
    try:
        settling = threading.Thread(target=lambda: gateway.settle(name, name, 0, 0, "accept", delivery_count=1))
        settling.start()
        wait_until(lambda: gateway.try_fetch(name, name, max_records=1, max_wait_ms=0).status_code == 503)
        gateway.produce(name, 1)
        told = source.next(90)  # the fetch that waits learns of it at the end of its wait
        assert (told.kind, told.data["code"], told.data["retriable"]) == (
            "problem",
            "COORDINATOR_NOT_AVAILABLE",
            True,
        )
        assert source.silent(2.0), "the same problem is sent once"
    finally:
        coordinator.start()
    settling.join(60)
    assert ranges(source.next().data) == ["1-1×1"]
    source.cut()
