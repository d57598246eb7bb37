"""Explains what is wrong with a request in the caller's words: JSON's types, names of fields, JSON pointers. Pure.

msgspec stops at the first fault and describes it in one line, in Python's types. This module reads that line and looks
up the type. Only refused requests pay for that.
"""

import difflib
import functools
import itertools
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import inspect

from sharequeue_http.forms.errors import ApiError, InvalidRequest

MOST_COMPARED: Final = 64
"""A longer unknown name is not compared with the known ones."""
MOST_SAID: Final = 1000
"""Characters from the beginning and from the end of a fault that are read."""
MOST_QUOTED: Final = 100
"""An answer quotes no more characters of the caller's text."""
MOST_AUDITED: Final = 1000
"""A line of the log about a change has more: the request of one right has 150."""
SECRET: Final = re.compile(r"sq_[0-9a-f]{16}_\w*", re.ASCII)
"""A caller's key, wherever a text has one. No answer and no line of the log quotes it."""

MOST_LOOKED_AT: Final = 1000
"""Places of a body that look like half of a surrogate pair, and may be text."""

_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_PLACE: Final = re.compile(r"(?:\.\w+|\[\d+\]|\[\.\.\.\])*`")
_MEMBER: Final = "[...]"
"""msgspec's step to any member of an object whose names are free."""

_WRONG_TYPE: Final = re.compile(r"Expected `([a-z |]+)`, got (?:`(\w+)`|')")
_TOO_LONG: Final = re.compile(r"Expected `(?:array|object)` of length <= (\d+)")
_UNKNOWN: Final = "Object contains unknown field `"
_MISSING: Final = "Object missing required field `"
_TYPES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
}
MUST: Final = "must"
"""The name, in `extra` of a type's msgspec.Meta, of the words for what a text must be, where a pattern says it."""


class TooMany(Exception):
    """A body holds more than `limit` of something: `what` names it, `pointer` its place."""

    def __init__(self, pointer: str, what: str, limit: int) -> None:
        super().__init__(f"{pointer} has more than {limit} {what}")
        self.pointer = pointer
        self.what = what
        self.limit = limit


def no_body(kind: Any) -> InvalidRequest:
    """The request has no body, and its call needs one of the type `kind`."""
    fields = _fields(_plain(_type_info(kind), inspect.StructType))
    needed = [f"`{field.encode_name}`" for field in fields if field.required]
    wanted = f"a JSON object with {' and '.join(needed)}" if needed else "a JSON object; the empty one is `{}`"
    return InvalidRequest(f"there is no body; send {wanted}", status=400)


def unreadable(fault: msgspec.DecodeError, body: bytes, kind: Any) -> InvalidRequest:
    if not body.strip(b" \t\r\n"):
        return no_body(kind)
    cause = str(fault).removeprefix("JSON is malformed: ")
    if cause == "Input data was truncated":  # msgspec says so about a lone surrogate, too
        lone = _lone_surrogate(body)
        cause = f"half of a surrogate pair ({lone[0].decode()}) at byte {lone.start()}" if lone else "it ends too early"
    return InvalidRequest(f"the body is not JSON: {cause}", status=400)


def _lone_surrogate(body: bytes) -> re.Match[bytes] | None:
    for found in itertools.islice(_LONE_SURROGATE.finditer(body), MOST_LOOKED_AT):
        backslashes = found.start()
        while backslashes and body[backslashes - 1] == ord("\\"):
            backslashes -= 1
        if (found.start() - backslashes) % 2 == 0:  # else the last of them is text
            return found
    return None


def unfit_body(fault: msgspec.ValidationError, kind: Any, within: str = "") -> ApiError:
    """The body is JSON, but does not fit its type.

    Args:
        kind: the type. within: the pointer to what has the type, if that is a part of the request's body.
    """
    return _unfit(str(fault), within, kind, "field")


def unfit_query(fault: msgspec.ValidationError, kind: Any) -> ApiError:
    return _unfit(str(fault), "", kind, "query parameter")


def too_many(pointer: str, what: str, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"{shown(pointer)} has more than {limit} {what}; send them in several requests",
        limit=limit,
        pointers=[(pointer, f"has more than {limit} {what}")],
    )


def wrong(pointer: str, detail: str) -> InvalidRequest:
    """One place of the request is wrong. `detail` continues a sentence that begins with the place: `must be …`."""
    return InvalidRequest(f"{shown(pointer)} {detail}", pointers=[(pointer, detail)])


def shown(pointer: str) -> str:
    """A place, for use in a sentence: the name of a top-level field, or the pointer to a deeper one."""
    if not pointer:
        return "the body"
    return f"`{pointer}`" if "/" in pointer[1:] else f"`{unescaped(pointer[1:])}`"


def escaped(name: str) -> str:
    """A name as a step of a JSON pointer (RFC 6901)."""
    return quoted(name).replace("~", "~0").replace("/", "~1")


def unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def quoted(text: str, most: int = MOST_QUOTED) -> str:
    """Return what a caller sent, for an error message or a log line: its first characters, without keys. Nothing else
    quotes."""
    text = SECRET.sub("sq_…", text)
    return text if len(text) <= most else f"{text[:most]}…"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean …?` with the most similar known name, or nothing if none is similar."""
    if len(name) > MOST_COMPARED:
        return ""
    by_lower_case = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    return f"; did you mean `{by_lower_case[near[0]]}`?" if near else ""


_type_info: Final = functools.lru_cache(256)(inspect.type_info)
"""Of the calls' own types, which are few."""


def _unfit(fault: str, pointer: str, kind: Any, noun: str) -> ApiError:
    if len(fault) > 2 * MOST_SAID:  # it names an unknown field of megabytes: copies of that take much memory
        fault = fault[:MOST_SAID] + fault[-MOST_SAID:]
    said, steps = _split(fault)
    there: inspect.Type | None = _type_info(kind)
    for step in steps:
        there = _kind_inside(there, step)
        if step == _MEMBER:  # its name is not told
            break
        pointer += f"/{step}"
    too_long = _TOO_LONG.match(said)
    if too_long:
        return too_many(pointer, "entries", int(too_long[1]))
    if said.startswith(_UNKNOWN):
        name = said[len(_UNKNOWN) : -1]
        known = [field.encode_name for field in _fields(_plain(there, inspect.StructType))]
        return wrong(f"{pointer}/{escaped(name)}", f"is an unknown {noun}{did_you_mean(name, known)}")
    if said.startswith(_MISSING):
        return wrong(f"{pointer}/{escaped(said[len(_MISSING) : -1])}", "is missing")
    words = _words(said, there, noun)
    return wrong(pointer, f"has a member that {words}" if _MEMBER in steps else words)


def _split(fault: str) -> tuple[str, list[str]]:
    """Split msgspec's line into the fault and the steps to its place."""
    said, found, place = fault.rpartition(" - at `$")
    if not found or not _PLACE.fullmatch(place):
        return fault, []
    return said, [name or index or member for name, index, member in _STEP.findall(place)]


def _kind_inside(kind: inspect.Type | None, step: str) -> inspect.Type | None:
    if step == _MEMBER:
        members = _plain(kind, inspect.DictType)
        return members.value_type if isinstance(members, inspect.DictType) else None
    if step.isdecimal():
        entries = _plain(kind, inspect.ListType)
        return entries.item_type if isinstance(entries, inspect.ListType) else None
    fields = _fields(_plain(kind, inspect.StructType))
    return next((field.type for field in fields if field.encode_name == step), None)


def _plain(kind: inspect.Type | None, wanted: type[inspect.Type] | None = None) -> inspect.Type | None:
    """A type without its schema annotations; for a union, its member of the type `wanted`, or else its first."""
    if isinstance(kind, inspect.Metadata):
        return _plain(kind.type, wanted)
    if isinstance(kind, inspect.UnionType):
        plain = [member for member in map(_plain, kind.types) if not isinstance(member, inspect.NoneType)]
        return next((member for member in plain if wanted is not None and isinstance(member, wanted)), plain[0])
    return kind


def _fields(kind: inspect.Type | None) -> Sequence[inspect.Field]:
    return kind.fields if isinstance(kind, inspect.StructType) else ()


def _words(said: str, kind: inspect.Type | None, noun: str) -> str:
    wrong_type = _WRONG_TYPE.match(said)
    if wrong_type:
        return _wrong_type(wrong_type[1].split(" | "), wrong_type[2] if noun == "field" else None)
    plain = _plain(kind)
    if said.startswith("Invalid enum value "):
        known = _choices(plain)
        given = said.removeprefix("Invalid enum value ")
        return f"must be one of {', '.join(f'`{name}`' for name in known)}{did_you_mean(given.strip(chr(39)), known)}"
    if "matching regex" in said:
        pattern = plain.pattern if isinstance(plain, inspect.StrType) else None
        return f"must {_must(kind) or f'match the pattern {pattern}'}"
    if isinstance(plain, inspect.IntType | inspect.FloatType):
        return f"must be {'' if None in (plain.ge, plain.le) else 'from '}{_range(plain.ge, plain.le)}"
    if isinstance(plain, inspect.StrType):
        return f"must have {_range(plain.min_length, plain.max_length)} characters"
    if isinstance(plain, inspect.ListType | inspect.DictType):
        return f"must have {_range(plain.min_length, plain.max_length)} entries"
    return quoted(said)


def _must(kind: inspect.Type | None) -> str | None:
    """The words of a type for its pattern."""
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_must, kind.types)), None)
    return (kind.extra or {}).get(MUST) if isinstance(kind, inspect.Metadata) else None


def _wrong_type(expected: Sequence[str], got: str | None) -> str:
    """`null` is not offered: it stands for an absent field, and the caller meant to send a value."""
    if got == "float" and "int" in expected and "float" not in expected:
        return "must be an integer, without a fraction or an exponent"
    names = [words for name, words in _TYPES.items() if name in expected] or list(expected)
    if "float" in expected and "int" in expected:
        names.remove(_TYPES["int"])
    wanted = " or ".join((", ".join(names[:-1]), names[-1])) if names[1:] else names[0]
    found = "" if got is None else f", not {'a number' if got == 'int' else _TYPES.get(got, got)}"
    return f"must be {wanted}{found}"


def _choices(kind: inspect.Type | None) -> list[str]:
    if isinstance(kind, inspect.EnumType):
        return [str(member.value) for member in kind.cls if isinstance(member, Enum)]
    return [str(value) for value in kind.values] if isinstance(kind, inspect.LiteralType) else []


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"
