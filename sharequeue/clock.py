"""The clock of a service's decisions. The shell reads it, and passes milliseconds down."""

import time


class Clock:
    """Milliseconds since the epoch that never go back: a clock is read once, and the monotonic clock adds to it.

    `now_ms`: the present time of a clock that several processes share. None: the clock of this machine is read.
    """

    def __init__(self, now_ms: float | None = None) -> None:
        self._start_ms = (time.time() * 1000 if now_ms is None else now_ms) - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._start_ms + time.monotonic() * 1000)
