"""Renewal of locks by the client, on both event loops: uvloop has no timer object for a call that is due at once."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from sharequeue.client.consuming.acknowledging import Acknowledging
from sharequeue.client.consuming.renewing import Renewing
from sharequeue_http.calling.caller import Client
from tests.fetched import delivery_of

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_renewal_due_at_once_may_be_followed_by_others(run: Run) -> None:
    async def work() -> None:
        client = Client("http://127.0.0.1:9")
        renewing = Renewing(Acknowledging(client, "g", "m", 30.0), {}, 300.0, lambda: None, True)
        now = time.monotonic()
        renewing.held(delivery_of(0, 0), now, urgent=True)
        renewing.held(delivery_of(1, 1), now, urgent=False)
        renewing.held(delivery_of(2, 2), now, urgent=True)
        await renewing.close()
        await client.close()

    run(work())
