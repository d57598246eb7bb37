"""Decides how many records a consumer asks for if its program names no number. No IO; times are given.

A fetch locks all that it returns, so a consumer with many slow records keeps them from the others of its group.
It asks for what its program handles within `DEALT_S`, by the time that the records before took: so no consumer has
nothing to do while another one has more work waiting than that.
"""

from typing import Final

DEALT_S: Final = 0.2
FIRST_OF_LOOP: Final = 1
FIRST_OF_POLL: Final = 10
"""What is asked for first. A program that polls once may expect all records of a small topic."""
GROWTH: Final = 4
"""A fetch asks for at most so many times what the one before asked for."""
MOST: Final = 500


class Dealing:
    """Measures the time from the hand-out of records until the program asks for more."""

    def __init__(self) -> None:
        self._max_records = 0
        self._count = 0
        self._since = 0.0

    def handed_out(self, count: int, now: float) -> None:
        """The program got so many records."""
        self._count, self._since = count, now

    def asked(self, now: float, first: int) -> int:
        """The program wants more: what it got before is done. Returns: how many to ask for, `first` the first time."""
        self._max_records = self._max_records or first
        if self._count:
            fit = self._count * DEALT_S / max(now - self._since, 1e-6)
            self._max_records = max(1, min(int(fit), GROWTH * self._max_records, MOST))
            self._count = 0
        return self._max_records
