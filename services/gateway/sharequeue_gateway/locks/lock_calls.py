"""A write of locks, and the calls to Redis that it becomes. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.types import SharePartitionKey

MOST_FIELDS: Final = 2000
"""A round trip of several writes names no more fields of hashes. Redis takes 1 to 2 ms for so many."""
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
    entries: Mapping[LockName, LockEntry]
    over: Sequence[LockName] | None
    fetch: tuple[str, bytes, int] | None
    """(key, value, time to live in ms) of the answer of a fetch, for a repeat of that fetch."""


class Call(NamedTuple):
    """One command. `write`: the place of the write whose leader epoch it checks; None: it checks none."""

    command: Command
    write: int | None


encode: Final = msgspec.json.Encoder().encode
