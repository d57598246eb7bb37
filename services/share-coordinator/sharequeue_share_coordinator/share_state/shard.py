"""The state of share-partitions: each request decides (answer, row); only replaying a row changes state. Pure.

The same replay rebuilds the state from the rows. Source: Kafka ShareCoordinatorShard.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct, structs

from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.internal import PartitionState, PartitionStateResult
from sharequeue.protocol.types import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    DeliveryState,
    StateAnnotation,
    StateBatch,
)
from sharequeue_share_coordinator.share_state.state_batches import combine_annotations, combine_state_batches

SNAPSHOT: Final = 0
UPDATE: Final = 1
TOMBSTONE: Final = 2
TERMINAL: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Row(Struct, frozen=True, kw_only=True):
    """One row of the state log. An update holds what changed; −1 (start offset, leader epoch) is unchanged."""

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
    """The state of one share-partition. `recorded_leader_epoch` fences; Initialize does not lower it, Delete forgets it."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    recorded_leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: list[StateBatch]
    annotations: list[StateAnnotation]
    create_timestamp_ms: int
    write_timestamp_ms: int
    updates: int
    """Updates since the last snapshot that was due."""
    rows: int
    """Rows since the last snapshot of any kind."""
    damage: str = ""
    """What is wrong with rows that cannot be read: nothing else is known then."""


class Decision(NamedTuple):
    """What a request is answered once `row`, if there is one, is durable."""

    result: PartitionStateResult
    row: Row | None = None


Decide = Callable[[KeyState | None], Decision]
"""Decides about a share-partition, given its state."""


def replay(state: KeyState | None, row: Row, updates_per_snapshot: int) -> KeyState | None:
    """The state after a row."""
    if row.kind == TOMBSTONE:
        return None
    if row.kind == SNAPSHOT:
        recorded = max(
            -1 if state is None else state.recorded_leader_epoch, row.leader_epoch, row.recorded_leader_epoch
        )
        due = state is not None and state.updates >= updates_per_snapshot
        return KeyState(
            snapshot_epoch=row.snapshot_epoch,
            state_epoch=row.state_epoch,
            leader_epoch=row.leader_epoch,
            recorded_leader_epoch=recorded,
            start_offset=row.start_offset,
            delivery_complete_count=row.delivery_complete_count,
            state_batches=row.state_batches,
            annotations=row.annotations,
            create_timestamp_ms=row.create_timestamp_ms,
            write_timestamp_ms=row.write_timestamp_ms,
            updates=0 if state is None or due else state.updates,
            rows=0,
        )
    if state is None:
        return None
    start_offset = state.start_offset if row.start_offset == -1 else row.start_offset
    state_batches = combine_state_batches(state.state_batches, row.state_batches, start_offset)
    annotations = (
        combine_annotations(state.annotations, row.annotations, state_batches, start_offset)
        if state.annotations or row.annotations
        else state.annotations
    )
    return structs.replace(
        state,
        leader_epoch=state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch,
        recorded_leader_epoch=max(state.recorded_leader_epoch, row.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=state_batches,
        annotations=annotations,
        updates=state.updates + 1,
        rows=state.rows + 1,
    )


def fault(partition: int, error_code: int, message: str) -> Decision:
    return Decision(PartitionStateResult(partition=partition, error_code=error_code, error_message=message))


def done(partition: int) -> PartitionStateResult:
    return PartitionStateResult(partition=partition, error_code=0, error_message=None)


def refused(partition: int, cause: int | ApiError | None) -> PartitionStateResult:
    """The result of a share-partition that is not served.

    Args:
        cause: why its shard is not served; else its shard was lost and taken again just now.
    """
    if isinstance(cause, ApiError):
        return fault(partition, cause.error.kafka_code, cause.detail).result
    return fault(partition, 14, "the share-partition is being handed over").result


def damaged(named: str, cause: str) -> KeyState:
    """The state of a share-partition whose rows cannot be read."""
    remedy = "mend the row, or delete the group's offsets of this topic"
    return KeyState(
        snapshot_epoch=-1,
        state_epoch=-1,
        leader_epoch=-1,
        recorded_leader_epoch=-1,
        start_offset=-1,
        delivery_complete_count=-1,
        state_batches=[],
        annotations=[],
        create_timestamp_ms=0,
        write_timestamp_ms=0,
        updates=0,
        rows=0,
        damage=f"the state of {named} is damaged: {cause}; {remedy}",
    )


def of_damaged(state: KeyState, decision: Decision) -> Decision:
    """What becomes of a decision over rows that cannot be read: they can be deleted, and no more."""
    if decision.row is not None and decision.row.kind == TOMBSTONE:
        return decision
    return fault(decision.result.partition, -1, state.damage)


def tombstone(state: KeyState | None) -> Decision:
    return Decision(done(0), None if state is None else Row(kind=TOMBSTONE))


def form_fault(
    topic_id: str | None, request: PartitionState, *, leader_epoch: bool, state_epoch: bool
) -> Decision | None:
    """The checks of form, in Kafka's order; the flags say which epochs the request must bring."""
    if topic_id is None:
        return fault(request.partition, 42, "the topic id must not be null")
    if request.partition < 0:
        return fault(request.partition, 42, "the partition must not be negative")
    if leader_epoch and (request.leader_epoch is None or request.leader_epoch < 0):
        return fault(request.partition, 42, "the leader epoch must not be negative")
    if state_epoch and (request.state_epoch is None or request.state_epoch < 0):
        return fault(request.partition, 42, "the state epoch must not be negative")
    return None


def initialize(state: KeyState | None, request: PartitionState, topic: Decision | None, now_ms: int) -> Decision:
    """Start afresh at a start offset under a state epoch. `topic`: the fault if the topic is not as asked."""
    state_epoch = request.state_epoch or 0
    if state is not None and state_epoch < state.state_epoch:
        return fault(request.partition, 124, f"state epoch {state_epoch} is below the recorded {state.state_epoch}")
    if topic is not None:
        return topic
    if state is not None and (state.state_epoch, state.start_offset) == (state_epoch, request.start_offset):
        return Decision(done(request.partition))
    initialised = request.start_offset != UNINITIALIZED_START_OFFSET
    row = Row(
        kind=SNAPSHOT,
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        recorded_leader_epoch=-1 if state is None else state.recorded_leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=0 if initialised else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return Decision(done(request.partition), row)


def read(
    state: KeyState | None, request: PartitionState, topic: Decision | None, updates_per_snapshot: int, now_ms: int
) -> Decision:
    """Read; a leader epoch above the recorded one is recorded first, and fences every lower one from then on."""
    leader_epoch = request.leader_epoch or 0
    if state is None:
        return fault(request.partition, 42, "read of a share-partition that was not initialised")
    if leader_epoch < state.recorded_leader_epoch:
        return _fenced(request.partition, leader_epoch, state)
    if topic is not None:
        return topic
    result = PartitionStateResult(
        partition=request.partition,
        error_code=0,
        error_message=None,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=state.state_batches,
        annotations=state.annotations or None,
    )
    if leader_epoch == state.recorded_leader_epoch:
        return Decision(result)
    if state.updates >= updates_per_snapshot:
        return Decision(result, _snapshot(state, now_ms, leader_epoch=leader_epoch))
    row = Row(
        kind=UPDATE,
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        delivery_complete_count=state.delivery_complete_count,
    )
    return Decision(result, row)


def write(
    state: KeyState | None, request: PartitionState, topic: Decision | None, updates_per_snapshot: int, now_ms: int
) -> Decision:
    """Write; the start offset never goes back, and so the count goes with it."""
    leader_epoch, state_epoch = request.leader_epoch or 0, request.state_epoch or 0
    if state is None:
        return fault(request.partition, 42, "write to a share-partition that was not initialised")
    if leader_epoch < state.recorded_leader_epoch:
        return _fenced(request.partition, leader_epoch, state)
    if state_epoch < state.state_epoch:
        return fault(request.partition, 124, f"state epoch {state_epoch} is below the recorded {state.state_epoch}")
    if topic is not None:
        return topic
    start_offset = max(request.start_offset, state.start_offset)
    count = _delivery_complete_count(state, request)
    if state.updates < updates_per_snapshot:
        state_batches = combine_state_batches([], request.state_batches, start_offset)
        row = Row(
            kind=UPDATE,
            snapshot_epoch=state.snapshot_epoch,
            start_offset=start_offset,
            delivery_complete_count=count,
            state_batches=state_batches,
            annotations=request.annotations,
        )
        return Decision(done(request.partition), row)
    state_batches = combine_state_batches(state.state_batches, request.state_batches, start_offset)
    row = Row(
        kind=SNAPSHOT,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        recorded_leader_epoch=state.recorded_leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=count,
        state_batches=state_batches,
        annotations=combine_annotations(state.annotations, request.annotations, state_batches, start_offset),
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return Decision(done(request.partition), row)


def _delivery_complete_count(state: KeyState, request: PartitionState) -> int:
    if request.start_offset > state.start_offset:
        return request.delivery_complete_count
    if request.start_offset == state.start_offset:
        return max(request.delivery_complete_count, state.delivery_complete_count)
    return state.delivery_complete_count


def delete(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
    """Forget a share-partition, its epochs too; one that is not there is deleted already."""
    if topic is not None:
        return topic
    return Decision(done(request.partition), None if state is None else Row(kind=TOMBSTONE))


def read_summary(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
    """Epochs, start offset and count, and how far all is finished; of one that was not initialised −1 and 0."""
    if topic is not None:
        return topic
    return Decision(
        PartitionStateResult(
            partition=request.partition,
            error_code=0,
            error_message=None,
            state_epoch=0 if state is None else state.state_epoch,
            leader_epoch=0 if state is None else state.leader_epoch,
            start_offset=UNINITIALIZED_START_OFFSET if state is None else state.start_offset,
            delivery_complete_count=(
                UNINITIALIZED_DELIVERY_COMPLETE_COUNT if state is None else state.delivery_complete_count
            ),
            unfinished_offset=UNINITIALIZED_START_OFFSET if state is None else _unfinished_offset(state),
        )
    )


def _unfinished_offset(state: KeyState) -> int:
    offset = state.start_offset
    for batch in state.state_batches:
        if batch.first_offset > offset or batch.delivery_state not in TERMINAL:
            break
        offset = batch.last_offset + 1
    return offset


def cold_snapshot(state: KeyState, interval_ms: int, now_ms: int) -> Row | None:
    """A snapshot of the same content for a key whose last snapshot is old and has rows behind it: those can go then."""
    if not state.rows or now_ms - state.write_timestamp_ms < interval_ms:
        return None
    return structs.replace(
        _snapshot(state, now_ms, leader_epoch=state.leader_epoch), create_timestamp_ms=state.create_timestamp_ms
    )


def _snapshot(state: KeyState, now_ms: int, *, leader_epoch: int) -> Row:
    return Row(
        kind=SNAPSHOT,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=leader_epoch,
        recorded_leader_epoch=state.recorded_leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=state.state_batches,
        annotations=state.annotations,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )


def _fenced(partition: int, leader_epoch: int, state: KeyState) -> Decision:
    return fault(partition, 74, f"leader epoch {leader_epoch} is below the recorded {state.recorded_leader_epoch}")
