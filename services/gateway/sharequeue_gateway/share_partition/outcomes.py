"""The arguments and results of the events of a share-partition. Pure."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.types import AcknowledgeType, Reason
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, DeadLetter, Hold, Run, StateWrite


class AcknowledgementBatch(msgspec.Struct, frozen=True, gc=False):
    """A member's acknowledgement of first..last: one type for all offsets, or one per offset."""

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    delivery_count: int | None = None
    """If given, records with another count are refused, and a repeat of the acknowledgement is recognised."""
    reason: Reason | None = None
    delay_ms: int | None = None
    """For releases; None: the backoff of the group decides."""
    begun: bool = True
    """For releases; False: the client gives records back before it began to work on them."""
    seen: bool = True
    """False, beside `begun`: the gateway gives records back, because no answer about them was written."""
    lock_duration_ms: int | None = None
    """For renewals: the length of the lock from now on; None: it keeps its own."""

    def continued_by(self, other: "AcknowledgementBatch") -> bool:
        """Return whether one acknowledgement of both ranges does the same as the two, if all records are one run.
        Releases differ: the backoff of each may end at another time."""
        return (
            other.first_offset == self.last_offset + 1
            and len(self.types) == 1
            and self.types[0] is not AcknowledgeType.RELEASE
            and other == msgspec.structs.replace(self, first_offset=other.first_offset, last_offset=other.last_offset)
        )


class Acknowledged(msgspec.Struct, frozen=True):
    """The result of an acknowledgement. `writes`: await all of them; one may be the write of an earlier
    acknowledgement.

    Without writes, an earlier acknowledgement had settled the records in the same way. If `ignored`, all of them lie
    below the start offset.
    """

    writes: tuple[StateWrite, ...]
    ignored: bool
    renewed: Sequence[AcquiredRange]


class Completed(msgspec.Struct, frozen=True):
    """The changes after the outcome of a write. `dead_letters`: ranges that are durably ARCHIVING now."""

    made_available: bool
    start_moved: bool
    dead_letters: Sequence[DeadLetter]


class Expired(NamedTuple):
    """The changes by locks and delays that were due. `records`: the number of records whose lock ended; `members`: who
    held them."""

    write: StateWrite | None
    records: int
    made_available: bool
    dead_letters: Sequence[DeadLetter]
    members: Collection[str | None]


class AcknowledgeCall(msgspec.Struct, frozen=True):
    """One call of `acknowledge`. `write`: its changes. `joined`: earlier writes that it repeats, by their id.
    `renewals`: runs whose locks begin again if the call succeeds, each with its new length; None: with its own."""

    member_id: str
    now_ms: int
    write: StateWrite
    joined: dict[int, StateWrite]
    renewals: list[tuple[Run, int | None]]


def not_held(run: Run, member_id: str, delivery_count: int | None) -> InvalidRecordState:
    """The error for a member that may not settle the records of a run."""
    where = f"offsets {run.first}-{run.last}" if run.last > run.first else f"offset {run.first}"
    if isinstance(run.write, Hold):
        return InvalidRecordState(f"{where}: pending on transaction {run.write.transaction_id}, which settles it")
    if run.write is not None:
        return InvalidRecordState(f"{where}: another acknowledgement is being made durable")
    if run.state is not ACQUIRED:
        detail = "its lock may have ended; fetch again" if run.state is AVAILABLE else "it was settled before"
        return InvalidRecordState(f"{where}: not acquired but {run.state.name}: {detail}")
    if run.member_id != member_id:
        return InvalidRecordState(f"{where}: held by another member")
    return InvalidRecordState(f"{where}: delivered {run.delivery_count} times by now, not {delivery_count}")
