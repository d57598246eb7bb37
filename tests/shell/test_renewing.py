"""Renewal of locks by the client, on both event loops: uvloop has no timer object for a call that is due at once."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from sharequeue.client.consuming.acknowledging import Acknowledging
from sharequeue.client.consuming.deliveries import Delivery
from sharequeue.client.consuming.renewing import Renewing
from sharequeue.protocol.messages.records import FetchedBatch
from sharequeue_http.calling.caller import Client

Run = Callable[[Coroutine[Any, Any, None]], None]


def delivery(offset: int) -> Delivery:
    batch = FetchedBatch(
        topic="t",
        topic_id="id",
        partition=0,
        first_offset=offset,
        last_offset=offset,
        delivery_count=1,
        lock_expires_at_ms=0,
        lock_duration_ms=30_000,
        attempt=1,
        records=[],
    )
    return Delivery(batch)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_renewal_due_at_once_may_be_followed_by_others(run: Run) -> None:
    async def work() -> None:
        client = Client("http://127.0.0.1:9")
        renewing = Renewing(Acknowledging(client, "g", "m", 30.0), {}, 300.0, lambda: None, True)
        now = time.monotonic()
        renewing.held(delivery(0), now, urgent=True)
        renewing.held(delivery(1), now, urgent=False)
        renewing.held(delivery(2), now, urgent=True)
        await renewing.close()
        await client.close()

    run(work())
