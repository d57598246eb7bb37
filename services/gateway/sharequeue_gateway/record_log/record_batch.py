"""A record batch: records already encoded as the JSON that fetches send, and where each one ends. Pure.

Stored form: flags (u8; bit 0: offsets are given, bit 1: for one group), record count (u32), end positions (u32 each, the
comma behind the record included), offsets (u64 each, if given), the group (its size as u16, UTF-8; if for one), the
records joined by commas. Little endian.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

_base_offset = attrgetter("base_offset")
_last_offset = attrgetter("last_offset")
_HEADER = struct.Struct("<BI")
_GROUP_SIZE = struct.Struct("<H")
_SPARSE = 1
_FOR_GROUP = 2

assert sys.byteorder == "little", "stored positions are little endian"


class CorruptBatch(ValueError):
    """What is stored is no record batch."""


class RecordBatch:
    """Records of one produce request. Offsets need not be dense: compaction makes gaps.

    `for_group`: redriven for this share group alone; for others there is nothing here. `payload`: the records, joined by
    commas.
    """

    __slots__ = (
        "_ends",
        "_offsets",
        "base_offset",
        "for_group",
        "last_offset",
        "max_timestamp_ms",
        "payload",
        "record_count",
        "size",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        ends: "array[int]",
        offsets: "array[int] | None",
        payload: bytes,
        for_group: str | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.for_group = for_group
        self.max_timestamp_ms = max_timestamp_ms
        self.record_count = len(ends)
        self.size = len(payload)
        self._ends = ends
        self._offsets = offsets
        self.payload = payload

    @classmethod
    def encode(
        cls, base_offset: int, tails: Sequence[bytes], max_timestamp_ms: int, for_group: str | None = None
    ) -> "RecordBatch":
        """Make a dense batch of records that lack only their offsets."""
        records = [b'{"offset":%d%b,' % numbered for numbered in enumerate(tails, base_offset)]
        ends = array("I", accumulate(map(len, records)))
        records[-1] = records[-1][:-1]  # no comma behind the last one
        last_offset = base_offset + len(records) - 1
        return cls(base_offset, last_offset, max_timestamp_ms, ends, None, b"".join(records), for_group)

    @classmethod
    def decode(cls, base_offset: int, last_offset: int, max_timestamp_ms: int, stored: bytes) -> "RecordBatch":
        """Read the stored form; the records themselves are not looked at. Raises: CorruptBatch."""
        if len(stored) < _HEADER.size:
            raise CorruptBatch(f"batch {base_offset}: {len(stored)} bytes are no record batch")
        flags, count = _HEADER.unpack_from(stored)
        if len(stored) < _HEADER.size + (12 if flags & _SPARSE else 4) * count:
            raise CorruptBatch(f"batch {base_offset}: {len(stored)} bytes cannot hold {count} records")
        position = _HEADER.size
        ends = array("I", stored[position : position + 4 * count])
        position += 4 * count
        offsets = None
        if flags & _SPARSE:
            offsets = array("Q", stored[position : position + 8 * count])
            position += 8 * count
        for_group = None
        if flags & _FOR_GROUP:
            (size,) = _GROUP_SIZE.unpack_from(stored, position)
            position += _GROUP_SIZE.size + size
            for_group = stored[position - size : position].decode()
        payload = stored[position:]
        if count and ends[-1] != len(payload) + 1:
            raise CorruptBatch(f"batch {base_offset}: the records end at {ends[-1] - 1}, not at {len(payload)}")
        return cls(base_offset, last_offset, max_timestamp_ms, ends, offsets, payload, for_group)

    def stored(self) -> bytes:
        """The stored form."""
        flags = 0 if self._offsets is None else _SPARSE
        offsets = b"" if self._offsets is None else self._offsets.tobytes()
        group = b""
        if self.for_group is not None:
            flags |= _FOR_GROUP
            name = self.for_group.encode()
            group = _GROUP_SIZE.pack(len(name)) + name
        return b"".join((_HEADER.pack(flags, self.record_count), self._ends.tobytes(), offsets, group, self.payload))

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
        if begin == 0 and end == self.record_count:
            return self.payload
        return self.payload[self._ends[begin - 1] if begin else 0 : self._ends[end - 1] - 1]

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

    def without(self, ranges: Sequence[tuple[int, int]]) -> "RecordBatch":
        """The same batch without the records of these ranges (ascending, disjoint, inclusive); its extent stays."""
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
                parts.append(self.payload[start : self._ends[begin - 1] - 1])
                size = ends[-1]
            position = end
        return RecordBatch(
            self.base_offset,
            self.last_offset,
            self.max_timestamp_ms,
            ends,
            offsets,
            b",".join(parts),
            self.for_group,
        )

    def sparse(self, offsets: Sequence[int]) -> "RecordBatch":
        """The same batch with only these of its records, ascending; its extent stays."""
        kept = [self.slice(offset, offset) for offset in offsets]
        ends = array("I", accumulate([len(record) + 1 for record in kept]))
        return RecordBatch(
            self.base_offset,
            self.last_offset,
            self.max_timestamp_ms,
            ends,
            array("Q", offsets),
            b",".join(kept),
            self.for_group,
        )


def holding(batches: Sequence[RecordBatch], first_offset: int, last_offset: int) -> Sequence[RecordBatch]:
    """Of batches, ascending, those whose extent has a part of first..last."""
    begin = bisect_left(batches, first_offset, key=_last_offset)
    return batches[begin : bisect_right(batches, last_offset, begin, key=_base_offset)]
