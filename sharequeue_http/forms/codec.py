"""JSON of messages: one encoder, one decoder for each type, and texts that are kept as UTF-8."""

import functools
from typing import Any, ClassVar, Final

import msgspec


class Utf8Text:
    """A text of a message that is kept as UTF-8: a str with one emoji has four bytes for each of its characters, and a
    message may have thousands of texts. A subclass says how long it may be."""

    __slots__ = ("_utf8",)
    MOST_CHARACTERS: ClassVar[int]

    def __init__(self, text: str) -> None:
        self._utf8 = text.encode()

    def __str__(self) -> str:
        return self._utf8.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __len__(self) -> int:
        """Its bytes as UTF-8."""
        return len(self._utf8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Utf8Text) and self._utf8 == other._utf8

    def __hash__(self) -> int:
        return hash(self._utf8)


def to_builtin(value: Any) -> Any:
    """The JSON type of a value that msgspec does not know."""
    if isinstance(value, Utf8Text):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not a type of a message")


def from_builtin(kind: type, value: Any) -> Any:
    """A value of a type that msgspec does not know. Raises: ValueError: it does not fit."""
    if not issubclass(kind, Utf8Text):
        raise NotImplementedError(f"{kind.__name__} is not a type of a message")
    if not isinstance(value, str):
        raise ValueError(f"Expected `str | null`, got `{_NAMES.get(type(value), 'float')}`")
    if len(value) > kind.MOST_CHARACTERS:
        raise ValueError(f"must have at most {kind.MOST_CHARACTERS} characters")
    return kind(value)


_NAMES: Final[dict[type, str]] = {bool: "bool", int: "int", list: "array", dict: "object"}
"""msgspec's names for types of JSON."""

encode: Final = msgspec.json.Encoder(enc_hook=to_builtin).encode


@functools.cache
def decoder_of(message: Any) -> msgspec.json.Decoder[Any]:
    """The one decoder of a message's type."""
    return msgspec.json.Decoder(message, dec_hook=from_builtin)
