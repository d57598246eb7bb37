"""Decodes the values of records as a type that the program names. No IO.

msgspec decodes dataclasses, TypedDicts, msgspec.Struct and everything else that it knows. A class of pydantic decodes
itself.
"""

from collections.abc import Callable
from typing import Any

import msgspec

Decode = Callable[[bytes | None, bytes | None], Any]
"""Makes a value of its JSON, or of the bytes that were produced in place of JSON: the other one is None."""


class DoesNotFit(Exception):
    """A value is not of the type that the program asks for. The text says where."""


def decoder_of(wanted: Any) -> Decode:
    """Return what decodes a type, and raises DoesNotFit. Raises: TypeError: msgspec decodes no such type."""
    if wanted is bytes:
        return _bytes
    convert = getattr(wanted, "model_validate_json", None) or msgspec.json.Decoder(wanted).decode

    def decode(json: bytes | None, _: bytes | None) -> Any:
        if json is None:
            raise DoesNotFit("`$` is bytes, and JSON is expected")
        try:
            return convert(json or b"null")
        except (ValueError, RecursionError, msgspec.DecodeError) as fault:  # pydantic raises a ValueError
            raise DoesNotFit(str(fault) or type(fault).__name__) from None

    return decode


def _bytes(_: bytes | None, produced: bytes | None) -> bytes:
    if produced is None:
        raise DoesNotFit("`$` is JSON, and bytes are expected")
    return produced
