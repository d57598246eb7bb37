"""Any sequence of state calls: memory, the state rebuilt from the rows, and a model without rows agree."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from msgspec import structs
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.batch_list import updated
from sharequeue_share_coordinator.share_state.rows import UPDATE, KeyState, Row, replay

from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import Reason
from tests.core.states import StateAnnotation, Stored, plain, written
from tests.examples import examples

epochs = st.integers(0, 4)
starts = st.integers(-1, 30)


@st.composite
def batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    last = first + draw(st.integers(0, 6))
    return StateBatch(first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(1, 4)))


@st.composite
def call(draw: st.DrawFn) -> tuple[str, PartitionState]:
    kind = draw(st.sampled_from(("initialize", "read", "write", "write", "write", "delete", "cold")))
    batches = draw(st.lists(batch(), max_size=3))
    notes = [StateAnnotation(b.first_offset, b.first_offset, b.delivery_count, reason=Reason("r")) for b in batches[:1]]
    return kind, PartitionState(
        partition=0,
        state_epoch=draw(epochs),
        leader_epoch=draw(epochs),
        start_offset=draw(starts),
        delivery_complete_count=draw(st.integers(-1, 9)),
        state=written(batches, notes),
    )


calls = st.lists(call(), max_size=25)
limits = st.sampled_from((0, 1, 2, 500))


def decide(kind: str, state: KeyState | None, request: PartitionState, limit: int, now_ms: int) -> shard.Decision:
    if kind == "initialize":
        return shard.initialize(state, request, None, now_ms)
    if kind == "read":
        return shard.read(state, request, None, limit, now_ms)
    if kind == "write":
        return shard.write(state, request, None, limit, now_ms)
    if kind == "delete":
        return shard.delete(state, request, None)
    return shard.Decision(shard.done(0), None if state is None else shard.cold_snapshot(state, 1000, now_ms))


class Model:
    """The state according to the descriptions of the calls, without rows."""

    def __init__(self) -> None:
        self.exists = False
        self.leader = -1

    def call(self, kind: str, request: PartitionState) -> int:
        state_epoch, leader_epoch = request.state_epoch or 0, request.leader_epoch or 0
        if kind == "cold":
            return 0
        if kind == "delete":
            self.exists, self.leader = False, -1
            return 0
        if kind == "initialize":
            if self.exists and state_epoch < self.epoch:
                return 124
            if not self.exists or state_epoch > self.epoch or request.start_offset > self.start:
                self.batches: list[StateBatch] = []
                self.count = -1 if request.start_offset == -1 else 0
                self.exists, self.epoch, self.start = True, state_epoch, request.start_offset
            return 0
        if not self.exists:
            return 42
        if leader_epoch < self.leader:
            return 74
        if kind == "read":
            self.leader = leader_epoch
            return 0
        if state_epoch < self.epoch:
            return 124
        self.epoch, self.leader = state_epoch, leader_epoch
        if request.start_offset > self.start:
            self.count = request.delivery_complete_count
        elif request.start_offset == self.start:
            self.count = max(self.count, request.delivery_complete_count)
        self.start = max(self.start, request.start_offset)
        self.batches = updated(self.batches, plain(request.state), self.start)
        return 0


def rebuilt(rows: list[Row], limit: int) -> KeyState | None:
    state = None
    for row in rows:
        state = replay(state, row, limit)
    return state


def comparable(state: KeyState | None) -> Any:
    """All fields except the counter of updates, which cannot be rebuilt from pruned rows."""
    return None if state is None else structs.replace(state, updates=0)


@settings(max_examples=examples(200))
@given(calls, limits)
def test_rows_rebuild_the_state(sequence: list[tuple[str, PartitionState]], limit: int) -> None:
    state: KeyState | None = None
    rows: list[Row] = []
    pruned: list[Row] = []
    now_ms = 0
    for kind, request in sequence:
        now_ms += 600
        decision = decide(kind, state, request, limit, now_ms)
        if decision.row is not None:
            rows.append(decision.row)
            pruned = [decision.row] if decision.row.kind != UPDATE else [*pruned, decision.row]
            state = replay(state, decision.row, limit)
        assert rebuilt(rows, limit) == state
        assert comparable(rebuilt(pruned, limit)) == comparable(state), "rows before a snapshot are not needed"


@settings(max_examples=examples(200))
@given(calls, limits)
def test_calls_answer_as_the_model_does(sequence: list[tuple[str, PartitionState]], limit: int) -> None:
    state: KeyState | None = None
    model = Model()
    now_ms = 0
    for kind, request in sequence:
        now_ms += 600
        result, row = decide(kind, state, request, limit, now_ms)
        if row is not None:
            state = replay(state, row, limit)
        assert result.error_code == model.call(kind, request)
        assert (state is not None) == model.exists
        if state is None:
            continue
        assert (
            state.state_epoch,
            state.start_offset,
            state.delivery_complete_count,
            Stored(state.batches).state_batches(),
        ) == (
            model.epoch,
            model.start,
            model.count,
            model.batches,
        )
        assert state.recorded_leader_epoch == max(model.leader, 0)
