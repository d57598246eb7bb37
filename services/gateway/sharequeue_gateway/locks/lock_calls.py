"""What a write of locks is, and how a large one is cut into calls of at most MOST_FIELDS fields. Pure.

Redis runs one script at a time, so a long one stops every gateway. Each call of a write checks the leader epoch. A
crash between two calls leaves entries that are safe:

    changes    delete ended ─▶ delete ended ─▶ set new ─▶ set new       what ended them is durable; the new ones are
                                                                       locks that no client knows yet
    all locks  stage ─▶ stage ─▶ stage ─▶ put in place                  until the last call the old ones are there
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.types import SharePartitionKey

MOST_FIELDS: Final = 2000
"""The most fields of a hash that one call names. Redis takes 1 to 2 ms for so many."""
STAGED_TTL_MS: Final = 60_000
Command = Sequence[Any]

LockName = tuple[int, int]
"""First and last offset. Parts of a range that other members hold are locks of their own, beside the rest of it."""


class LockEntry(msgspec.Struct, array_like=True, frozen=True):
    """One acquired range, as the hash keeps it under its name. Where locks overlap, the higher delivery count is
    valid."""

    member_id: str
    delivery_count: int
    deadline_ms: int
    state_epoch: int
    lock_duration_ms: int
    forgiven: int


class LockWrite(msgspec.Struct, frozen=True):
    """Changes of the locks of one share-partition.

    `entries`: new locks by name. `over`: names of locks that have ended; None: all locks but those of `entries`.
    """

    key: SharePartitionKey
    leader_epoch: int
    next_deadline_ms: int | None
    entries: Mapping[LockName, LockEntry]
    over: Sequence[LockName] | None
    fetch: tuple[str, bytes, int] | None
    """(key, value, time to live in ms) of the answer of a fetch, for a repeat of that fetch."""


class Call(NamedTuple):
    """One command. `write`: the place of the write whose leader epoch it checks; None: it checks none."""

    command: Command
    fields: int
    write: int | None


encode: Final = msgspec.json.Encoder().encode


def large_write(place: int, write: LockWrite, staged: str, head: Sequence[Any]) -> Iterator[Call]:
    """The calls of a write of more than MOST_FIELDS fields.

    Args:
        staged: the name of a hash of this leader alone. head: the call of the script, up to the counts.
    """
    if write.over is not None:
        return _changes(place, write.over, write.entries, head)
    return _staged(place, write.entries, staged, head)


def _changes(
    place: int, over: Sequence[LockName], entries: Mapping[LockName, LockEntry], head: Sequence[Any]
) -> Iterator[Call]:
    for start in range(0, len(over), MOST_FIELDS):
        names = [f"{first}-{last}" for first, last in over[start : start + MOST_FIELDS]]
        yield Call([*head, len(names), 0, *names], len(names), place)
    for part in _parts(entries):
        yield Call([*head, 0, 0, *_fields(part)], len(part), place)


def _staged(place: int, entries: Mapping[LockName, LockEntry], staged: str, head: Sequence[Any]) -> Iterator[Call]:
    yield Call(["UNLINK", staged], 0, None)
    for part in _parts(entries):
        yield Call(["HSET", staged, *_fields(part)], len(part), None)
        yield Call(["PEXPIRE", staged, STAGED_TTL_MS], 0, None)
    yield Call([*head, "", len(entries)], 0, place)


def _parts(entries: Mapping[LockName, LockEntry]) -> Iterator[dict[LockName, LockEntry]]:
    items = iter(entries.items())
    while part := dict(islice(items, MOST_FIELDS)):
        yield part


def _fields(entries: Mapping[LockName, LockEntry]) -> Iterator[str | bytes]:
    for (first_offset, last_offset), entry in entries.items():
        yield f"{first_offset}-{last_offset}"
        yield encode(entry)
