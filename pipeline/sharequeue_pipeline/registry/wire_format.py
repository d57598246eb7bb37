"""The bytes in front of a value: the byte 0, the schema id, and Protobuf's message indexes. Pure.

Message indexes say which message of the .proto file a value is: a count, and the places of messages within each other
in zigzag form; a single 0 is the first one. Only messages that are in no other one count here, the first 64 of a file:
these have one index of one byte.
"""

from typing import Final

HEADER_BYTES: Final = 5
MAX_PLACE: Final = 63


class Malformed(Exception):
    """A value cannot be read. The text says why, and quotes nothing of the value."""


def schema_id_of(value: bytes) -> int:
    """The schema id of a value. Raises: Malformed: it has none."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise Malformed("it has no schema id: a value begins with the byte 0 and 4 bytes of schema id")
    return int.from_bytes(value[:HEADER_BYTES], "big")


def message_of(value: bytes) -> tuple[int, bytes]:
    """The place of a Protobuf value's message in its file, and the bytes of the message. Raises: Malformed."""
    count, place = (*value[HEADER_BYTES : HEADER_BYTES + 2], -1, -1)[:2]
    if count == 0:
        return 0, value[HEADER_BYTES + 1 :]
    if count != 2 or place % 2 or place > 2 * MAX_PLACE:  # zigzag: 2 is 1
        raise Malformed(f"its message is not one of the first {MAX_PLACE + 1} of a file")
    return place // 2, value[HEADER_BYTES + 2 :]


def header(schema_id: int, place: int | None = None) -> bytes:
    """The bytes in front of the values of a schema. `place`: of a Protobuf message in its file."""
    indexes = b"" if place is None else bytes([2, 2 * place]) if place else b"\0"
    return schema_id.to_bytes(HEADER_BYTES, "big") + indexes
