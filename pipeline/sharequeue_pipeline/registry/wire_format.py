"""The bytes in front of a value: the magic byte, the schema id, and Protobuf's message indexes. Pure.

Message indexes say which message of the .proto file a value is: the place of an outer message, of the message in it,
and so on. They are numbers in zigzag form, their count in front; a single 0 stands for the first message, [0].
"""

import struct
from collections.abc import Sequence
from typing import Final

_HEADER: Final = struct.Struct(">bI")
HEADER_BYTES: Final = _HEADER.size
MAX_INDEXES: Final = 100
"""Messages nested more deeply than this do not parse anyway."""
_MAX_VARINT_BYTES: Final = 10


class Malformed(Exception):
    """A value cannot be read. The text says why, and quotes nothing of the value."""


class Misfit(Exception):
    """A value cannot be written. The text says where."""


def schema_id_of(value: bytes) -> int:
    """The schema id of a value. Raises: Malformed: it has none."""
    if len(value) < HEADER_BYTES:
        raise Malformed("it has no schema id: a value begins with the byte 0 and 4 bytes of schema id")
    magic, schema_id = _HEADER.unpack_from(value)
    if magic != 0:
        raise Malformed(f"it begins with the byte {value[0]}, not with the byte 0 and a schema id")
    return int(schema_id)


def header(schema_id: int) -> bytes:
    """The bytes in front of the values of a schema."""
    return _HEADER.pack(0, schema_id)


def indexes_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes of a Protobuf value, and where the message begins. Raises: Malformed."""
    count, at = _number(value, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= MAX_INDEXES:
        raise Malformed(f"it has {count} message indexes; 1 to {MAX_INDEXES} are possible")
    found = []
    for _ in range(count):
        index, at = _number(value, at)
        found.append(index)
    return tuple(found), at


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """The inverse of `indexes_of`."""
    if tuple(indexes) == (0,):
        return b"\0"
    return b"".join(map(_encoded, (len(indexes), *indexes)))


def _number(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(value[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise Malformed("its message indexes are cut off or too long")


def _encoded(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
