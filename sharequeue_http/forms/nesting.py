"""Deeply nested JSON: measures how deep a value is, and reads messages with values too deep for the decoder. Pure.

The decoder recurses, and Python stops it after some hundred levels. A value that is only carried need not be decoded.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

SLICE: Final = 1 << 16
CARRIED_FROM: Final = 32
"""Arrays and objects at this level are carried. Apart from values, all messages of the protocol are flatter."""

_STEP: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))
"""The change of depth at each byte, as a signed byte: 1 or -1."""
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


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


def decode(decoder: "msgspec.json.Decoder[T]", text: bytes | msgspec.Raw) -> T:
    """As `decoder.decode`, but fields of type Raw, and fields that the type does not have, may nest to any depth.

    Raises: RecursionError: another field nests too deeply; the decoder's own errors.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        flat, restored = _flattened(bytes(text))
        decoded: T = _with_raw(decoder.decode(flat), restored)
        return decoded


def _flattened(text: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Put strings in place of carried values. Returns: the text,
    and a function that restores the values in a part of it."""
    name = hashlib.blake2b(text, digest_size=16).hexdigest().encode()  # a name that the text itself cannot hold
    carried: list[bytes] = []
    parts: list[bytes] = []
    depth = begin = end = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            depth += 1
            if depth == CARRIED_FROM:
                begin = token.start()
        elif first in b"]}":
            if depth == CARRIED_FROM:
                parts += (text[end:begin], b'"%b %d"' % (name, len(carried)))
                end = token.end()
                carried.append(text[begin:end])
            depth -= 1
    parts.append(text[end:])
    stand_in = re.compile(b'"%b ([0-9]+)"' % name)
    return b"".join(parts), lambda part: stand_in.sub(lambda found: carried[int(found[1])], part)


def _with_raw(value: Any, restored: Callable[[bytes], bytes]) -> Any:
    """The decoded value with the original text of each Raw in it."""
    if isinstance(value, msgspec.Raw):
        return msgspec.Raw(restored(bytes(value)))
    if isinstance(value, list):
        value[:] = [_with_raw(entry, restored) for entry in value]
    elif isinstance(value, dict):
        value.update({name: _with_raw(entry, restored) for name, entry in value.items()})
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(value, name, _with_raw(getattr(value, name), restored))
    return value
