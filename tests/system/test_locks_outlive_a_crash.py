"""kill -9 of the gateway: whoever holds records goes on holding them, and delivery counts go on."""

from collections.abc import Callable

import httpx
import pytest

from sharequeue.stack import Stack
from tests.http.calls import Gateway, acknowledge_range, outcomes, wait_until


@pytest.fixture
def gateway(client: httpx.Client) -> Gateway:
    return Gateway(client)


@pytest.fixture
def crash(stack: Stack) -> Callable[[], None]:
    """Kill the gateway and wait until its successor serves."""
    service = stack.service("gateway")

    def kill_and_start() -> None:
        service.kill()
        service.start()
        wait_until(service.ready)

    return kill_and_start


def test_two_members_hold_parts_of_what_one_of_them_fetched(
    gateway: Gateway, crash: Callable[[], None], name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    assert gateway.acquire(name, name) == ["0-9×1"]
    assert gateway.settle(name, name, 0, 3, "release") == "applied"
    assert gateway.acquire(name, name, member="m2", max_records=4, acquire_mode="record_limit") == ["0-3×2"]
    crash()
    assert gateway.acquire(name, name, member="m3") == []
    assert gateway.settle(name, name, 4, 6, "release", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 7, 9, "accept", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 0, 1, "accept", member="m2", delivery_count=2) == "applied"
    assert gateway.acquire(name, name, member="m3") == ["4-6×2"]
    crash()
    assert gateway.settle(name, name, 2, 3, "accept", member="m2", delivery_count=2) == "applied"
    assert gateway.settle(name, name, 4, 6, "accept", member="m3", delivery_count=2) == "applied"
    assert gateway.window(name, name) == (10, [])


def test_a_part_that_was_renewed_leaves_the_rest_held(gateway: Gateway, crash: Callable[[], None], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 3, "renew") == "applied"
    crash()
    assert gateway.settle(name, name, 0, 9, "accept", delivery_count=1) == "applied"


def test_many_renewals_leave_every_lock(gateway: Gateway, crash: Callable[[], None], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(100))
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, max_records=100)
    assert gateway.acquire(name, name, member="m2") == ["100-109×1"]
    for number in range(90):
        renewals = [acknowledge_range(name, number, last, "renew") for last in range(number, number + 10)]
        assert set(outcomes(gateway.try_acknowledge(name, renewals))) == {"applied"}
    crash()
    assert gateway.settle(name, name, 0, 99, "accept", delivery_count=1) == "applied"
    assert gateway.settle(name, name, 100, 109, "accept", member="m2", delivery_count=1) == "applied"
