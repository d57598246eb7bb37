"""The record in hand, as a function sees it beside the payload."""

import time

from sharequeue.client import Record


class Context:
    """The record in hand: a function that takes a second argument gets one.

    `record`: with its place, key and headers. `attempt`: 1 for the first. `lost`: the lock has ended or the time is
    over, so another worker may get the record; a plain function that sees it should stop.
    """

    __slots__ = ("deadline", "lost", "record")

    def __init__(self, record: Record, timeout_s: float) -> None:
        self.record = record
        self.deadline = time.monotonic() + timeout_s
        self.lost = False

    @property
    def attempt(self) -> int:
        return self.record.attempt

    @property
    def headers(self) -> dict[str, str]:
        return self.record.headers

    @property
    def remaining_s(self) -> float:
        """Seconds until the function's time is over; at least 0."""
        return max(0.0, self.deadline - time.monotonic())
