"""The rows of the state log, and the state that they make. Pure. Source: Kafka ShareCoordinatorShard."""

from typing import Final

from msgspec import Struct, structs

from sharequeue.protocol.types import StateAnnotation, StateBatch
from sharequeue_share_coordinator.share_state.batch_list import BatchList, batch_list

SNAPSHOT: Final = 0
UPDATE: Final = 1
TOMBSTONE: Final = 2


class Row(Struct, frozen=True, kw_only=True):
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
    damage: str = ""
    """Why the rows cannot be read. If it is set, the other fields mean nothing."""


def replay(state: KeyState | None, row: Row, updates_per_snapshot: int) -> KeyState | None:
    """The state after a row. None: there is no state."""
    if row.kind == TOMBSTONE:
        return None
    if row.kind == SNAPSHOT:
        return _after_snapshot(state, row, updates_per_snapshot)
    if state is None:
        return None
    start_offset = state.start_offset if row.start_offset == -1 else row.start_offset
    return structs.replace(
        state,
        leader_epoch=state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch,
        recorded_leader_epoch=max(state.recorded_leader_epoch, row.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=row.delivery_complete_count,
        batches=state.batches.updated(row.state_batches, row.annotations, start_offset),
        updates=state.updates + 1,
        rows=state.rows + 1,
    )


def _after_snapshot(state: KeyState | None, row: Row, updates_per_snapshot: int) -> KeyState:
    recorded = max(-1 if state is None else state.recorded_leader_epoch, row.leader_epoch, row.recorded_leader_epoch)
    due = state is not None and state.updates >= updates_per_snapshot
    return KeyState(
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        recorded_leader_epoch=recorded,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        batches=batch_list(row.state_batches, row.annotations),
        create_timestamp_ms=row.create_timestamp_ms,
        write_timestamp_ms=row.write_timestamp_ms,
        updates=0 if state is None or due else state.updates,
        rows=0,
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
