"""The time that decisions of a service use. The shell reads it once per request and passes milliseconds down."""

import time


class Clock:
    """Milliseconds since the epoch that never go back: a clock that is read once, then the monotonic clock.

    `now_ms`: the present time of a clock that several processes share; without it, this machine's clock is read.
    """

    def __init__(self, now_ms: float | None = None) -> None:
        self._start_ms = (time.time() * 1000 if now_ms is None else now_ms) - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._start_ms + time.monotonic() * 1000)
