"""The time that a service decides by. The shell reads it once at the edge and passes milliseconds down."""

import time


class Clock:
    """Milliseconds since the epoch that never go back: a clock read once, then the monotonic one.

    `now_ms`: what the clock that several processes share says now; without it, the wall clock of this machine.
    """

    def __init__(self, now_ms: float | None = None) -> None:
        self._start_ms = (time.time() * 1000 if now_ms is None else now_ms) - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._start_ms + time.monotonic() * 1000)
