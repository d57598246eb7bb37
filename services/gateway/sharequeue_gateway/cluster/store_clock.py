"""Keeps the clock of this gateway on PostgreSQL's, which all gateways share: deadlines of locks and delays are by it.

    asked ├──────── round trip ────────┤ answered with s
                                       now: PostgreSQL's clock shows s at least, and s + the round trip at most

Between two questions the monotonic clock of this machine goes on. An answer moves the clock only if it is outside of
these bounds, and then to the nearer one. So a slow answer moves it little,
and no answer moves it away from the true time.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from sharequeue.clock import Clock
from sharequeue.repeats import Every
from sharequeue_gateway import metrics
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

ASK_PAUSE_S: Final = 10.0
JUMP_MS: Final = 1000
"""A move above this is a jump: of a clock that somebody set, or of a machine that slept."""


async def keep_clock(clock: Clock, ask: Callable[[], Awaitable[float]]) -> None:
    """Ask for PostgreSQL's time again and again. Never returns.

    Args:
        ask: answers milliseconds since the epoch. Raises: ApiError: there is no answer now; the clock goes on.
    """
    async for _ in Every(ASK_PAUSE_S):
        await adjust(clock, ask)


async def adjust(clock: Clock, ask: Callable[[], Awaitable[float]]) -> None:
    """Ask once, and move the clock if it must."""
    asked_s = time.monotonic()
    try:
        store_ms = await ask()
    except ApiError as error:
        log.info("cannot ask PostgreSQL for its time; trying again", extra=fields(cause=error.detail))
        return
    moved_ms = clock.keep_within(store_ms, store_ms + (time.monotonic() - asked_s) * 1000)
    if abs(moved_ms) > JUMP_MS:
        metrics.CLOCK_JUMPS.inc()
        log.warning(
            "the difference to PostgreSQL's clock changed; locks and delays follow PostgreSQL's time",
            extra=fields(moved_ms=round(moved_ms)),
        )
