"""Bounds a client's request: what a large body may hold, which is checked before it is decoded, and how many
acknowledgements go into one call. Pure.

The schema bounds each list too, but msgspec checks that when the whole list is decoded. By then each `{},` of three
bytes has become 80 bytes. So what a body of 10 MiB holds is counted first, in a time that grows with its bytes.
"""

import threading
from collections.abc import Iterable
from typing import Final

import msgspec

from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS, MAX_RECORDS
from sharequeue_http.forms.mistakes import TooMany

MAX_VALUES: Final = 200_000
"""Values in the body of an acknowledgement or a commit, counted by its commas: more than the longest lists need."""

MAX_NAMES: Final = 20_000
"""Values in the body of a heartbeat. Each of its names is matched with a pattern, which takes ten times as long."""

ACKNOWLEDGEMENT_BYTES: Final = 600
"""The most bytes of an acknowledgement without its reason and with one type, as JSON."""
CHARACTER_BYTES: Final = 6
"""The most bytes of a character of a reason, as JSON. A control character has them."""
ACKNOWLEDGEMENTS_BYTES: Final = 700_000
"""The most bytes of all acknowledgements of a call. A fetch names topics and partitions beside them."""


def check_values(body: bytes, most: int = MAX_VALUES) -> None:
    """Raises: TooMany: more than `most`."""
    if len(body) > most and body.count(b",") >= most:
        raise TooMany("", "values", most)


def check_names(body: bytes) -> None:
    """As `check_values`, for a heartbeat."""
    check_values(body, MAX_NAMES)


def acknowledgements_in_a_call(reasons: Iterable[str | None]) -> int:
    """Return how many of these acknowledgements a client sends in one call, by their reasons; at least one if there are
    any.

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
