"""Deeply nested JSON: measures how deep a value is. Pure.

Decoders recurse, and Python stops one after some hundred levels: what nests deeper must not get in.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

SLICE: Final = 1 << 16

_STEP: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))
"""The change of depth at each byte, as a signed byte: 1 or -1."""
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def suspects(texts: Sequence[bytes], most: int, around: int = 0) -> list[int]:
    """The indexes of the JSON texts that may nest deeper than `most` levels: they open more brackets, strings included.

    `around`: bytes of each text that cannot be part of a nested value.
    """
    least = 2 * most + around
    return [
        index
        for index, text in enumerate(texts)
        if len(text) > least and len(text) - len(text.replace(b"[", b"").replace(b"{", b"")) > most
    ]


def deeper_than(value: bytes, most: int) -> bool:
    """Return whether arrays and objects of a JSON value nest deeper than `most` levels.
    Takes linear time and little memory."""
    if b"\\" in value:
        value = value.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = 0
    in_string = False
    for start in range(0, len(value), SLICE):
        parts = value[start : start + SLICE].split(b'"')
        steps = b"".join(parts[in_string::2]).translate(_STEP, _NO_BRACKETS)
        in_string ^= len(parts) % 2 == 0
        up = steps.count(1)
        if depth + up > most and max(accumulate(memoryview(steps).cast("b"), initial=depth)) > most:
            return True
        depth += 2 * up - len(steps)
    return False
