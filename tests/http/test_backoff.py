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
