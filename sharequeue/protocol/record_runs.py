"""The answer of readRecords as stored: the JSON of records, with the places where each one ends. Pure.

    answer   next_offset i64, log_start_offset i64, log_end_offset i64, then runs until its end
    run      base_offset i64, count u32, before u32, size u32, form u32 (0: dense, 1: sparse),
             ends u32 × count, offsets u64 × count if sparse, then size bytes: the records, joined by commas
    packed   base_offset i64, 0 u32, stored_bytes u32, size u32, form u32 (2: packed),
             then size bytes: an LZ4 block, which becomes the stored_bytes of a whole batch (`batch_layout`)

Little endian. Record number n of a run begins where the one before it ended, the first one at 0. It ends at
`ends[n] - before`, its comma included: the last one has none, and ends at size + 1. Its offset is base_offset + n, or
`offsets[n]`. It has the members of a ConsumerRecord in the order offset, timestamp_ms, key or key_base64, value or
value_base64, headers, without spaces between them; headers are left out if there are none.

A gateway sends the bytes that it has stored, so such an answer costs it nothing for each record.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sharequeue.protocol.batch_layout import layout_of

BOUNDS: Final = struct.Struct("<qqq")
RUN: Final = struct.Struct("<qIIII")
END: Final = struct.Struct("<I")
DENSE, SPARSE, PACKED = 0, 1, 2


class Bounds(NamedTuple):
    """The offsets of an answer."""

    next_offset: int
    log_start_offset: int
    log_end_offset: int


class Run(NamedTuple):
    """A run of an answer. `ends_at`, `offsets_at` (-1: dense) and `records_at` are places in the answer."""

    base_offset: int
    record_count: int
    before: int
    size: int
    ends_at: int
    offsets_at: int
    records_at: int

    def moved(self, by: int) -> "Run":
        """The same run, `by` bytes further on."""
        offsets_at = self.offsets_at if self.offsets_at < 0 else self.offsets_at + by
        return self._replace(ends_at=self.ends_at + by, offsets_at=offsets_at, records_at=self.records_at + by)


class PackedRun(NamedTuple):
    """A compressed batch of an answer. `block_at`: the place of its block."""

    base_offset: int
    stored_bytes: int
    size: int
    block_at: int


def bounds_of(answer: bytes) -> Bounds:
    """The offsets of an answer. Raises: ValueError: it is cut."""
    if len(answer) < BOUNDS.size:
        raise ValueError(f"the answer has {len(answer)} bytes, and its head alone {BOUNDS.size}")
    return Bounds(*BOUNDS.unpack_from(answer))


def runs_of(answer: bytes) -> Iterator[Run | PackedRun]:
    """The runs of an answer. Raises: ValueError: it is cut, or no such answer."""
    at, end = BOUNDS.size, len(answer)
    while at < end:
        try:
            base_offset, count, before, size, form = RUN.unpack_from(answer, at)
        except struct.error as fault:
            raise ValueError(f"the run at byte {at} is cut") from fault
        ends_at = at + RUN.size
        records_at = ends_at + (12 if form == SPARSE else 4) * count
        at = records_at + size
        if form > PACKED:
            raise ValueError(f"the run of offset {base_offset} has the form {form}, which this version does not know")
        if at > end or (form == PACKED) == bool(count):
            raise ValueError(f"the answer of {end} bytes has no run that ends at byte {at}")
        if form == PACKED:
            yield PackedRun(base_offset, before, size, records_at)
        else:
            if (last := END.unpack_from(answer, ends_at + 4 * (count - 1))[0] - before) != size + 1:
                raise ValueError(f"the records of the run at offset {base_offset} end at {last - 1}, not at {size}")
            offsets_at = ends_at + 4 * count if form == SPARSE else -1
            yield Run(base_offset, count, before, size, ends_at, offsets_at, records_at)


def run_of(base_offset: int, stored: bytes | memoryview) -> Run:
    """The run that a whole stored batch is. Raises: ValueError: these bytes are not a batch."""
    count, ends_at, offsets_at, records_at, _, _ = layout_of(stored)
    size = len(stored) - records_at
    if count and (last := END.unpack_from(stored, ends_at + 4 * (count - 1))[0]) != size + 1:
        raise ValueError(f"the records of the batch at offset {base_offset} end at {last - 1}, not at {size}")
    return Run(base_offset, count, 0, size, ends_at, offsets_at, records_at)


def run_parts(base_offset: int, before: int, ends: Any, offsets: Any, records: Any) -> tuple[Any, ...]:
    """The parts of a run, to be joined. `ends`, `offsets` (None: dense) and `records`: buffers; see above."""
    head = RUN.pack(base_offset, len(ends), before, len(records), DENSE if offsets is None else SPARSE)
    return (head, ends, records) if offsets is None else (head, ends, offsets, records)


def packed_parts(base_offset: int, stored_bytes: int, block: bytes) -> tuple[bytes, bytes]:
    """The parts of a packed run, to be joined."""
    return RUN.pack(base_offset, 0, stored_bytes, len(block), PACKED), block
