"""Keeps each reason of a share-partition in memory once, however many records have it. Pure.

A request may give thousands of records one of a few reasons, at one time; a load finds them record by record. The
tables are bounded: a full one is forgotten, and from then on equal reasons are in memory twice.
"""

from typing import Final

from sharequeue.protocol.types import REASON_STEP_MS, GivenReason, Reason, with_reason

MOST_TEXTS: Final = 256
MOST_GIVEN: Final = 2048


class Reasons:
    __slots__ = ("_given", "_histories", "_texts")

    def __init__(self) -> None:
        self._texts: dict[Reason, Reason] = {}
        self._given: dict[GivenReason, GivenReason] = {}
        self._histories: dict[tuple[GivenReason, ...], tuple[GivenReason, ...]] = {}

    def given(self, reason: Reason, at_ms: int) -> GivenReason:
        """A reason and the time at which it was given; 0: that is not known."""
        given = GivenReason(reason, at_ms - at_ms % REASON_STEP_MS)
        kept = self._given.get(given)
        if kept is None:
            if len(self._texts) >= MOST_TEXTS and reason not in self._texts:
                self._texts.clear()
            if len(self._given) >= MOST_GIVEN:
                self._given.clear()
            kept = GivenReason(self._texts.setdefault(reason, reason), given.at_ms)
            self._given[kept] = kept
        return kept

    def history(self, earlier: tuple[GivenReason, ...], reason: GivenReason | None = None) -> tuple[GivenReason, ...]:
        """The reasons of earlier deliveries, the oldest first.
        `reason`: the reason of the newest delivery, if `earlier` does not have it yet."""
        if reason is not None:
            earlier = with_reason(earlier, reason)
        if not earlier:
            return ()
        kept = self._histories.get(earlier)
        if kept is None:
            if len(self._histories) >= MOST_GIVEN:
                self._histories.clear()
            kept = tuple(self.given(each.reason, each.at_ms) for each in earlier)
            self._histories[kept] = kept
        return kept
