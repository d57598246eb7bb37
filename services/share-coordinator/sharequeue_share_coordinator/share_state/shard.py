"""Decides each state request of one share-partition: the answer, and the row to store before it goes out. Pure.

Source: Kafka ShareCoordinatorShard.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
)
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
)
from sharequeue_share_coordinator.share_state.batch_list import BatchList
from sharequeue_share_coordinator.share_state.changes import changes_between
from sharequeue_share_coordinator.share_state.columns import page_from
from sharequeue_share_coordinator.share_state.notes import FINISHED, bounded
from sharequeue_share_coordinator.share_state.row_format import encode_changes
from sharequeue_share_coordinator.share_state.rows import (
    LARGE_SNAPSHOT,
    SNAPSHOT,
    TOMBSTONE,
    UPDATE,
    Base,
    Covered,
    KeyState,
    Row,
    base_serves,
    snapshot_due,
)
from sharequeue_share_coordinator.share_state.state_batches import combine_state_batches

READ_PAGE_BYTES: Final = 1 << 17
"""The state in one answer to a caller that takes pages, as JSON, roughly."""


class Decision(NamedTuple):
    """`result`: the answer, to be sent once `row`, if there is one, is durable."""

    result: PartitionStateResult
    row: Row | None = None


Decide = Callable[[KeyState | None], Decision]
"""Decides one request, given the state of its share-partition."""


def fault(partition: int, error: type[ApiError] | ApiError, message: str) -> Decision:
    """A refusal. Nothing is stored."""
    result = PartitionStateResult(partition=partition, error_code=error.error.kafka_code, error_message=message)
    return Decision(result)


def done(partition: int) -> PartitionStateResult:
    return PartitionStateResult(partition=partition, error_code=0, error_message=None)


def not_served(partition: int, cause: ApiError | None) -> PartitionStateResult:
    """The result of a share-partition that is not served.

    Args:
        cause: why its shard is not served. None: the shard was lost and taken back while the state was being loaded.
    """
    if cause is not None:
        return fault(partition, cause, cause.detail).result
    return fault(partition, CoordinatorLoadInProgress, "the share-partition is being handed over").result


def of_damaged(state: KeyState, decision: Decision) -> Decision:
    """Replace a decision about rows that cannot be read. A deletion stands; every other request is refused."""
    if decision.row is not None and decision.row.kind == TOMBSTONE:
        return decision
    return fault(decision.result.partition, ApiError, state.damage)


def tombstone(state: KeyState | None) -> Decision:
    """Delete the state because its topic is deleted."""
    return Decision(done(0), None if state is None else Row(kind=TOMBSTONE))


def form_fault(
    topic_id: str | None, request: PartitionState, *, leader_epoch: bool, state_epoch: bool
) -> Decision | None:
    """Check the form of a request, in Kafka's order. The flags say which epochs the request must have."""
    if topic_id is None:
        return fault(request.partition, InvalidRequest, "topic_id must not be null")
    if request.partition < 0:
        return fault(request.partition, InvalidRequest, "partition must not be negative")
    if leader_epoch and (request.leader_epoch is None or request.leader_epoch < 0):
        return fault(request.partition, InvalidRequest, "leader_epoch must be present and must not be negative")
    if state_epoch and (request.state_epoch is None or request.state_epoch < 0):
        return fault(request.partition, InvalidRequest, "state_epoch must be present and must not be negative")
    for batch in request.state_batches:
        if batch.last_offset < batch.first_offset:
            wrong = f"the state batch {batch.first_offset} to {batch.last_offset} ends before it begins"
            return fault(request.partition, InvalidRequest, wrong)
    return None


def initialize(state: KeyState | None, request: PartitionState, topic: Decision | None, now_ms: int) -> Decision:
    """Replace the state by one at a start offset, under a state epoch.

    Args:
        topic: the refusal if the topic does not have this partition; None if it does. So in the functions below.
    """
    state_epoch = request.state_epoch or 0
    if state is not None and state_epoch < state.state_epoch:
        return _old_state(request.partition, state_epoch, state)
    if topic is not None:
        return topic
    if state is not None and (state.state_epoch, state.start_offset) == (state_epoch, request.start_offset):
        return Decision(done(request.partition))
    has_offset = request.start_offset != UNINITIALIZED_START_OFFSET
    row = Row(
        kind=SNAPSHOT,
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        recorded_leader_epoch=-1 if state is None else state.recorded_leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=0 if has_offset else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return Decision(done(request.partition), row)


def read(
    state: KeyState | None,
    request: PartitionState,
    topic: Decision | None,
    updates_per_snapshot: int,
    now_ms: int,
    page_bytes: int = READ_PAGE_BYTES,
) -> Decision:
    """Read a page of about `page_bytes` of the state.

    A leader epoch above the recorded one is recorded first; from then on lower ones are fenced.
    """
    leader_epoch = request.leader_epoch or 0
    if state is None:
        return fault(request.partition, InvalidRequest, "the share-partition cannot be read: it is not initialised")
    if leader_epoch < state.recorded_leader_epoch:
        return _fenced(request.partition, leader_epoch, state)
    if topic is not None:
        return topic
    row: Row | None = None
    version = (state.snapshot_epoch, state.updates)
    if leader_epoch > state.recorded_leader_epoch:
        if snapshot_due(state, updates_per_snapshot) and not state.large:
            row = _snapshot(state, now_ms, leader_epoch=leader_epoch)
            version = (state.snapshot_epoch + 1, 0)
        else:
            row = Row(
                kind=UPDATE,
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                delivery_complete_count=state.delivery_complete_count,
            )
            version = (state.snapshot_epoch, state.updates + 1)
    page, next_offset = page_from(state.batches, request.from_offset, page_bytes)
    result = PartitionStateResult(
        partition=request.partition,
        error_code=0,
        error_message=None,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        next_offset=next_offset,
        version=(version[0] << 31) + version[1],
        page=page,
    )
    return Decision(result, row)


def write(
    state: KeyState | None,
    request: PartitionState,
    topic: Decision | None,
    updates_per_snapshot: int,
    now_ms: int,
) -> Decision:
    """Write what changed. The start offset never moves back; the count belongs to the start offset that stays.

    Higher epochs than the recorded ones are recorded with it, so that lower ones are fenced from then on.
    """
    leader_epoch, state_epoch = request.leader_epoch or 0, request.state_epoch or 0
    if state is None:
        return fault(request.partition, InvalidRequest, "the share-partition cannot be written: it is not initialised")
    if leader_epoch < state.recorded_leader_epoch:
        return _fenced(request.partition, leader_epoch, state)
    if state_epoch < state.state_epoch:
        return _old_state(request.partition, state_epoch, state)
    if topic is not None:
        return topic
    start_offset = max(request.start_offset, state.start_offset)
    count = _delivery_complete_count(state, request)
    annotations = bounded(request.annotations, state.reasons)
    result = done(request.partition)
    raised = leader_epoch if leader_epoch > state.recorded_leader_epoch else -1
    update = not snapshot_due(state, updates_per_snapshot) or state.large
    if update and state_epoch == state.state_epoch:
        state_batches = combine_state_batches([], request.state_batches, start_offset)
        row = Row(
            kind=UPDATE,
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=raised,
            start_offset=start_offset,
            delivery_complete_count=count,
            state_batches=state_batches,
            annotations=annotations,
        )
        return Decision(result, row)
    batches = state.batches.updated(request.state_batches, annotations, start_offset)
    row = Row(
        kind=SNAPSHOT,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=max(state.leader_epoch, raised),
        recorded_leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=count,
        state_batches=batches.state_batches(),
        annotations=batches.annotations(),
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return Decision(result, row)


def _delivery_complete_count(state: KeyState, request: PartitionState) -> int:
    if request.start_offset > state.start_offset:
        return request.delivery_complete_count
    if request.start_offset == state.start_offset:
        return max(request.delivery_complete_count, state.delivery_complete_count)
    return state.delivery_complete_count


def delete(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
    """Delete the state, its epochs included. Deleting a share-partition without state succeeds and stores nothing."""
    if topic is not None:
        return topic
    return Decision(done(request.partition), None if state is None else Row(kind=TOMBSTONE))


def read_summary(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
    """Read the epochs, start offset and count, and up to where every record is finished.

    Without state the epochs are 0, the offsets and the count −1. If the request has a start offset above the stored
    one, the answer is for the records from there on: the log has lost those below it.
    """
    if topic is not None:
        return topic
    start, count = UNINITIALIZED_START_OFFSET, UNINITIALIZED_DELIVERY_COMPLETE_COUNT
    unfinished = UNINITIALIZED_START_OFFSET
    if state is not None:
        start, count = state.start_offset, state.delivery_complete_count
        if 0 <= start < request.start_offset:
            start, count = request.start_offset, _finished_from(state, request.start_offset)
        unfinished = _unfinished_offset(state, start)
    return Decision(
        PartitionStateResult(
            partition=request.partition,
            error_code=0,
            error_message=None,
            state_epoch=0 if state is None else state.state_epoch,
            leader_epoch=0 if state is None else state.leader_epoch,
            start_offset=start,
            delivery_complete_count=count,
            unfinished_offset=unfinished,
        )
    )


def _unfinished_offset(state: KeyState, start_offset: int) -> int:
    offset = start_offset
    for batch in state.batches.from_offset(offset):
        if batch.first_offset > offset or batch.delivery_state not in FINISHED:
            break
        offset = batch.last_offset + 1
    return offset


def _finished_from(state: KeyState, start_offset: int) -> int:
    return sum(
        batch.last_offset - max(batch.first_offset, start_offset) + 1
        for batch in state.batches.from_offset(start_offset)
        if batch.delivery_state in FINISHED
    )


def is_cold(state: KeyState, interval_ms: int, now_ms: int) -> bool:
    """Whether rows lie behind a last snapshot that is older than the interval."""
    return bool(state.rows) and now_ms - state.write_timestamp_ms >= interval_ms


def large_snapshot(
    begun: KeyState,
    covers: int,
    snapshot_id: int,
    parts: Sequence[bytes],
    reasons: Sequence[str],
    transactions: Sequence[str],
) -> Row:
    """The row that makes the parts of a large snapshot count. Its times are set when it is decided.

    Args:
        begun: the state that the parts hold. covers: the sequence number of its last row.
    """
    base = Base(begun.batches, snapshot_id, len(parts), sum(map(len, parts)), tuple(reasons), tuple(transactions))
    row = _large_snapshot(begun, covers, base, reasons)
    return structs.replace(row, reasons=reasons, transactions=transactions)


def changed_snapshot(begun: KeyState, covers: int) -> Row | None:
    """The row of a large snapshot that has the parts of an earlier one, and says what has changed since.

    Returns: None: the snapshot is to be stored whole.
    """
    base = begun.base
    if base is None:
        return None
    changed = changes_between(base.batches.from_start(begun.start_offset), begun.batches)
    base = structs.replace(base, written=base.written + begun.update_bytes)
    changes, reasons = encode_changes(changed, base)
    if not base_serves(base, len(changes), begun.reasons):
        return None
    return structs.replace(_large_snapshot(begun, covers, base, reasons), changes=changes)


def _large_snapshot(begun: KeyState, covers: int, base: Base, reasons: Sequence[str]) -> Row:
    return structs.replace(
        _snapshot(structs.replace(begun, batches=BatchList()), 0, leader_epoch=begun.leader_epoch),
        kind=LARGE_SNAPSHOT,
        covers=covers,
        snapshot_id=base.snapshot_id,
        parts=base.parts,
        size=base.size,
        covered=Covered(base, begun.updates, begun.update_bytes, begun.rows, begun.reasons.difference(reasons)),
    )


def publish(state: KeyState | None, begun: KeyState, row: Row, now_ms: int) -> Decision:
    """Have a large snapshot count, unless the state was replaced since it was begun."""
    same = state is not None and (
        (state.snapshot_epoch, state.state_epoch, state.create_timestamp_ms, state.damage)
        == (begun.snapshot_epoch, begun.state_epoch, begun.create_timestamp_ms, "")
        and state.updates >= begun.updates
    )
    row = structs.replace(row, create_timestamp_ms=now_ms, write_timestamp_ms=now_ms)
    return Decision(done(0), row if same else None)


def cold_snapshot(state: KeyState, interval_ms: int, now_ms: int) -> Row | None:
    """A snapshot of a state, so that the rows before it can be pruned. None: it is not cold."""
    if not is_cold(state, interval_ms, now_ms):
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
        state_batches=state.batches.state_batches(),
        annotations=state.batches.annotations(),
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )


def _fenced(partition: int, leader_epoch: int, state: KeyState) -> Decision:
    message = f"leader epoch {leader_epoch} is below the recorded {state.recorded_leader_epoch}"
    return fault(partition, FencedLeaderEpoch, message)


def _old_state(partition: int, state_epoch: int, state: KeyState) -> Decision:
    message = f"state epoch {state_epoch} is below the recorded {state.state_epoch}"
    return fault(partition, FencedStateEpoch, message)
