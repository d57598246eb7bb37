"""What the body of a client's request may hold, looked at before it is decoded. Pure.

A list's own bound is in its schema, but that is checked when the whole list is decoded: by then `{},` has become 80
bytes for each three. So the bodies of calls are bounded first, in a time that follows their bytes.
"""

from typing import Final

import msgspec

from sharequeue.protocol.types import MAX_RECORDS

MAX_VALUES: Final = 200_000
"""In one body, counted by its commas: ten times what the longest lists of the schemas need."""

MAX_NAMES: Final = 20_000

HARMLESS: Final = min(MAX_VALUES, MAX_NAMES, MAX_RECORDS)
"""A body of no more bytes cannot hold too many of anything: it is not looked at."""


class TooMany(Exception):
    """A body holds more than `limit` of something; `pointer`: where, `what`: in words."""

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
    """As `check_values`, of a heartbeat: each of its names is compared with a pattern, which takes ten times as long."""
    check_values(body, MAX_NAMES)


class _Records:
    """How many records of a body were seen."""

    seen = 0


class _Record(msgspec.Struct, gc=False):
    """A record of which nothing is kept; to count it is all that is done."""

    def __post_init__(self) -> None:
        _Records.seen += 1
        if _Records.seen > MAX_RECORDS:
            raise TooMany("/records", "entries", MAX_RECORDS)


class _Produce(msgspec.Struct):
    records: list[_Record] = []


_count: Final = msgspec.json.Decoder(_Produce).decode


def check_records(body: bytes) -> None:
    """As `check_values`, of a produce request, whose values are any JSON: its records alone are counted.

    Raises: TooMany: more than MAX_RECORDS.
    """
    if len(body) > MAX_RECORDS and body.count(b"{") > MAX_RECORDS:
        _Records.seen = 0
        try:
            _count(body)
        except (msgspec.DecodeError, RecursionError):
            return  # decoding it whole finds the same fault, and its place
