"""Bounds the part of a pool that each caller may have. No IO, no clock: callers pass the time in.

One caller may have all of a pool while nobody else uses it. While another one does, each has a part at most. A caller
that was refused because the pool was full uses it for a while, too: so it gets its part as the others' uses end.
"""

from collections.abc import Callable
from typing import Final

from sharequeue_http.forms.errors import ApiError, Throttled

WANTED_S: Final = 10.0
"""How long a caller counts that was refused because the pool was full."""


class Ceiling:
    """The uses of one pool, by caller. A caller without a name has no ceiling. `used`: what all have taken.

    Args:
        most: the size of the pool. percent: the part of each caller. what: its uses, in words, and the setting's name.
        now_s: the time.
    """

    def __init__(self, most: int, percent: int, what: str, now_s: Callable[[], float]) -> None:
        self.most = most
        self._each = max(most * percent // 100, 1)
        self._what = what
        self._now_s = now_s
        self._had: dict[str, int] = {}
        self._all = 0
        """Of callers with a name."""
        self.used = 0
        self._wanting = ("", 0.0)

    def check(self, principal: str, used: int, refusal: type[ApiError] = Throttled, *, size: int = 1) -> None:
        """Check whether a caller gets more. One that has nothing gets something, and of an empty pool it gets all.

        `used`: of the pool, by all. Raises: `refusal`.
        """
        if not (used or self.used):
            return
        mine = self._had.get(principal, 0)
        if mine and mine + size > self._each and self._used_beside(principal, mine):
            raise refusal(
                f"{principal} has {mine} {self._what}; while others use them, one principal has {self._each} at this"
                " gateway (principal_percent): try again in a moment",
                limit=self._each,
            )
        if used + size > self.most:
            self._wanting = principal, self._now_s() + WANTED_S
            raise refusal(
                f"this gateway takes at most {self.most} {self._what}: try again in a moment", limit=self.most
            )

    def _used_beside(self, principal: str, mine: int) -> bool:
        wanting, until_s = self._wanting
        return self._all > mine or (wanting not in ("", principal) and self._now_s() < until_s)

    def take(self, principal: str, size: int = 1) -> None:
        self.used += size
        if principal and size:
            self._had[principal] = self._had.get(principal, 0) + size
            self._all += size

    def give(self, principal: str, size: int = 1) -> None:
        self.used -= size
        if principal and size:
            self._all -= size
            self._had[principal] -= size
            if not self._had[principal]:
                del self._had[principal]
