"""The records that other attempts of a task have appended, and that this attempt leaves out of its rows. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

MOST: Final = 10_000_000
"""Records that are known at once. They take about 1.1 GiB."""


class KnownRecords:
    """The records of one topic, as their digests: those that were not among the rows so far. Each copy counts.

    If some records are gone from the log, or more than `MOST` would be known, nothing is left out any more: all rows
    are appended. Compaction removes the older records of a key. To append those again and not the newest one would
    leave an old record behind it.
    """

    def __init__(self) -> None:
        self.gone = False
        """Whether nothing is left out any more."""
        self._others: Counter[bytes] = Counter()
        self._earlier: Counter[bytes] = Counter()
        """Those that were in the log before the write began."""
        self._unread = 0

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to leave out."""
        return not self._others and not self._earlier

    @property
    def left(self) -> int:
        """Return how many records were not among the rows, or could not be read."""
        return self._unread + self._others.total() + self._earlier.total()

    def learn(self, found: Sequence[bytes], appended: int, *, before: bool) -> None:
        """Another request has appended records.

        Args:
            found: the digests of those that were read.
            appended: how many it has appended.
            before: whether that was before the write began.
        """
        if self.gone or len(found) < appended or self.left + appended > MOST:
            self.gone = True
            self._unread = self.left + appended
            self._others.clear()
            self._earlier.clear()
        else:
            (self._earlier if before else self._others).update(found)

    def leave_out(self, digests: Iterable[bytes]) -> tuple[list[int], int]:
        """Returns: the places of the rows that nobody has appended,
        and how many of the others were in the log before the write began."""
        places = []
        earlier = 0
        for place, digest in enumerate(digests):
            if _take(self._earlier, digest):
                earlier += 1
            elif not _take(self._others, digest):
                places.append(place)
        return places, earlier


def _take(known: Counter[bytes], digest: bytes) -> bool:
    """Take one record out of those that are known. Returns: whether it was there."""
    count = known.get(digest, 0)
    if count > 1:
        known[digest] = count - 1
    elif count:
        del known[digest]
    return count > 0
