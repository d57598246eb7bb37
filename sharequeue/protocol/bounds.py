"""Bounds a client's request before it is decoded. Pure.

The schema bounds each list too, but msgspec checks that when the whole list is decoded. By then each `{},` of three
bytes has become 80 bytes. So the number of values is checked first, in a time that grows with the bytes of the body.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS, MAX_PARTITIONS_NAMED, MAX_RECORDS, MAX_TOPICS_NAMED

MAX_VALUES: Final = 200_000
"""Values in one body, counted by its commas: ten times as many as the longest lists of the schemas need."""

MAX_NAMES: Final = 20_000
"""Values in the body of a heartbeat."""

MAX_SETTINGS: Final = 1000
"""Values in the body of a call that changes settings. Decoded, an object with short names takes ten times its size."""

ALWAYS_FITS: Final = min(MAX_VALUES, MAX_NAMES, MAX_RECORDS)
"""Bytes: a body of no more is not checked before it is decoded.
Its values take little memory, and the schema bounds them."""


ACKNOWLEDGEMENT_BYTES: Final = 600
"""The most bytes of an acknowledgement without its reason and with one type, as JSON."""
CHARACTER_BYTES: Final = 6
"""The most bytes of a character of a reason, as JSON: that of a control character."""
ACKNOWLEDGEMENTS_BYTES: Final = 700_000
"""The most bytes of all acknowledgements of a call. A fetch names topics and partitions beside them."""


class TooMany(Exception):
    """A body holds more than `limit` of something: `what` names it, `pointer` its place."""

    def __init__(self, pointer: str, what: str, limit: int) -> None:
        super().__init__(f"{pointer} has more than {limit} {what}")
        self.pointer = pointer
        self.what = what
        self.limit = limit


def check_values(body: bytes, most: int = MAX_VALUES) -> None:
    """Raises: TooMany: more than `most`."""
    if len(body) > most and body.count(b",") >= most:
        raise TooMany("", "values", most)


def check_names(body: bytes) -> None:
    """As `check_values`, for a heartbeat: each of its names is matched with a pattern,
    which takes ten times as long."""
    check_values(body, MAX_NAMES)


def check_settings(body: bytes) -> None:
    """As `check_values`, for settings."""
    check_values(body, MAX_SETTINGS)


class _Named(msgspec.Struct, gc=False):
    """The lists of a request that name topics and partitions, as JSON."""

    topics: msgspec.Raw = msgspec.Raw()
    topic_partitions: msgspec.Raw = msgspec.Raw()
    forgotten_topics: msgspec.Raw = msgspec.Raw()


_named: Final[Callable[[bytes], _Named]] = msgspec.json.Decoder(_Named).decode
_MAX_IN_PARTITIONS: Final = MAX_PARTITIONS_NAMED + 2 * MAX_TOPICS_NAMED
"""Values in a list of partitions by topic: each of its entries has a name and one more value beside its partitions."""


def check_named(body: bytes) -> None:
    """As `check_values`, and counts topics and partitions: decoded, short ones take ten times their size."""
    check_values(body)
    if body.count(b",") < MAX_TOPICS_NAMED:
        return
    try:
        named = _named(body)
    except (msgspec.DecodeError, RecursionError):
        return  # decoding the whole body finds the same fault and its place
    for field in ("topics", "topic_partitions", "forgotten_topics"):
        entries = bytes(getattr(named, field))
        by_topic = entries.count(b"{")
        if (by_topic or entries.count(b",") + 1) > MAX_TOPICS_NAMED:
            raise TooMany(f"/{field}", "entries", MAX_TOPICS_NAMED)
        if entries.count(b",") >= _MAX_IN_PARTITIONS:
            raise TooMany(f"/{field}", "values", _MAX_IN_PARTITIONS)


def acknowledgements_in_a_call(reasons: Iterable[str | None]) -> int:
    """How many of these acknowledgements a client sends in one call, by their reasons; at least one if there are any.

    It counts the most bytes that they may take as JSON, so a call is never refused for its size.
    """
    count = size = 0
    for reason in reasons:
        size += ACKNOWLEDGEMENT_BYTES + CHARACTER_BYTES * len(reason or "")
        if count == MAX_ACKNOWLEDGEMENTS or (count and size > ACKNOWLEDGEMENTS_BYTES):
            break
        count += 1
    return count


class _Counter(threading.local):
    """Counts the records of a body. Large bodies are checked in threads."""

    seen = 0


_records: Final = _Counter()


class _Record(msgspec.Struct, gc=False):
    """A record that is counted and not kept."""

    def __post_init__(self) -> None:
        _records.seen += 1
        if _records.seen > MAX_RECORDS:
            raise TooMany("/records", "entries", MAX_RECORDS)


class _Produce(msgspec.Struct):
    records: list[_Record] = []


_count: Final = msgspec.json.Decoder(_Produce).decode


def check_records(body: bytes) -> None:
    """As `check_values`, for a produce request: its values are any JSON, so only its records are counted.

    Raises: TooMany: more than MAX_RECORDS.
    """
    if len(body) > MAX_RECORDS and body.count(b"{") > MAX_RECORDS:
        _records.seen = 0
        try:
            _count(body)
        except (msgspec.DecodeError, RecursionError):
            return  # decoding the whole body finds the same fault and its place
