"""JSON of the protocol's messages: one encoder, and one decoder for each type."""

import functools
from typing import Any, Final

import msgspec

from sharequeue.protocol.types import MAX_REASON_LENGTH, Reason


def to_builtin(value: Any) -> Any:
    """The JSON type of a value that msgspec does not know."""
    if isinstance(value, Reason):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not a type of the protocol")


def from_builtin(kind: type, value: Any) -> Any:
    """A value of a type that msgspec does not know. Raises: ValueError: it does not fit."""
    if kind is not Reason:
        raise NotImplementedError(f"{kind.__name__} is not a type of the protocol")
    if not isinstance(value, str):
        raise ValueError(f"Expected `str | null`, got `{_NAMES.get(type(value), 'float')}`")
    if len(value) > MAX_REASON_LENGTH:
        raise ValueError(f"must have at most {MAX_REASON_LENGTH} characters")
    return Reason(value)


_NAMES: Final[dict[type, str]] = {bool: "bool", int: "int", list: "array", dict: "object"}
"""msgspec's names for types of JSON."""

encode: Final = msgspec.json.Encoder(enc_hook=to_builtin).encode


@functools.cache
def decoder_of(message: Any) -> msgspec.json.Decoder[Any]:
    """The one decoder of a message's type."""
    return msgspec.json.Decoder(message, dec_hook=from_builtin)
