"""The rows of the state log, and the state that they make. Pure. Source: Kafka ShareCoordinatorShard."""

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from msgspec import Struct, structs

from sharequeue.protocol.types import StateAnnotation, StateBatch
from sharequeue_share_coordinator.share_state.batch_list import BatchList, batch_list
from sharequeue_share_coordinator.share_state.notes import TOO_MANY

SNAPSHOT: Final = 0
UPDATE: Final = 1
TOMBSTONE: Final = 2
LARGE_SNAPSHOT: Final = 3
SUPERSEDING: Final = frozenset({SNAPSHOT, TOMBSTONE, LARGE_SNAPSHOT})
"""The kinds of rows that make earlier rows superfluous."""

LARGE: Final = 1000
"""A state with more batches has large snapshots: written in parts, beside the commits."""
SMALL_BYTES: Final = 16 * 1024
"""A snapshot of at most so many bytes is due by the number of updates alone."""
MANY_UPDATES: Final = 20_000
"""With more updates than this, a load takes long: a snapshot is then due at half its bytes,
otherwise at twice its bytes."""
MOST_CHANGED: Final = 1 << 20
"""Bytes of what has changed since a large snapshot was stored whole. With more the next one is stored whole."""
SHARE: Final = 8
"""What has changed has at most this part of its bytes: all of it is written with each snapshot until the next one is
stored whole."""
SHARE_SOON: Final = 2
"""The same, as long as the updates since do not have its bytes: so what is stored whole at most doubles what is
written."""
BASE_TIMES: Final = 20
"""A large snapshot is stored whole again after updates of so many times its bytes: 5 % of what is written."""
BASE_TIMES_WITHOUT_ROOM: Final = 2
"""The same, while new reasons have no room: only a snapshot that is stored whole forgets reasons that no record has."""


class Base(Struct, frozen=True):
    """The last large snapshot that was stored whole. Later ones name it, and say what has changed since."""

    batches: BatchList
    snapshot_id: int
    parts: int
    size: int
    reasons: tuple[str, ...]
    transactions: tuple[str, ...]
    """Those that the parts refer to by number."""
    written: int = 0
    """The bytes of the updates between it and the last large snapshot."""


class Covered(NamedTuple):
    """What of a state a large snapshot holds, which was taken while further updates came. `base`: its own."""

    base: Base
    updates: int
    update_bytes: int
    rows: int
    forgotten: frozenset[str]
    """Reasons that no record has any more."""


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of the state log. An update holds what changed; a start offset or leader epoch of −1 is unchanged."""

    kind: int
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = -1
    recorded_leader_epoch: int = -1
    start_offset: int = -1
    delivery_complete_count: int = -1
    state_batches: list[StateBatch] = []
    annotations: list[StateAnnotation] = []
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    covers: int = 0
    """Of a large snapshot: the sequence number of the last row that it holds."""
    snapshot_id: int = 0
    """Of a large snapshot: which parts are its own."""
    parts: int = 0
    size: int = 0
    """Of a large snapshot: the bytes of its parts."""
    reasons: Sequence[str] = ()
    """Of a large snapshot: the reasons that its parts refer to."""
    transactions: Sequence[str] = ()
    """Of a large snapshot: the transactions that its parts refer to."""
    changes: bytes = b""
    """Of a large snapshot that is not stored whole: what differs from its parts."""
    covered: Covered | None = None
    """Of a large snapshot that is decided now. It is not stored."""


class KeyState(Struct, frozen=True):
    """The state of one share-partition.

    `recorded_leader_epoch` fences: requests below it are refused. Initialize does not lower it, Delete forgets it.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    recorded_leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: BatchList
    create_timestamp_ms: int
    write_timestamp_ms: int
    updates: int
    """Updates since the last snapshot that was due."""
    rows: int
    """Rows since the last snapshot of any kind."""
    update_bytes: int = 0
    """The bytes of the updates since the last snapshot of any kind."""
    snapshot_bytes: int = 0
    """The bytes of the last snapshot. Of a large one: of what it says has changed."""
    base: Base | None = None
    """None: the last snapshot is not a large one, or bytes decide nothing."""
    reasons: frozenset[str] = frozenset()
    """The reasons of updates since the last snapshot, and of that snapshot."""
    damage: str = ""
    """Why the rows cannot be read. If it is set, the other fields mean nothing."""

    @property
    def large(self) -> bool:
        return len(self.batches) > LARGE


def snapshot_due(state: KeyState, updates_per_snapshot: int) -> bool:
    """Whether the next row of a state should be a snapshot.

    It is due after a number of updates, and not before these have half the bytes of the last snapshot: so snapshots at
    most triple what is written.
    """
    if state.updates < updates_per_snapshot:
        return False
    if not state.rows and state.large:
        return False  # one has just been written, and the next would follow at once, without end
    if state.snapshot_bytes <= SMALL_BYTES:
        return True
    share = 1 if state.updates >= MANY_UPDATES else 4
    return 2 * state.update_bytes >= share * state.snapshot_bytes


def base_serves(base: Base, changed: int, reasons: Set[str]) -> bool:
    """Whether a large snapshot may say what has changed since `base`, in `changed` bytes, and is not stored whole.

    Args:
        reasons: of the state.
    """
    times = BASE_TIMES_WITHOUT_ROOM if TOO_MANY in reasons else BASE_TIMES
    share = SHARE_SOON if base.written < base.size else SHARE
    return changed <= min(base.size // share, MOST_CHANGED) and base.written <= times * base.size


def replay(state: KeyState | None, row: Row, updates_per_snapshot: int, size: int = 0) -> KeyState | None:
    """The state after a row. None: there is no state. For a large snapshot that was stored earlier: `restored`.

    Args:
        size: the bytes of the row. 0: snapshots are due by the number of updates alone, as in Kafka.
    """
    if row.kind == TOMBSTONE:
        return None
    if row.kind == SNAPSHOT:
        return _after_snapshot(state, row, updates_per_snapshot, batch_list(row.state_batches, row.annotations), size)
    if state is None:
        return None
    if row.covered is not None:
        return _after_large_snapshot(state, row, row.covered, size)
    start_offset = state.start_offset if row.start_offset == -1 else row.start_offset
    reasons = state.reasons
    new = {str(note.reason) for note in row.annotations if note.reason is not None} - reasons
    return structs.replace(
        state,
        leader_epoch=state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch,
        recorded_leader_epoch=max(state.recorded_leader_epoch, row.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=row.delivery_complete_count,
        batches=state.batches.updated(row.state_batches, row.annotations, start_offset),
        updates=state.updates + 1,
        rows=state.rows + 1,
        update_bytes=state.update_bytes + size,
        reasons=reasons | new if new else reasons,
    )


def restored(row: Row, batches: BatchList, base: Base | None) -> KeyState:
    """The state that a large snapshot holds. The updates behind `row.covers` follow.

    Args:
        base: None: snapshots are due by the number of updates alone.
    """
    state = _after_snapshot(None, row, 0, batches, 0 if base is None else len(row.changes))
    return structs.replace(state, base=base)


def _after_large_snapshot(state: KeyState, row: Row, part: Covered, size: int) -> KeyState:
    return structs.replace(
        state,
        snapshot_epoch=row.snapshot_epoch,
        create_timestamp_ms=row.create_timestamp_ms,
        write_timestamp_ms=row.write_timestamp_ms,
        updates=state.updates - part.updates,
        update_bytes=state.update_bytes - part.update_bytes,
        rows=state.rows - part.rows,
        snapshot_bytes=len(row.changes) if size else 0,
        base=part.base if size else None,
        reasons=state.reasons - part.forgotten,
    )


def _after_snapshot(
    state: KeyState | None, row: Row, updates_per_snapshot: int, batches: BatchList, size: int
) -> KeyState:
    recorded = max(-1 if state is None else state.recorded_leader_epoch, row.leader_epoch, row.recorded_leader_epoch)
    due = state is not None and state.updates >= updates_per_snapshot
    return KeyState(
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        recorded_leader_epoch=recorded,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        batches=batches,
        create_timestamp_ms=row.create_timestamp_ms,
        write_timestamp_ms=row.write_timestamp_ms,
        updates=0 if state is None or due else state.updates,
        rows=0,
        snapshot_bytes=size,
        reasons=batches.reasons(),
    )


def damaged_state(named: str, cause: str) -> KeyState:
    """The state of a share-partition whose rows cannot be read."""
    remedy = "repair the row, or delete the group's offsets of this topic"
    return KeyState(
        snapshot_epoch=-1,
        state_epoch=-1,
        leader_epoch=-1,
        recorded_leader_epoch=-1,
        start_offset=-1,
        delivery_complete_count=-1,
        batches=BatchList(),
        create_timestamp_ms=0,
        write_timestamp_ms=0,
        updates=0,
        rows=0,
        damage=f"the state of {named} is damaged: {cause}; {remedy}",
    )
