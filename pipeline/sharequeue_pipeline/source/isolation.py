"""Isolation of records that end their query: they are read again in ever smaller micro-batches. Pure.

One record that always fails takes its whole micro-batch with it, and each failure costs every record of the batch a
delivery. A query that begins again after a failure therefore reads the records that were delivered before in pieces. A
piece shrinks with each delivery, so that all levels need about the same number of pieces, and the last delivery that
the group allows a record comes alone:

    8,000 records, limit 5      delivery   1      2     3    4    5
                                piece   8000    846    90   10    1        about 40 micro-batches, 5 failures
"""

import math
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from sharequeue_pipeline.ranges import Range, divided


class Piece(NamedTuple):
    """The part that the next micro-batch may take: at most so many records of one partition."""

    topic: str
    partition: int
    max_records: int


class Isolation:
    """The records of a group that were delivered and not finished, as a query that begins finds them."""

    def __init__(self, delivered: Iterable[Range], limit: int) -> None:
        """`delivered`: available records, with the deliveries that they have had. `limit`: the group's."""
        self._left = sorted(entry for entry in delivered if entry.delivery_count > 0)
        self._limit = limit
        self._passed: set[tuple[str, int]] = set()
        """Partitions that gave nothing since `look`."""
        self._records: dict[int, int] = {}
        """How many records had so many deliveries at the start. A piece keeps its size while its level is read."""
        for entry in self._left:
            self._records[entry.delivery_count] = self._records.get(entry.delivery_count, 0) + entry.size

    @property
    def left(self) -> int:
        """Return how many such records have not been read again."""
        return sum(entry.size for entry in self._left)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The partitions with such records. While these wait for their time, a fetch that names no piece leaves them
        out: it would take all of them together when the time comes."""
        return {entry[:2] for entry in self._left}

    def look(self) -> bool:
        """Begin a micro-batch: every partition may give again. Returns: whether some gave nothing for the last one."""
        passed, self._passed = bool(self._passed), set()
        return passed

    def refresh(self, delivered: Iterable[Range]) -> None:
        """Forget the records that others have finished since. `delivered`: as at the start."""
        self._left, _ = divided(delivered, self._left)

    def next(self) -> Piece | None:
        """The next piece, of records with one delivery count. None: nothing is left that may come now."""
        at = next((at for at, entry in enumerate(self._left) if entry[:2] not in self._passed), None)
        if at is None:
            return None
        first = self._left[at]
        last_offset = first.last_offset
        for entry in islice(self._left, at + 1, None):
            if entry[:2] != first[:2] or entry.delivery_count != first.delivery_count:
                break
            if entry.first_offset != last_offset + 1:
                break
            last_offset = entry.last_offset
        records = self._records.get(first.delivery_count, first.size)
        most = piece_size(records, first.delivery_count + 1, self._limit)
        return Piece(first.topic, first.partition, min(most, last_offset - first.first_offset + 1))

    def note(self, found: Iterable[Range]) -> None:
        _, self._left = divided(self._left, found)

    def pass_over(self, piece: Piece) -> None:
        """The partition of a piece gave nothing: another member has its records, or they wait for their time."""
        self._passed.add((piece.topic, piece.partition))


def piece_size(records: int, delivery: int, limit: int) -> int:
    """Return how many of so many records to read at once at this delivery, of `limit` deliveries in all."""
    later = limit - delivery
    if later <= 0:
        return 1
    return max(1, math.ceil(math.pow(records, later / (later + 1))))
