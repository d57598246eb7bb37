"""A state write whose outcome is not known: what was given up is loaded again, and nobody waits for that without end."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sharequeue.stack import Stack
from tests.http.calls import Gateway, acknowledge_range, good, problem, wait_until


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack with stores of its own, which a test may break; the outcome of a write is given up soon."""
    stack = Stack(tmp_path / "data", settings={"SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": "500"})
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        if stack.postgres is not None:
            stack.postgres.remove()


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        yield Gateway(http)


@contextmanager
def paused(stack: Stack, name: str) -> Iterator[None]:
    process = stack.service(name).process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def lose_an_outcome(stack: Stack, gateway: Gateway) -> None:
    """Accept record 0 of `orders` in a way that nobody can tell whether it was accepted."""
    with paused(stack, "share coordinator"):
        response = gateway.try_acknowledge("g", [acknowledge_range("orders", 0, 0, "accept")])
    assert response.json()["definite"] is False


def test_nobody_waits_for_a_leader_epoch_without_end(own_stack: Stack, gateway: Gateway) -> None:
    gateway.produce("orders", "one", "two")
    assert gateway.acquire("g", "orders") == ["0-1×1"]
    own_stack.service("group coordinator").kill()
    lose_an_outcome(own_stack, gateway)

    started = time.monotonic()
    refused = problem(gateway.try_fetch("g", "orders"), 503, "COORDINATOR_LOAD_IN_PROGRESS", 14)
    assert time.monotonic() - started < 9
    assert (refused["retriable"], refused["definite"]) == (True, True)
    accept = [acknowledge_range("orders", 0, 1, "accept", delivery_count=1)]
    problem(gateway.try_acknowledge("g", accept), 503, "COORDINATOR_NOT_AVAILABLE", 15)
    assert time.monotonic() - started < 30

    own_stack.service("group coordinator").start()
    wait_until(lambda: gateway.try_fetch("g", "orders").status_code == 200, 30)
    results = good(gateway.try_acknowledge("g", accept))["results"]
    assert [result["status"] for result in results] == ["applied"]


def test_what_was_given_up_comes_back_though_nobody_asks(own_stack: Stack, gateway: Gateway) -> None:
    """Without Redis nobody reminds of the lock either."""
    gateway.configure("g", share_record_lock_duration_ms=1_000)
    gateway.produce("orders", "one", "two")
    assert own_stack.redis is not None
    own_stack.redis.kill()
    assert gateway.acquire("g", "orders") == ["0-1×1"]
    assert _loaded(gateway) == 1
    lose_an_outcome(own_stack, gateway)
    assert _loaded(gateway) == 0
    wait_until(lambda: _loaded(gateway) == 1, 30)
    either = ((1, ["1-1 AVAILABLE×1"]), (0, ["0-1 AVAILABLE×1"]))
    wait_until(lambda: gateway.window("g", "orders") in either)


def _loaded(gateway: Gateway) -> int:
    return int(gateway.metrics()["sharequeue_led_share_partitions"])
