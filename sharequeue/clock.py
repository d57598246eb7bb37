"""The clock of a service's decisions. The shell reads it, and passes milliseconds down."""

import time


class Clock:
    """Milliseconds since the epoch: a clock is read once, and the monotonic clock of this machine adds to it.

    They never go back, except by `keep_within`.

    `now_ms`: the present time of a clock that several processes share. None: the clock of this machine is read.
    """

    def __init__(self, now_ms: float | None = None) -> None:
        self._start_ms = (time.time() * 1000 if now_ms is None else now_ms) - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._start_ms + time.monotonic() * 1000)

    def keep_within(self, earliest_ms: float, latest_ms: float) -> float:
        """The shared clock shows a time within these bounds now: move to the nearest bound if this clock is outside.

        Returns: by how much it moved, 0 if it did not.
        """
        now_ms = self._start_ms + time.monotonic() * 1000
        moved_ms = min(max(now_ms, earliest_ms), latest_ms) - now_ms
        self._start_ms += moved_ms
        return moved_ms
