"""What the events of a share-partition take and return: acknowledgements, and what came of each event. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.types import AcknowledgeType
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, DeadLetter, Run, StateWrite


class AcknowledgementBatch(NamedTuple):
    """What a member says of first..last: one type for all, or one per offset."""

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    delivery_count: int | None = None
    """Fences: records with another count are refused. With it a repeat of the acknowledgement is recognised."""
    reason: str | None = None
    delay_ms: int = 0


class Acknowledged(NamedTuple):
    """What came of an acknowledgement. `writes`: await them all; one may be an earlier one that this repeats.

    Without writes the records were settled like this before, or, if `ignored`, all lie below the start offset.
    """

    writes: tuple[StateWrite, ...]
    ignored: bool
    renewed: Sequence[AcquiredRange]


class Completed(NamedTuple):
    """What the outcome of a write changed. `dead_letters`: ranges whose ARCHIVING is durable now."""

    made_available: bool
    start_moved: bool
    dead_letters: Sequence[DeadLetter]


class Expired(NamedTuple):
    """What locks and delays that were due changed. `records`: how many lost their lock."""

    write: StateWrite | None
    records: int
    made_available: bool
    dead_letters: Sequence[DeadLetter]


class AcknowledgeCall(NamedTuple):
    """One call of `acknowledge`. `write`: what it changes; `joined`: earlier writes that it repeats, by their id."""

    member_id: str
    now_ms: int
    write: StateWrite
    joined: dict[int, StateWrite]
    renewed: list[AcquiredRange]


def not_held(run: Run, member_id: str, delivery_count: int | None) -> InvalidRecordState:
    """Why a member may not settle the records of a run."""
    where = f"offsets {run.first}-{run.last}" if run.last > run.first else f"offset {run.first}"
    if run.write is not None:
        return InvalidRecordState(f"{where}: another acknowledgement is being made durable")
    if run.state is not ACQUIRED:
        detail = "its lock may have ended; fetch again" if run.state is AVAILABLE else "it was settled before"
        return InvalidRecordState(f"{where}: not acquired but {run.state.name}: {detail}")
    if run.member_id != member_id:
        return InvalidRecordState(f"{where}: held by another member")
    return InvalidRecordState(f"{where}: delivered {run.delivery_count} times by now, not {delivery_count}")
