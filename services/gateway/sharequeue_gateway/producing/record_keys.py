"""The key of a record: its JSON as the log keeps it, and its bytes, which Kafka's partitioner hashes. Pure.

A key comes as JSON and is never decoded as a whole: one wide character makes a text of four bytes per character.
"""

import base64
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from sharequeue_http.forms import mistakes
from sharequeue_http.forms.errors import InvalidRequest

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(str).decode
_NULL: Final = b"null"
_PART: Final = re.compile(
    rb"(?:[\x00-\x5b\x5d-\x7f]{1,256}+|[\xc0-\xff][\x80-\xbf]*+|\\u[dD][89abAB]..\\u.{4}|\\u.{4}|\\.){1,256}+",
    re.DOTALL,
)
"""A part of a string's JSON that ends neither within a character nor within an escape; at most 64 Ki characters."""


def is_null(text: msgspec.Raw) -> bool:
    """Return whether a key or base64 is `null`, which stands for none."""
    return len(memoryview(text)) == len(_NULL) and bytes(text) == _NULL


def key_json(key: msgspec.Raw, pointer: str) -> bytes:
    """The JSON of a key without needless escapes, so that equal keys are equal bytes.

    Raises: InvalidRequest (422): it is no string. `pointer`: its place in the request.
    """
    text = bytes(key)
    if not text.startswith(b'"'):
        try:
            _DECODE(text)
        except msgspec.ValidationError as fault:
            raise mistakes.unfit_body(fault, str, pointer) from None
    if b"\\" not in text:
        return text
    return b'"%b"' % b"".join(_ENCODE(part)[1:-1] for part in _parts(text))


def given(text: msgspec.Raw) -> bytes:
    """The JSON of a text in base64; empty if it is null."""
    return b"" if is_null(text) else bytes(text)


def base64_json(text: bytes, pointer: str) -> bytes:
    """The JSON of a string in base64 without escapes. Raises: InvalidRequest (422): it is no string, or not base64."""
    if not text.startswith(b'"') or b"\\" in text:
        try:
            text = _ENCODE(_DECODE(text))
        except msgspec.ValidationError as fault:
            raise mistakes.unfit_body(fault, str, pointer) from None
    try:
        base64.b64decode(text[1:-1], validate=True)
    except ValueError as fault:
        detail = f"not base64: {fault}"
        raise InvalidRequest(f"{pointer}: {detail}", pointers=[(pointer, detail)]) from None
    return text


def base64_bytes(text: msgspec.Raw) -> bytes:
    """The bytes of a text that `base64_json` has checked."""
    return base64.b64decode(_DECODE(text))


def key_bytes(key: msgspec.Raw | bytes) -> bytes:
    """The UTF-8 of a key that `key_json` has checked."""
    text = bytes(key)
    return text[1:-1] if b"\\" not in text else b"".join(part.encode() for part in _parts(text))


def _parts(text: bytes) -> Iterator[str]:
    """The text of a JSON string, in parts."""
    for part in _PART.finditer(text, 1, len(text) - 1):
        yield _DECODE(b'"%b"' % part[0])
