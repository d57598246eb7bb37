"""Makes messages and numbers of texts: headers, query parameters, environment variables. A whole number is written in
digits."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from sharequeue_http.forms.mistakes import quoted

_NUMBER: Final = re.compile(r"[+-]?[0-9.].*", re.DOTALL)
_WHOLE: Final = re.compile(r"-?[0-9]+")


def convert_texts(values: Mapping[str, str], message: Any) -> Any:
    """Make a message of a Struct type. `1e3` and `1.0`, which JSON allows for whole numbers, are refused.

    Raises: msgspec.ValidationError.
    """
    for name in _whole_numbers(message) & values.keys():
        value = values[name]
        if _NUMBER.fullmatch(value) and not _WHOLE.fullmatch(value):
            raise msgspec.ValidationError(f"Expected `int`, got {quoted(value)!r} - at `$.{name}`")
    return msgspec.convert(values, message, strict=False)


def whole_number(text: str, most: int) -> int | None:
    """Parse decimal digits. Returns: a number from 0 to `most`; None if `text` is anything else, of any length."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    return number if len(digits) <= len(str(most)) and (number := int(digits)) <= most else None


@cache
def _whole_numbers(message: Any) -> frozenset[str]:
    """The names of the fields whose only type is a whole number, optional or not."""
    fields = inspect.type_info(message).fields  # type: ignore[attr-defined]  # it is a Struct
    return frozenset(field.encode_name for field in fields if _is_whole(field.type))


def _is_whole(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):  # an annotation for the schema alone
        return _is_whole(kind.type)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(each, inspect.NoneType) or _is_whole(each) for each in kind.types)
    return isinstance(kind, inspect.IntType)
