"""Decides each state request of one share-partition: the answer, and the row to store before it goes out. Pure.

Source: Kafka ShareCoordinatorShard.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from sharequeue.protocol.errors import KAFKA_CODES, FencedLeaderEpoch, FencedStateEpoch
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.state import StateBatch, texts_in, unnamed_text
from sharequeue.protocol.types import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
)
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_share_coordinator.share_state.batch_list import from_offset
from sharequeue_share_coordinator.share_state.notes import FINISHED, taken, without_unused_texts
from sharequeue_share_coordinator.share_state.rows import (
    SNAPSHOT,
    TOMBSTONE,
    UPDATE,
    KeyState,
    Row,
    carried,
    replay,
    snapshot_due,
)

READ_PAGE_BYTES: Final = 1 << 17
"""The state in one answer, as JSON, roughly."""
BATCH_BYTES: Final = 24
"""Of a batch as JSON, roughly; then what a note adds, and each reason in it."""
NOTE_BYTES: Final = 24
GIVEN_BYTES: Final = 18


class Decision(NamedTuple):
    """`result`: the answer, to be sent once `row`, if there is one, is durable."""

    result: PartitionStateResult
    row: Row | None = None


Decide = Callable[[KeyState | None], Decision]
"""Decides one request, given the state of its share-partition."""


def fault(partition: int, error: type[ApiError] | ApiError, message: str) -> Decision:
    """A refusal. Nothing is stored."""
    result = PartitionStateResult(partition=partition, error_code=KAFKA_CODES[error.error], error_message=message)
    return Decision(result)


def done(partition: int) -> PartitionStateResult:
    return PartitionStateResult(partition=partition, error_code=0, error_message=None)


def of_damaged(state: KeyState, decision: Decision) -> Decision:
    """Replace a decision about rows that cannot be read. A deletion stands; every other request is refused."""
    if decision.row is not None and decision.row.kind == TOMBSTONE:
        return decision
    return fault(decision.result.partition, ApiError, state.damage)


def form_fault(request: PartitionState, *, leader_epoch: bool, state_epoch: bool) -> Decision | None:
    """Check the form of a request, in Kafka's order. The flags say which epochs the request must have."""
    if request.partition < 0:
        return fault(request.partition, InvalidRequest, "partition must not be negative")
    if leader_epoch and (request.leader_epoch is None or request.leader_epoch < 0):
        return fault(request.partition, InvalidRequest, "leader_epoch must be present and must not be negative")
    if state_epoch and (request.state_epoch is None or request.state_epoch < 0):
        return fault(request.partition, InvalidRequest, "state_epoch must be present and must not be negative")
    for batch in request.state.batches:
        if batch.last_offset < batch.first_offset:
            wrong = f"the state batch {batch.first_offset} to {batch.last_offset} ends before it begins"
            return fault(request.partition, InvalidRequest, wrong)
        place = None if batch.note is None else unnamed_text([batch], len(request.state.texts))
        if place is not None:
            wrong = f"a batch names the text {place} of {len(request.state.texts)}"
            return fault(request.partition, InvalidRequest, wrong)
    return None


def initialize(state: KeyState | None, request: PartitionState, topic: Decision | None, now_ms: int) -> Decision:
    """Replace the state by one at a start offset, under a state epoch.

    A request under the recorded state epoch whose start offset is not above the present one is a repeat: it changes
    nothing, also if records were delivered and acknowledged since.
    Args:
        topic: the refusal if the topic does not have this partition; None if it does. So in the functions below.
    """
    state_epoch = request.state_epoch or 0
    if state is not None and state_epoch < state.state_epoch:
        return _old_state(request.partition, state_epoch, state)
    if topic is not None:
        return topic
    if state is not None and state_epoch == state.state_epoch and request.start_offset <= state.start_offset:
        return Decision(done(request.partition))
    has_offset = request.start_offset != UNINITIALIZED_START_OFFSET
    before = state or KeyState()
    begun = KeyState(
        snapshot_epoch=before.snapshot_epoch,
        recorded_leader_epoch=before.recorded_leader_epoch,
        removed_unread=before.removed_unread,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=request.start_offset,
        delivery_complete_count=0 if has_offset else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    )
    return Decision(done(request.partition), _snapshot(begun, now_ms))


def read(
    state: KeyState | None,
    request: PartitionState,
    topic: Decision | None,
    updates_per_snapshot: int,
    now_ms: int,
    page_bytes: int = READ_PAGE_BYTES,
    store: str = "",
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
    version = version_of(state.snapshot_epoch, state.updates)
    if leader_epoch > state.recorded_leader_epoch:
        row = Row(
            kind=UPDATE,
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            delivery_complete_count=state.delivery_complete_count,
        )
        version += 1
        if snapshot_due(state, updates_per_snapshot):
            row = _snapshot_after(state, row, now_ms)
            batches, table = without_unused_texts(row.batches, row.texts)  # as later pages have them
            row = structs.replace(row, batches=batches, texts=table)
            version = version_of(row.snapshot_epoch, 0)
    held = state if row is None or row.kind == UPDATE else row
    page, texts, next_offset = page_of(held.batches, held.texts, request.from_offset, page_bytes)
    result = PartitionStateResult(
        partition=request.partition,
        error_code=0,
        error_message=None,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        removed_unread=state.removed_unread,
        next_offset=next_offset,
        version=version,
        store=store,
        batches=page,
        texts=texts,
    )
    return Decision(result, row)


def write(
    state: KeyState | None,
    request: PartitionState,
    topic: Decision | None,
    updates_per_snapshot: int,
    now_ms: int,
    store: str = "",
) -> Decision:
    """Write what changed. The start offset never moves back; the count belongs to the start offset that stays.

    Higher epochs than the recorded ones are recorded with it, so that lower ones are fenced from then on.

    Args:
        store: the present start of PostgreSQL. A write that builds on a version of an earlier start is refused, unless
            the state still has that version: PostgreSQL may have come back older.
    """
    leader_epoch, state_epoch = request.leader_epoch or 0, request.state_epoch or 0
    if state is None:
        return fault(request.partition, InvalidRequest, "the share-partition cannot be written: it is not initialised")
    if leader_epoch < state.recorded_leader_epoch:
        return _fenced(request.partition, leader_epoch, state)
    if state_epoch < state.state_epoch:
        return _old_state(request.partition, state_epoch, state)
    if request.store not in ("", store) and not _has_version(state, request.version):
        message = f"PostgreSQL was started again, and the state has no version {request.version} any more"
        return fault(request.partition, FencedStateEpoch, message)
    if topic is not None:
        return topic
    batches, texts = taken(request.state.batches, request.state.texts, state.texts)
    row = Row(
        kind=UPDATE,
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch if leader_epoch > state.recorded_leader_epoch else -1,
        start_offset=max(request.start_offset, state.start_offset),
        delivery_complete_count=_delivery_complete_count(state, request),
        removed_unread=max(request.removed_unread, state.removed_unread),
        batches=batches,
        texts=texts,
    )
    result = done(request.partition)
    result.store = store
    if not snapshot_due(state, updates_per_snapshot) and state_epoch == state.state_epoch:
        result.version = version_of(state.snapshot_epoch, state.updates + 1)
        return Decision(result, row)
    snapshot = _snapshot_after(state, row, now_ms)
    result.version = version_of(snapshot.snapshot_epoch, 0)
    return Decision(result, structs.replace(snapshot, state_epoch=state_epoch))


def page_of(
    state: Sequence[StateBatch], table: Sequence[str], offset: int, size: int
) -> tuple[list[StateBatch], dict[int, str], int | None]:
    """The batches that end at or behind an offset, up to a size in bytes, but at least one.

    Returns: these, the texts that they name, and where the next page begins; None: this is the last one.
    """
    page: list[StateBatch] = []
    texts: dict[int, str] = {}
    for batch in from_offset(state, offset):
        if size <= 0:
            return page, texts, batch.first_offset
        page.append(batch)
        size -= BATCH_BYTES
        if batch.note is not None:
            places = texts_in(batch.note)
            size -= NOTE_BYTES + GIVEN_BYTES * len(places) + len(batch.note.transaction_id or "")
            for place in places:
                if place not in texts:
                    texts[place] = table[place]
                    size -= len(table[place])
    return page, texts, None


def version_of(snapshot_epoch: int, updates: int) -> int:
    return (snapshot_epoch << 31) + updates


def _has_version(state: KeyState, version: int) -> bool:
    """Return whether a state still has what a leader stored. A later snapshot of it hides that: then it has not."""
    return version_of(state.snapshot_epoch, 0) <= version <= version_of(state.snapshot_epoch, state.updates)


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
    for batch in from_offset(state.batches, offset):
        if batch.first_offset > offset or batch.delivery_state not in FINISHED:
            break
        offset = batch.last_offset + 1
    return offset


def _finished_from(state: KeyState, start_offset: int) -> int:
    return sum(
        batch.last_offset - max(batch.first_offset, start_offset) + 1
        for batch in from_offset(state.batches, start_offset)
        if batch.delivery_state in FINISHED
    )


def cold_snapshot(state: KeyState, interval_ms: int, now_ms: int) -> Row | None:
    """A snapshot of a state, so that the rows before it can be pruned.

    Returns: None: no rows lie behind a last snapshot that is older than the interval.
    """
    if not state.rows or now_ms - state.write_timestamp_ms < interval_ms:
        return None
    return structs.replace(_snapshot(state, now_ms), create_timestamp_ms=state.create_timestamp_ms)


def _snapshot(state: KeyState, now_ms: int) -> Row:
    """The next snapshot, of a whole state."""
    new = {"snapshot_epoch": state.snapshot_epoch + 1, "create_timestamp_ms": now_ms, "write_timestamp_ms": now_ms}
    return Row(kind=SNAPSHOT, **carried(state) | new)


def _snapshot_after(state: KeyState, update: Row, now_ms: int) -> Row:
    """The snapshot in place of an update."""
    after = replay(state, update, 0)
    assert after is not None, "an update deletes nothing"
    return _snapshot(after, now_ms)


def _fenced(partition: int, leader_epoch: int, state: KeyState) -> Decision:
    message = f"leader epoch {leader_epoch} is below the recorded {state.recorded_leader_epoch}"
    decision = fault(partition, FencedLeaderEpoch, message)
    decision.result.leader_epoch = state.recorded_leader_epoch
    return decision


def _old_state(partition: int, state_epoch: int, state: KeyState) -> Decision:
    message = f"state epoch {state_epoch} is below the recorded {state.state_epoch}"
    return fault(partition, FencedStateEpoch, message)
