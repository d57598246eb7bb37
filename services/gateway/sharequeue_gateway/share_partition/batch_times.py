"""The append times of records in flight, by batch. Reports compute from them how long a record took. Pure.

The data are arrays of numbers, without an object per batch. A batch that is unknown here, for example after a crash,
has no time.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from sharequeue_gateway.share_partition.runs import LogBatch

MOST: Final = 100_000
"""The most batches of one share-partition. When there are more, the oldest half is dropped."""
JOINED_MS: Final = 5
"""Batches this close in time count as one: small batches cost little more than large ones."""
_WORTH_CUTTING: Final = 64


class BatchTimes:
    """The batches of one share-partition, ascending."""

    __slots__ = ("_bases", "_lasts", "_timestamps")

    def __init__(self) -> None:
        self._bases = array("q")
        self._lasts = array("q")
        self._timestamps = array("q")

    def __len__(self) -> int:
        return len(self._bases)

    def note(self, batches: Sequence[LogBatch]) -> None:
        """Add batches that are not known yet. A batch right behind another one, at nearly the same time, is joined to
        it."""
        bases, lasts, timestamps = self._bases, self._lasts, self._timestamps
        newest = lasts[-1] if lasts else -1
        for batch in batches:
            base, last, timestamp_ms = batch.base_offset, batch.last_offset, batch.max_timestamp_ms
            if base == newest + 1 and lasts and 0 <= timestamp_ms - timestamps[-1] <= JOINED_MS:
                newest = lasts[-1] = last
            elif base > newest:
                bases.append(base)
                lasts.append(last)
                timestamps.append(timestamp_ms)
                newest = last
            else:
                index = bisect_left(lasts, base)
                if bases[index] > base:
                    bases.insert(index, base)
                    lasts.insert(index, last)
                    timestamps.insert(index, timestamp_ms)
        if len(bases) > MOST:
            self._cut(len(bases) // 2)

    def forget_below(self, start_offset: int) -> None:
        """Drop finished batches, but not at every call."""
        bases = self._bases
        if len(bases) > _WORTH_CUTTING and self._lasts[len(bases) // 2] < start_offset:
            self._cut(bisect_left(self._lasts, start_offset))

    def _cut(self, count: int) -> None:
        del self._bases[:count], self._lasts[:count], self._timestamps[:count]

    def parts(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int]]:
        """(records, timestamp in ms) of the known batches within a range of offsets."""
        bases, lasts = self._bases, self._lasts
        index = bisect_left(lasts, first_offset)
        while index < len(bases) and bases[index] <= last_offset:
            records = min(last_offset, lasts[index]) - max(first_offset, bases[index]) + 1
            yield records, self._timestamps[index]
            index += 1
