"""One call that acknowledges and fetches, the same for a client and for another gateway.

acknowledgements ──▶ applied, then written ─────────────────▶ results ──╮
                         │ what they free can be acquired               ├──▶ answer, unless the client is gone
fetch                    ╰──▶ acquires, or waits ──▶ records ───────────╯
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue_gateway.delivery.waiting import WaitingFetch

T = TypeVar("T")

Acknowledging = Coroutine[None, None, list[AcknowledgementResult]]


async def acknowledge_and_fetch(
    waiting: WaitingFetch,
    acknowledging: Acknowledging | None,
    fetching: Coroutine[None, None, T],
    give_back: Callable[[T], Awaitable[None]],
) -> tuple[T, list[AcknowledgementResult] | None]:
    """Apply the acknowledgements, and fetch while they are written. If the client is gone, give the records back.

    Returns: the result of the fetch, and those of the acknowledgements (None if there are none).
    """
    results = None
    try:
        outcomes = None
        if acknowledging is not None:
            outcomes = waiting.start_acknowledging(acknowledging)
            await asyncio.sleep(0)  # applied first: the fetch can acquire the records that they free
        fetched = await fetching
        if outcomes is not None:
            results = await outcomes
        if waiting.gone():
            await give_back(fetched)
        return fetched, results
    finally:
        waiting.close()
