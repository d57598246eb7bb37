"""The layout of a stored record batch: its records as JSON, and the position at which each one ends. Pure.

    flags u8 (bit 0: offsets are given, bit 1: for one group, bit 2: a marker), record count u32,
    ends u32 × count, offsets u64 × count if given, the group's name if for one (its size u16, UTF-8), then the records

Little endian. The records are joined by commas, and an end counts the comma behind its record; the last one has none.
A large batch is kept, and sent to readers of the log, as one LZ4 block of these bytes.
"""

import struct
from typing import Final, NamedTuple

HEADER: Final = struct.Struct("<BI")
GROUP_SIZE: Final = struct.Struct("<H")
SPARSE: Final = 1
FOR_GROUP: Final = 2
CONTROL: Final = 4
MOST_RATIO: Final = 255
"""One byte of an LZ4 block becomes at most so many bytes."""


class Layout(NamedTuple):
    """The parts of a stored batch. `offsets_at` (-1: none are given), `records_at`: positions in it."""

    record_count: int
    ends_at: int
    offsets_at: int
    records_at: int
    for_group: str | None
    control: bool


def layout_of(stored: bytes | memoryview) -> Layout:
    """Raises: ValueError: the bytes end before a part that their header names."""
    if len(stored) < HEADER.size:
        raise ValueError(f"{len(stored)} bytes are not a record batch")
    flags, count = HEADER.unpack_from(stored)
    position = HEADER.size + (12 if flags & SPARSE else 4) * count
    if len(stored) < position:
        raise ValueError(f"{len(stored)} bytes cannot hold {count} records")
    for_group = None
    if flags & FOR_GROUP:
        if len(stored) < position + GROUP_SIZE.size:
            raise ValueError(f"{len(stored)} bytes cannot hold the name of a group")
        (size,) = GROUP_SIZE.unpack_from(stored, position)
        position += GROUP_SIZE.size + size
        if len(stored) < position:
            raise ValueError(f"{len(stored)} bytes cannot hold the name of a group, which has {size}")
        for_group = str(stored[position - size : position], "utf-8")
    offsets_at = HEADER.size + 4 * count if flags & SPARSE else -1
    return Layout(count, HEADER.size, offsets_at, position, for_group, bool(flags & CONTROL))
