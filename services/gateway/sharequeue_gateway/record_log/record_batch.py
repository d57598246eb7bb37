"""A record batch: records encoded as the JSON that fetches send, and the position at which each one ends. Pure.

`sharequeue.protocol.batch_layout` has the stored form.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, count
from operator import add, attrgetter
from typing import Any, Final

from sharequeue.protocol.batch_layout import CONTROL, FOR_GROUP, GROUP_SIZE, HEADER, SPARSE, layout_of
from sharequeue_gateway.record_log.compression import unpacked
from sharequeue_gateway.record_log.stored_batch import StoredBatch

_base_offset = attrgetter("base_offset")
_last_offset = attrgetter("last_offset")
_MARKER = HEADER.pack(SPARSE | CONTROL, 0)
_NO_ENDS, _NO_OFFSETS = array("I"), array("Q")
"""Of all markers: they have no records."""

LARGE_RECORD_BYTES: Final = 64 * 1024
"""If records are larger on average, memory has one copy: the appender keeps views of the batch (`tails`)."""

assert sys.byteorder == "little", "stored positions are little endian"


class CorruptBatch(ValueError):
    """The stored bytes are not a record batch."""


class RecordBatch(StoredBatch):
    """Records of one produce request. Offsets need not be dense: compaction makes gaps.

    `stored`: the stored form, which is the only copy of the records.
    `for_group`: the batch was redriven for this share group; other groups skip it.
    """

    __slots__ = ("_ends", "_offsets", "_start", "for_group", "record_count", "stored")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        ends: "array[int]",
        offsets: "array[int] | None",
        stored: bytes,
        for_group: str | None = None,
        transaction_id: str | None = None,
        control: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.for_group = for_group
        self.transaction_id = transaction_id
        self.control = control
        self.aborted: bool | None = None
        self.max_timestamp_ms = max_timestamp_ms
        self.record_count = len(ends)
        self.size = ends[-1] - 1 if ends else 0
        self.stored = stored
        self._ends = ends
        self._offsets = offsets
        self._start = len(stored) - self.size

    @classmethod
    def encode(
        cls,
        base_offset: int,
        tails: Sequence[bytes],
        max_timestamp_ms: int,
        for_group: str | None = None,
        transaction_id: str | None = None,
    ) -> "RecordBatch":
        """Make a dense batch of records without offsets."""
        heads = [b',{"offset":%d' % offset for offset in range(base_offset, base_offset + len(tails))]
        ends = array("I", accumulate(map(add, map(len, heads), map(len, tails))))
        heads[0] = heads[0][1:]  # no comma before the first one: each is counted behind its record
        last_offset = base_offset + len(tails) - 1
        parts = chain.from_iterable(zip(heads, tails, strict=True))
        if for_group is None:
            stored = b"".join((HEADER.pack(0, len(ends)), ends.tobytes(), *parts))
        else:
            stored = b"".join((*_before_records(ends, None, for_group), *parts))
        return cls(base_offset, last_offset, max_timestamp_ms, ends, None, stored, for_group, transaction_id)

    @classmethod
    def encode_sparse(
        cls, base_offset: int, last_offset: int, offsets: "array[int]", tails: Sequence[bytes], max_timestamp_ms: int
    ) -> "RecordBatch":
        """Make a batch of records with these offsets, which ascend, or of none."""
        parts = [b'{"offset":%d%b' % each for each in zip(offsets, tails, strict=True)]
        ends = array("I", accumulate(len(part) + 1 for part in parts))
        stored = b"".join((*_before_records(ends, offsets, None, control=not parts), b",".join(parts)))
        return cls(base_offset, last_offset, max_timestamp_ms, ends, offsets, stored, control=not parts)

    @classmethod
    def marker(cls, offset: int, timestamp_ms: int, transaction_id: str) -> "RecordBatch":
        """Make the marker of an ended transaction."""
        return cls(
            offset, offset, timestamp_ms, _NO_ENDS, _NO_OFFSETS, _MARKER, transaction_id=transaction_id, control=True
        )

    @classmethod
    def decode(
        cls,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        records: bytes,
        transaction_id: str | None = None,
        uncompressed_bytes: int | None = None,
    ) -> "RecordBatch":
        """Read a row, without the records themselves. `records`, `uncompressed_bytes`: see `compression`.

        Raises: CorruptBatch.
        """
        try:
            stored = records if uncompressed_bytes is None else unpacked(records, uncompressed_bytes)
            count, ends_at, offsets_at, records_at, for_group, control = layout_of(stored)
        except ValueError as fault:
            raise CorruptBatch(f"batch {base_offset}: {fault}") from None
        ends = array("I", stored[ends_at : ends_at + 4 * count])
        offsets = None if offsets_at < 0 else array("Q", stored[offsets_at : offsets_at + 8 * count])
        size = len(stored) - records_at
        if count and ends[-1] != size + 1:
            raise CorruptBatch(f"batch {base_offset}: the records end at {ends[-1] - 1}, not at {size}")
        return cls(
            base_offset, last_offset, max_timestamp_ms, ends, offsets, stored, for_group, transaction_id, control
        )

    def tails(self) -> list[Any]:
        """The records that `encode` was given, as memoryviews of this batch: nothing is copied."""
        records = memoryview(self.stored)[self._start :]
        starts = (0, *self._ends[:-1])
        return [
            records[start + len(b'{"offset":%d' % offset) : end - 1]
            for offset, start, end in zip(count(self.base_offset), starts, self._ends, strict=False)
        ]

    def _indexes(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """Indexes of the records in first..last: [begin, end)."""
        if self._offsets is None:
            begin = max(0, first_offset - self.base_offset)
            return begin, min(self.record_count, last_offset - self.base_offset + 1)
        return bisect_left(self._offsets, first_offset), bisect_right(self._offsets, last_offset)

    def slice(self, first_offset: int, last_offset: int) -> bytes:
        """The records of first..last joined by commas; empty if there is none."""
        begin, end = self._indexes(first_offset, last_offset)
        if begin >= end:
            return b""
        start = self._start
        return self.stored[start + self._ends[begin - 1] if begin else start : start + self._ends[end - 1] - 1]

    def view(self, first_offset: int, last_offset: int) -> memoryview:
        """As `slice`, without a copy."""
        found = self.run(first_offset, last_offset)
        return memoryview(b"") if found is None else found[4]

    def run(
        self, first_offset: int, last_offset: int
    ) -> tuple[int, int, memoryview, memoryview | None, memoryview] | None:
        """The records of first..last for `record_runs.run_parts`, without a copy; None if there is none."""
        begin, end = self._indexes(first_offset, last_offset)
        if begin >= end:
            return None
        before = self._ends[begin - 1] if begin else 0
        offsets = None if self._offsets is None else memoryview(self._offsets)[begin:end]
        records = memoryview(self.stored)[self._start + before : self._start + self._ends[end - 1] - 1]
        return self.base_offset + begin, before, memoryview(self._ends)[begin:end], offsets, records

    def size_of(self, first_offset: int, last_offset: int) -> int:
        """Bytes of the records of first..last, with a comma behind each."""
        begin, end = self._indexes(first_offset, last_offset)
        return 0 if begin >= end else self._ends[end - 1] - (self._ends[begin - 1] if begin else 0)

    def absent(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Ranges of first..last that hold no record."""
        if self._offsets is None:
            return []
        begin, end = self._indexes(first_offset, last_offset)
        gone = []
        expected = first_offset
        for offset in self._offsets[begin:end]:
            if offset > expected:
                gone.append((expected, offset - 1))
            expected = offset + 1
        if expected <= last_offset:
            gone.append((expected, last_offset))
        return gone

    def without(self, ranges: Iterable[tuple[int, int]]) -> "RecordBatch":
        """The same batch without the records of these ranges (ascending, disjoint, inclusive). First and last offset
        stay."""
        ends, offsets, parts = array("I"), array("Q"), []
        size = position = 0
        for first, last in (*ranges, (self.last_offset + 1, self.last_offset + 1)):
            begin, end = self._indexes(first, last)
            begin, end = min(max(begin, position), self.record_count), max(end, position)
            if begin > position:
                start = self._ends[position - 1] if position else 0
                ends.extend(each - start + size for each in self._ends[position:begin])
                offsets.extend(
                    range(self.base_offset + position, self.base_offset + begin)
                    if self._offsets is None
                    else self._offsets[position:begin]
                )
                parts.append(self.stored[self._start + start : self._start + self._ends[begin - 1] - 1])
                size = ends[-1]
            position = end
        stored = b"".join((*_before_records(ends, offsets, self.for_group, self.control), b",".join(parts)))
        batch = RecordBatch(
            self.base_offset,
            self.last_offset,
            self.max_timestamp_ms,
            ends,
            offsets,
            stored,
            self.for_group,
            self.transaction_id,
            self.control,
        )
        batch.aborted = self.aborted
        return batch


def _before_records(
    ends: "array[int]", offsets: "array[int] | None", for_group: str | None, control: bool = False
) -> tuple[bytes, bytes, bytes, bytes]:
    """The stored form up to the records."""
    flags = (0 if offsets is None else SPARSE) | (CONTROL if control else 0)
    group = b""
    if for_group is not None:
        flags |= FOR_GROUP
        name = for_group.encode()
        group = GROUP_SIZE.pack(len(name)) + name
    return HEADER.pack(flags, len(ends)), ends.tobytes(), b"" if offsets is None else offsets.tobytes(), group


def holding(batches: Sequence[RecordBatch], first_offset: int, last_offset: int) -> Sequence[RecordBatch]:
    """The batches that overlap first..last. `batches` ascend."""
    begin = bisect_left(batches, first_offset, key=_last_offset)
    return batches[begin : bisect_right(batches, last_offset, begin, key=_base_offset)]
