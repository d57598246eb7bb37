"""Long strings in a body: cuts them, so that a body that holds them where it may not is refused at a small cost. Pure.

Python keeps a text with 1, 2 or 4 bytes per character, as its widest character needs. One emoji makes a string of 10 MB
take 40 MB, and msgspec describes a fault in several copies of the string. No field that is decoded to a text needs one
so long: values, keys and headers are carried as JSON.
"""

import itertools
import re
from typing import Any, Final

import msgspec

from sharequeue.protocol.types import Reason

BLOCK: Final = 1 << 16
LEAST: Final = 2 * BLOCK
"""Bytes: a longer string is always found. Strings of BLOCK bytes or more may be found."""
KEPT: Final = 256
"""Characters of a cut string that stay, for the answer that refuses it."""

_WIDE_ESCAPE: Final = re.compile(rb"\\u(?!00[0-7])")
_CHARACTER: Final = rb"[\x00-\x5b\x5d-\x7f]|[\xc0-\xff][\x80-\xbf]*|\\u[dD][89abAB]..\\u.{4}|\\u.{4}|\\."
_BEGIN: Final = re.compile(rb"(?:%b){0,%d}" % (_CHARACTER, KEPT), re.DOTALL)


class Cut:
    """A body whose long strings beyond ASCII are cut. `body`: valid JSON if the original is."""

    def __init__(self, body: bytes, mark: bytes) -> None:
        self.body = body
        self._mark = mark.decode()

    def place(self, value: Any, pointer: str = "") -> str | None:
        """The pointer to the first cut text in the decoded body; None if there is none."""
        members: Any = ()
        if isinstance(value, str | Reason):
            return pointer if self._mark in str(value) else None
        if isinstance(value, list):
            members = enumerate(value)
        elif isinstance(value, dict):
            members = value.items()
        elif isinstance(value, msgspec.Struct):
            members = ((name, getattr(value, name)) for name in value.__struct_fields__)
        for name, member in members:
            if isinstance(name, str) and self._mark in name:
                return pointer
            found = self.place(member, f"{pointer}/{name}")
            if found is not None:
                return found
        return None


def cut(body: bytes) -> Cut | None:
    """Cut the long strings of a JSON text that have characters beyond ASCII. Returns: None if it has no such string."""
    if len(body) <= LEAST or (body.isascii() and not (b"\\" in body and _WIDE_ESCAPE.search(body))):
        return None
    parts: list[bytes] = []
    end = 0
    mark = b""
    for first, last in _long_strings(body):
        text = memoryview(body)[first:last]
        if not _is_wide(text):
            continue
        mark = mark or _mark_for(body)
        begin = _BEGIN.match(body, first, last)
        parts += (body[end : begin.end() if begin else first], mark)
        end = last
    if not mark:
        return None
    parts.append(body[end:])
    return Cut(b"".join(parts), mark)


def _long_strings(body: bytes) -> list[tuple[int, int]]:
    """Where long strings begin and end, without their quotes.

    A string of LEAST bytes covers a block without a quote, and looking for such blocks is quick.
    """
    if b"\\" in body:  # escaped quotes must not be seen; places stay as they are
        body = body.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    found: list[tuple[int, int]] = []
    counted = quotes = 0
    for start in range(0, len(body) - BLOCK, BLOCK):
        if start < counted or body.find(b'"', start, start + BLOCK) >= 0:
            continue
        first = body.rfind(b'"', counted, start) + 1
        last = body.find(b'"', start + BLOCK)
        last = len(body) if last < 0 else last
        quotes += body.count(b'"', counted, start)
        if first and quotes % 2:
            found.append((first, last))
        counted = last
    return found


def _is_wide(text: memoryview) -> bool:
    for start in range(0, len(text), BLOCK):
        if not bytes(text[start : start + BLOCK]).isascii():
            return True
    return _WIDE_ESCAPE.search(text) is not None


def _mark_for(body: bytes) -> bytes:
    """A text that the body does not have."""
    return next(mark for mark in (b"... cut %d" % number for number in itertools.count()) if mark not in body)
