"""Differences in the stored state of one share-partition: in its rows, to the services' answer, and to the log. Pure.

The replay here shares no code with the share coordinator: an error would have to be made twice to go unnoticed.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from sharequeue.protocol.messages.audit import AuditedState, StateRow
from sharequeue.protocol.types import DeliveryState, StateBatch

TERMINAL: Final = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)
PERSISTED: Final = (DeliveryState.AVAILABLE, DeliveryState.ARCHIVING, *TERMINAL)


class ReplayedState(NamedTuple):
    """The state after the rows. `state_batches`: (first, last, delivery state, delivery count), ascending."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[tuple[int, int, int, int], ...]


class Finding(NamedTuple):
    """One difference. `kind`: a short name for programs; `detail`: the difference in words."""

    kind: str
    where: str
    detail: str


def replay(rows: Iterable[StateRow], faults: list[str]) -> ReplayedState | None:
    """The state after all rows; None without a snapshot, or after a tombstone. Adds faults of rows to `faults`."""
    state: ReplayedState | None = None
    begun, snapshot_seq = False, -1  # an update that is older than the snapshot before it was written beside that
    for row in rows:
        where = f"row {row.seq}"
        if row.fault is not msgspec.UNSET:
            faults.append(f"{where} cannot be read: {row.fault}")
            continue
        if row.kind == "tombstone":
            state, begun = None, True
        elif row.kind == "snapshot":
            if state is not None:
                faults += _steps_back(where, state, row)
            batches = tuple(
                (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in row.state_batches
            )
            state = ReplayedState(
                row.snapshot_epoch,
                row.state_epoch,
                row.leader_epoch,
                row.start_offset,
                row.delivery_complete_count,
                tuple(sorted(batches)),
            )
            begun, snapshot_seq = True, row.seq
        elif row.kind == "update":
            if state is None:
                faults.append(f"{where} is an update {'of a deleted' if begun else 'without a'} snapshot")
                continue
            written_beside = row.seq < snapshot_seq and row.snapshot_epoch == state.snapshot_epoch - 1
            if row.snapshot_epoch != state.snapshot_epoch and not written_beside:
                faults.append(
                    f"{where} updates snapshot {row.snapshot_epoch}, but follows snapshot {state.snapshot_epoch}"
                )
            state = _updated(where, state, row, faults)
        else:
            faults.append(f"{where} has the unknown kind {row.kind}")
    return state


def _steps_back(where: str, state: ReplayedState, row: StateRow) -> Iterator[str]:
    if row.snapshot_epoch <= state.snapshot_epoch:
        yield f"{where} is snapshot {row.snapshot_epoch}, but follows snapshot {state.snapshot_epoch}"
    if row.state_epoch < state.state_epoch:
        yield f"{where} has the state epoch {row.state_epoch}, below the {state.state_epoch} before it"
    initialised = row.leader_epoch == 0 and not row.state_batches  # may set any start offset
    if row.state_epoch == state.state_epoch and row.start_offset < state.start_offset and not initialised:
        yield f"{where} moves the start offset back from {state.start_offset} to {row.start_offset}"


def _updated(where: str, state: ReplayedState, row: StateRow, faults: list[str]) -> ReplayedState:
    start_offset = state.start_offset if row.start_offset == -1 else row.start_offset
    if start_offset < state.start_offset:
        faults.append(f"{where} moves the start offset back from {state.start_offset} to {start_offset}")
    leader_epoch = state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch
    batches = laid_over(state.state_batches, row.state_batches, start_offset)
    return ReplayedState(
        state.snapshot_epoch,
        state.state_epoch,
        leader_epoch,
        start_offset,
        row.delivery_complete_count,
        batches,
    )


def laid_over(
    below: Sequence[tuple[int, int, int, int]], above: Sequence[StateBatch], start_offset: int
) -> tuple[tuple[int, int, int, int], ...]:
    """State batches over others, from `start_offset` on: the higher delivery count wins, then the higher state."""
    both = [*below, *((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in above)]
    edges = sorted({start_offset, *(batch[0] for batch in both), *(batch[1] + 1 for batch in both)})
    laid: list[tuple[int, int, int, int]] = []
    active: list[tuple[int, int, int, int]] = []
    waiting = sorted(both, reverse=True)
    for first, behind in itertools.pairwise(edges):
        while waiting and waiting[-1][0] <= first:
            active.append(waiting.pop())
        active = [batch for batch in active if batch[1] >= first]
        if first < start_offset or not active:
            continue
        count, state = max((batch[3], batch[2]) for batch in active)
        if laid and laid[-1][1] + 1 == first and laid[-1][2:] == (state, count):
            laid[-1] = (laid[-1][0], behind - 1, state, count)
        else:
            laid.append((first, behind - 1, state, count))
    return tuple(laid)


def findings(audited: AuditedState) -> list[Finding]:
    """All differences of one share-partition."""
    topic = audited.topic_id if audited.topic is msgspec.UNSET else audited.topic
    where = f"{audited.group_id}:{topic}:{audited.partition}"
    faults: list[str] = []
    state = replay(audited.rows, faults)
    found = [Finding("state rows", where, fault) for fault in faults]
    found += [Finding("state answer", where, fault) for fault in _against_answer(state, audited)]
    if state is not None:
        found += [Finding("state batches", where, fault) for fault in _batch_faults(state)]
        if audited.topic is msgspec.UNSET:
            found.append(Finding("orphaned state", where, "there is no such topic, or it has no such partition"))
        else:
            found += [Finding("state and log", where, fault) for fault in _against_log(state, audited)]
    return found


def _against_answer(state: ReplayedState | None, audited: AuditedState) -> Iterator[str]:
    answer = audited.answer
    if answer.error_code:
        if audited.topic is not msgspec.UNSET:
            yield f"the share coordinator answers error {answer.error_code}"
        return
    stored = (0, 0, -1, -1) if state is None else (state[1], state[2], state[3], state[4])
    answered = (answer.state_epoch, answer.leader_epoch, answer.start_offset, answer.delivery_complete_count)
    names = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    for name, is_stored, is_answered in zip(names, stored, answered, strict=True):
        if is_stored != is_answered:
            yield f"{name}: the rows come to {is_stored}, the share coordinator answers {is_answered}"


def _batch_faults(state: ReplayedState) -> Iterator[str]:
    if state.start_offset < 0:
        if state.state_batches:
            yield "there are state batches, but no start offset"
        return
    expected = state.start_offset
    terminal = 0
    for first, last, delivery_state, count in state.state_batches:
        named = f"the state batch {first}-{last}"
        if first > last:
            yield f"{named} ends before it begins"
        elif first < expected:
            behind = "the start offset" if expected == state.start_offset else "the batch before it ends at"
            yield f"{named} begins before {behind} {expected if expected == state.start_offset else expected - 1}"
        if delivery_state not in PERSISTED or count < 0:
            yield f"{named} has the delivery state {delivery_state} and the delivery count {count}"
        elif delivery_state in TERMINAL:
            terminal += max(0, last - max(first, expected) + 1)
        expected = max(expected, last + 1)
    if terminal > max(state.delivery_complete_count, 0):
        counted = state.delivery_complete_count
        yield f"{terminal} records of the state batches are finished, but delivery_complete_count is {counted}"


def _against_log(state: ReplayedState, audited: AuditedState) -> Iterator[str]:
    if state.start_offset < 0 or audited.log_end_offset is msgspec.UNSET:
        return
    end = audited.log_end_offset
    if state.start_offset > end:
        yield f"the start offset {state.start_offset} lies behind the log end {end}"
    elif state.delivery_complete_count > end - state.start_offset:
        yield (
            f"delivery_complete_count is {state.delivery_complete_count}, but there are only "
            f"{end - state.start_offset} offsets from the start offset {state.start_offset} to the log end {end}"
        )
    behind = [batch for batch in state.state_batches if batch[1] >= end]
    if behind:
        yield f"the state batch {behind[0][0]}-{behind[0][1]} reaches behind the log end {end}"


def last_row(audited: AuditedState) -> int:
    """The number of the newest row: while it stays the same, nothing was written."""
    return audited.rows[-1].seq if audited.rows else -1
