"""A write of locks, and the calls to Redis that it becomes. Pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.types import RestoredLock, SharePartitionKey

MOST_LOCKS: Final = 2000
"""A round trip of several writes has no more locks: it is packed in one turn of the event loop."""
LOCKS_PER_WRITE: Final = 10
"""A write counts as so many locks more, for its commands."""
LOCKS_PER_ENTRY: Final = 100
"""A load decodes an entry in one turn, and Redis stores long ones apart, in more memory."""
Command = Sequence[Any]


class LockWrite(msgspec.Struct, frozen=True):
    """New locks of one share-partition. Where locks overlap, the higher delivery count is valid.

    `whole`: they stand in place of all others.
    """

    key: SharePartitionKey
    leader_epoch: int
    state_epoch: int
    locks: Sequence[RestoredLock]
    whole: bool
    fetch: tuple[str, bytes, int] | None
    """(key, value, time to live in ms) of the answer of a fetch, for a repeat of that fetch."""


class Call(NamedTuple):
    """One command. `write`: the place of the write that has failed if the answer is 0; None: of none."""

    command: Command
    write: int | None


encode: Final = msgspec.json.Encoder().encode
