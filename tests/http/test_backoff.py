"""The group's backoff over HTTP: which releases wait, and which do not."""

import pytest

from sharequeue.client import ShareConsumer
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.http.client_calls import in_event_loop, produce

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def delays_ms(gateway: Gateway, name: str) -> list[tuple[int, int]]:
    """(first offset, end of the delay) of each delayed batch in flight."""
    (found,) = gateway.in_flight(name, topic=name)
    return [
        (batch["first_offset"], batch["available_at_ms"]) for batch in found["batches"] if "available_at_ms" in batch
    ]


def test_a_release_without_a_delay_waits_as_the_group_says(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_retry_backoff_ms=f"{HOUR_MS},{2 * HOUR_MS}", share_retry_jitter_percent=0)
    gateway.produce_batches(name, 3)
    (batch,) = gateway.fetch(name, name)["batches"]
    taken_ms = batch["lock_expires_at_ms"] - batch["lock_duration_ms"]
    assert gateway.settle(name, name, 0, 0, "release") == "applied"
    assert gateway.settle(name, name, 1, 1, "release", delay_ms=60_000) == "applied"
    assert gateway.settle(name, name, 2, 2, "release", delay_ms=0) == "applied"
    (first, waits_ms), (second, delayed_ms) = delays_ms(gateway, name)
    assert (first, second) == (0, 1)
    assert HOUR_MS <= waits_ms - taken_ms < HOUR_MS + 30_000
    assert waits_ms % 100 == 0
    assert 60_000 <= delayed_ms - taken_ms < 90_000
    assert gateway.acquire(name, name) == ["2-2×2"]


@in_event_loop
async def test_a_consumer_that_closes_puts_no_wait_on_what_it_holds(stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_retry_backoff_ms=HOUR_MS)
    await produce(stack, name, 0, 1, 2)
    async with ShareConsumer(stack.url, name, [name], acknowledgement="deferred") as consumer:
        failed, soon, _ = await consumer.poll()
        consumer.acknowledge(failed, "release")
        consumer.acknowledge(soon, "release", delay_ms=0)
    assert [first for first, _ in delays_ms(gateway, name)] == [0]
    assert gateway.acquire(name, name) == ["1-2×2"]
