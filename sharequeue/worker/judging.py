"""Decides by the last outcomes of a task whether it goes on, slows down or stops. No IO; times are given."""

from collections import deque
from typing import Final

from sharequeue.worker.outcomes import MISMATCH, REJECT, Verdict

WINDOW: Final = 50
MISMATCHES: Final = 20
"""So many payloads of the last `WINDOW` that do not fit: a deployment is at fault, and not the records."""
SLOW_S: Final = 1.0
"""The pause between two records of a task that is slowed down."""


class Mismatches:
    """Counts the payloads that did not fit."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=WINDOW)

    def note(self, *, fits: bool) -> bool:
        """Note one payload. Returns: whether the task must stop."""
        self._last.append(fits)
        return self._last.count(False) >= MISMATCHES if not fits else False


class Breaker:
    """Slows a task down after `limit` failures of one kind in a row, until one record succeeds. 0: never."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kind = ""
        self._count = 0
        self._next_at = 0.0

    @property
    def open(self) -> bool:
        return 0 < self._limit <= self._count

    def note(self, verdict: Verdict) -> bool:
        """Note an outcome. Returns: whether this one opened the breaker.

        A reject says that its record is at fault, and a record that was not begun says nothing: neither counts.
        """
        kind, was_open = verdict.kind, self.open
        if verdict.type == REJECT or not verdict.begun or kind == MISMATCH:
            return False
        self._count = self._count + 1 if kind and kind == self._kind else int(bool(kind))
        self._kind = kind
        if was_open and kind:  # a failure of another kind is no success
            self._count = max(self._count, self._limit)
        return self.open and not was_open

    def may_start(self, now_s: float) -> bool:
        """Tell whether one more record may start; if so, the next one waits."""
        if not self.open:
            return True
        if now_s < self._next_at:
            return False
        self._next_at = now_s + SLOW_S
        return True
