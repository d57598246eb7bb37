"""Paces the refusals of callers that nobody knows, so that a flood of wrong keys costs no more than some of them.

    a refusal ─┬─ the first PER_S of a second ──▶ answered at once
               ├─ some wait, MOST_S at most ────▶ answered in its turn; till then its connection is not read
               ├─ more wait ────────────────────▶ they share the later half of these turns
               └─ `most` wait ──────────────────▶ answered at once, and its connection ends

So a client that opens many connections waits on most of them. One whose connection ended would open another at once. A
caller that is known never waits here, and a proxy sends its request on another connection.
"""

import asyncio
import time
from typing import Final

from sharequeue_http.exchange import Exchange

PER_S: Final = 250
BURST_S: Final = 0.2
MOST_S: Final = 4.0
"""A service that stops waits no longer for a refusal."""


class Pace:
    """The turns of the refusals of one server. `most`: how many wait at a time, whatever their turns: the server's
    `Edge` says it."""

    def __init__(self) -> None:
        self.most = 0
        self.waiting = 0
        self._turn_s = 0.0
        """The turn of the next one, by a clock that is BURST_S fast."""

    def next_s(self, now_s: float) -> float | None:
        """Give the seconds that the next refusal waits; None: too many wait already."""
        wait_s = max(self._turn_s - now_s, 0.0) - BURST_S
        if wait_s > MOST_S:
            wait_s = MOST_S / 2
        if wait_s > 0 and self.waiting >= self.most:
            return None
        self._turn_s = now_s + BURST_S + wait_s + 1 / PER_S
        return max(wait_s, 0.0)

    async def hold(self, exchange: Exchange) -> None:
        """Return when a refusal may be answered."""
        wait_s = self.next_s(time.monotonic())
        if wait_s is None:
            exchange.keep_alive = False
        elif wait_s:
            exchange.set_aside()
            self.waiting += 1
            try:
                await asyncio.sleep(wait_s)
            finally:
                self.waiting -= 1
