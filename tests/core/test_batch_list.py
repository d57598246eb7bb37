"""The list of noted batches: as the reference combines, at a cost that follows the update alone."""

import itertools
import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sharequeue_share_coordinator.share_state import batch_list as module
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch, batch_list, in_blocks
from sharequeue_share_coordinator.share_state.notes import Note
from sharequeue_share_coordinator.share_state.notes import given as given_reason
from sharequeue_share_coordinator.share_state.state_batches import combine_state_batches

from sharequeue.protocol.state_columns import outcome_of
from sharequeue.protocol.types import GivenReason, Reason, StateAnnotation, StateBatch
from tests.core.combining_reference import combine_annotations
from tests.examples import examples


@st.composite
def state_batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 60))
    last = first + draw(st.integers(0, 12))
    return StateBatch(first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(0, 4)))


@st.composite
def annotation(draw: st.DrawFn, forgiven: bool = False) -> StateAnnotation:
    first = draw(st.integers(0, 60))
    return StateAnnotation(
        first,
        first + draw(st.integers(0, 12)),
        draw(st.integers(0, 4)),
        draw(st.sampled_from((None, 700, 800))),
        draw(st.sampled_from((*map(Reason, "abc"), None))),
        draw(st.integers(0, 3)) if forgiven else 0,
    )


@st.composite
def disjoint(draw: st.DrawFn, forgiven: bool = False) -> list[StateAnnotation]:
    """As a write has them: no two on one offset."""
    kept: list[StateAnnotation] = []
    for candidate in draw(st.lists(annotation(forgiven), max_size=6)):
        if all(candidate.last_offset < k.first_offset or candidate.first_offset > k.last_offset for k in kept):
            kept.append(candidate)
    return kept


state_batches = st.lists(state_batch(), max_size=8)
Update = tuple[list[StateBatch], list[StateAnnotation], int]
updates = st.lists(st.tuples(state_batches, disjoint(), st.integers(-1, 75)), max_size=12)
notable_updates = st.lists(st.tuples(state_batches, disjoint(True), st.integers(-1, 40)), max_size=12)


def said(of: Sequence[StateAnnotation]) -> dict[int, tuple[int, int | None, Reason | None]]:
    found = {}
    for note in of:
        for offset in range(note.first_offset, note.last_offset + 1):
            assert offset not in found, "two annotations of one offset"
            found[offset] = (note.delivery_count, note.available_at_ms, note.reason)
    return {offset: note for offset, note in found.items() if note[1:] != (None, None)}


def check_form(of: BatchList) -> None:
    """Blocks neither empty nor too long, batches ascending and disjoint, no two equal neighbours."""
    assert all(0 < len(block) <= module.BLOCK for block in of.blocks)
    batches = list(of)
    assert all(batch.first_offset <= batch.last_offset for batch in batches)
    for left, right in itertools.pairwise(batches):
        assert left.last_offset < right.first_offset
        if left.last_offset + 1 == right.first_offset:
            assert (left.delivery_state, left.delivery_count, left.note) != (
                right.delivery_state,
                right.delivery_count,
                right.note,
            )


@pytest.fixture(params=[1, 3, 512])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The length of a block: at short ones every update crosses blocks."""
    length: int = request.param
    monkeypatch.setattr(module, "BLOCK", length)
    return length


@pytest.mark.usefixtures("block")
def test_updates_are_as_the_reference_combines() -> None:
    @settings(max_examples=examples(100))
    @given(updates)
    def check(sequence: list[Update]) -> None:
        found = BatchList()
        batches: list[StateBatch] = []
        annotations: list[StateAnnotation] = []
        for new, notes, start in sequence:
            before, shown = found, list(found)
            batches = combine_state_batches(batches, new, start)
            annotations = combine_annotations(annotations, notes, batches, start)
            found = found.updated(new, notes, start)
            check_form(found)
            assert found.state_batches() == batches
            assert said(found.annotations()) == said(annotations)
            assert list(before) == shown, "a list never changes"

    check()


@pytest.mark.usefixtures("block")
def test_forgiven_deliveries_outlive_the_delivery_count_and_only_grow() -> None:
    @settings(max_examples=examples(100))
    @given(notable_updates)
    def check(sequence: list[Update]) -> None:
        found = BatchList()
        expected: dict[int, int] = {}
        for new, notes, start in sequence:
            found = found.updated(new, notes, start)
            check_form(found)
            states = {
                offset: batch.delivery_state
                for batch in found
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            for note in notes:
                for offset in range(note.first_offset, note.last_offset + 1):
                    expected[offset] = max(expected.get(offset, 0), note.forgiven)
            expected = {offset: n for offset, n in expected.items() if n and states.get(offset) in (0, 3)}
            kept = {
                offset: batch.note.forgiven
                for batch in found
                if batch.note and batch.note.forgiven
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            assert kept == expected

    check()


def test_a_higher_count_or_the_start_offset_drops_a_delay_and_a_reason() -> None:
    note = StateAnnotation(10, 19, 1, available_at_ms=900, reason=Reason("slow"), forgiven=2)
    state = batch_list([StateBatch(10, 19, 0, 1)], [note]).updated([StateBatch(14, 15, 0, 2)], [], 12)
    assert state.annotations() == [
        StateAnnotation(12, 13, 1, 900, Reason("slow"), 2),
        StateAnnotation(14, 15, 2, forgiven=2, earlier_reasons=(GivenReason(Reason("slow")),)),
        StateAnnotation(16, 19, 1, 900, Reason("slow"), 2),
    ]


def test_the_reasons_of_the_last_five_deliveries_that_had_one_are_kept_until_the_record_is_finished() -> None:
    state = BatchList()
    for count in range(1, 9):
        note = StateAnnotation(0, 9, count, reason=Reason(f"no {count}"), reason_at_ms=1000 * count)
        state = state.updated([StateBatch(0, 9, 0, count)], [] if count == 6 else [note, note], 0)
    earlier = tuple(GivenReason(Reason(f"no {count}"), 1000 * count) for count in (2, 3, 4, 5, 7))
    assert state.annotations() == [StateAnnotation(0, 9, 8, None, Reason("no 8"), 0, 8000, earlier)]
    assert batch_list(state.state_batches(), state.annotations()) == state
    assert state.reasons() == {"no 2", "no 3", "no 4", "no 5", "no 7", "no 8"}
    state = state.updated([StateBatch(2, 9, 3, 9)], [], 0).updated([StateBatch(5, 9, 4, 9)], [], 0)
    later = (*earlier[1:], GivenReason(Reason("no 8"), 8000))
    assert state.annotations() == [
        StateAnnotation(0, 1, 8, None, Reason("no 8"), 0, 8000, earlier),
        StateAnnotation(2, 4, 9, earlier_reasons=later),
    ]


def test_a_pending_delivery_is_pending_until_it_is_settled_or_let_go() -> None:
    """It replaces neither the reason of the delivery before it nor what is forgiven."""
    before = [StateAnnotation(10, 19, 1, reason=Reason("slow"), forgiven=1)]
    state = batch_list([StateBatch(10, 19, 0, 1)], before)
    state = state.updated([StateBatch(10, 19, 0, 1)], [StateAnnotation(10, 19, 1, transaction_id="t-1")], -1)
    pending = StateAnnotation(10, 19, 1, reason=Reason("slow"), forgiven=1, transaction_id="t-1")
    assert state.annotations() == [pending]
    settled = state.updated([StateBatch(10, 12, 2, 2), StateBatch(13, 13, 0, 2)], [], -1)
    slow = (GivenReason(Reason("slow")),)
    assert settled.annotations() == [
        StateAnnotation(13, 13, 2, forgiven=1, earlier_reasons=slow),
        structs.replace(pending, first_offset=14),
    ]
    assert settled.updated([], [StateAnnotation(14, 19, 1)], -1).annotations() == [
        StateAnnotation(13, 13, 2, forgiven=1, earlier_reasons=slow),
        structs.replace(pending, first_offset=14, transaction_id=None),
    ]


def test_the_last_of_several_annotations_of_one_offset_counts() -> None:
    notes = [StateAnnotation(0, 9, 1, reason=Reason(reason), forgiven=n) for reason, n in (("a", 3), ("b", 1))]
    assert batch_list([StateBatch(0, 9, 0, 1)], notes).annotations() == [StateAnnotation(0, 9, 1, None, Reason("b"), 3)]


def test_a_batch_that_ends_before_it_begins_covers_nothing() -> None:
    assert batch_list([StateBatch(5, 1, 0, 1)]).state_batches() == []
    assert batch_list([StateBatch(0, 9, 0, 1)]).updated([StateBatch(5, 1, 2, 1)], [], -1).state_batches() == [
        StateBatch(0, 9, 0, 1)
    ]


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)])
def test_equal_batches_that_touch_are_one_in_any_order(order: tuple[int, ...]) -> None:
    found = batch_list([StateBatch(100 * n, 100 * n + 9, 2, 1) for n in range(1, 9)])
    for place in order:
        found = found.updated([StateBatch(510 + 5 * place, 514 + 5 * place, 2, 1)], [], -1)
    assert StateBatch(500, 524, 2, 1) in found.state_batches()
    assert [(batch.first_offset, batch.last_offset) for batch in found][4] == (500, 524)


def test_reading_begins_at_any_offset() -> None:
    found = in_blocks([NotedBatch(3 * n, 3 * n + 1, outcome_of(0, 1)) for n in range(2000)])
    for offset in (0, 1, 2, 3, 1535, 1536, 3000, 5998, 5999, 9999):
        assert list(found.from_offset(offset)) == [batch for batch in found if batch.last_offset >= offset]


# Cost


def delayed(count: int) -> BatchList:
    """Single records, every second offset, each delayed to a time of its own, 100 reasons."""
    reasons = [f"reason {number}" for number in range(100)]
    return in_blocks(
        [
            NotedBatch(2 * n, 2 * n, outcome_of(0, 1), Note(100_000 + 100 * n, given_reason(reasons[n % 100], 900)))
            for n in range(count)
        ]
    )


def lines_of(work: Callable[[], Any]) -> int:
    """How many lines of the module run."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != module.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("place", [0.0, 0.37, 1.0])
def test_an_update_costs_what_it_changes_and_not_what_there_is(place: float) -> None:
    """One record of 250,000. It was sorted and rebuilt with the rest: 0.4 s for each acknowledgement."""

    def cost(count: int) -> int:
        state = delayed(count)
        offset = 2 * int(place * (count - 1))
        note = StateAnnotation(offset, offset, 2, 900, Reason("late"))
        return lines_of(lambda: state.updated([StateBatch(offset, offset, 0, 2)], [note], 0))

    assert cost(250_000) < cost(1000) + 30 < 250


def test_many_batches_cost_in_proportion() -> None:
    state = delayed(250_000)
    places = random.Random(7).sample(range(250_000), 10_000)
    one = lines_of(lambda: state.updated([StateBatch(0, 0, 0, 2)], [], 0))
    many = [StateBatch(2 * place, 2 * place, 0, 2) for place in places]
    assert lines_of(lambda: state.updated(many, [], 0)) < 10_000 * one


def test_the_blocks_stay_few_whatever_comes() -> None:
    """Records settled in any order: neither single batches in blocks of their own, nor blocks too long."""
    rng = random.Random(7)
    found = BatchList()
    for offset in rng.sample(range(20_000), 20_000):
        found = found.updated([StateBatch(2 * offset, 2 * offset, 0, 1)], [], 0)
    assert len(found) == 20_000
    assert len(found.blocks) < 3 * 20_000 / module.BLOCK
    for offset in rng.sample(range(20_000), 19_000):
        found = found.updated([StateBatch(max(2 * offset - 1, 0), 2 * offset + 1, 2, 1)], [], 0)
    check_form(found)
    assert len(found.blocks) < 3 * 20_000 / module.BLOCK
