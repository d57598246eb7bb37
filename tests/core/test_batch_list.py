"""The list of a state: what an update leaves at each offset, what becomes of the notes, and that no list changes."""

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from sharequeue_share_coordinator.share_state.batch_list import from_offset, updated

from sharequeue.protocol.state import Given, Note, StateBatch
from sharequeue.protocol.types import GivenReason, Reason
from tests.core.states import StateAnnotation, Stored, written
from tests.examples import examples

notes = st.builds(
    Note,
    st.sampled_from((0, 700, 800)),
    st.none() | st.builds(Given, st.integers(0, 2), st.sampled_from((0, 100))),
    st.integers(0, 3),
    st.just(()),
    st.sampled_from((None, "t-1")),
)


@st.composite
def state_batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 60))
    last = first + draw(st.integers(-1, 12))
    return StateBatch(
        first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(0, 4)), draw(st.none() | notes)
    )


updates = st.lists(st.tuples(st.lists(state_batch(), max_size=8), st.integers(-1, 75)), max_size=12)


def by_offset(batches: list[StateBatch]) -> dict[int, StateBatch]:
    return {at: batch.part(at, at) for batch in batches for at in range(batch.first_offset, batch.last_offset + 1)}


@settings(max_examples=examples(200))
@given(updates)
def test_an_update_of_ranges_does_the_same_as_one_of_each_offset(sequence: list[tuple[list[StateBatch], int]]) -> None:
    found: list[StateBatch] = []
    single: dict[int, StateBatch] = {}
    for new, start in sequence:
        before, shown = found, list(found)
        found = updated(found, new, start)
        assert before == shown, "a list never changes"
        disjoint = all(
            b.last_offset < a.first_offset for b, a in itertools.pairwise(sorted(new, key=lambda b: b.first_offset))
        )
        for batch in sorted(new, key=lambda b: b.first_offset) if disjoint else new:
            for at, part in by_offset([batch]).items():
                (single[at],) = updated([single[at]] if at in single else [], [part], -1)
        single = {at: batch for at, batch in single.items() if at >= start}
        assert by_offset(found) == single
        assert all(batch.first_offset <= batch.last_offset for batch in found)
        for left, right in itertools.pairwise(found):
            assert left.last_offset < right.first_offset
            assert not right.continues(left)


def test_many_updates_in_place_do_the_same_as_copies() -> None:
    rng = random.Random(7)
    copied: list[StateBatch] = []
    changed: list[StateBatch] = []
    for offset in rng.sample(range(2000), 2000):
        new = [StateBatch(offset, offset + offset % 3, offset % 5, 1 + offset % 2)]
        copied = updated(copied, new, -1)
        updated(changed, new, -1, in_place=True)
    assert changed == copied


def test_forgiven_deliveries_outlive_the_delivery_count_and_only_grow() -> None:
    state = Stored().updated(written([StateBatch(0, 9, 0, 1)], [StateAnnotation(0, 9, 1, forgiven=2)]))
    state = state.updated(written([StateBatch(0, 9, 0, 3)], [StateAnnotation(0, 4, 3, forgiven=1)]))
    assert state.annotations() == [StateAnnotation(0, 9, 3, forgiven=2)]
    assert state.updated(written([StateBatch(0, 5, 2, 3)])).annotations() == [StateAnnotation(6, 9, 3, forgiven=2)]


def test_a_higher_count_or_the_start_offset_drops_a_delay_and_a_reason() -> None:
    note = StateAnnotation(10, 19, 1, available_at_ms=900, reason=Reason("slow"), forgiven=2)
    state = Stored().updated(written([StateBatch(10, 19, 0, 1)], [note]))
    assert state.updated(written([StateBatch(14, 15, 0, 2)]), 12).annotations() == [
        StateAnnotation(12, 13, 1, 900, Reason("slow"), 2),
        StateAnnotation(14, 15, 2, forgiven=2, earlier_reasons=(GivenReason(Reason("slow")),)),
        StateAnnotation(16, 19, 1, 900, Reason("slow"), 2),
    ]


def test_a_note_of_an_earlier_delivery_delays_nothing() -> None:
    state = Stored().updated(written([StateBatch(0, 9, 0, 2)], [StateAnnotation(0, 9, 1, 900, Reason("slow"), 2)]))
    assert state.annotations() == [StateAnnotation(0, 9, 2, forgiven=2)]


def test_the_reasons_of_the_last_five_deliveries_that_had_one_are_kept_until_the_record_is_finished() -> None:
    state = Stored()
    for count in range(1, 9):
        note = StateAnnotation(0, 9, count, reason=Reason(f"no {count}"), reason_at_ms=1000 * count)
        state = state.updated(written([StateBatch(0, 9, 0, count)], [] if count == 6 else [note, note]), 0)
    earlier = tuple(GivenReason(Reason(f"no {count}"), 1000 * count) for count in (2, 3, 4, 5, 7))
    assert state.annotations() == [StateAnnotation(0, 9, 8, None, Reason("no 8"), 0, 8000, earlier)]
    state = state.updated(written([StateBatch(2, 9, 3, 9)]), 0).updated(written([StateBatch(5, 9, 4, 9)]), 0)
    later = (*earlier[1:], GivenReason(Reason("no 8"), 8000))
    assert state.annotations() == [
        StateAnnotation(0, 1, 8, None, Reason("no 8"), 0, 8000, earlier),
        StateAnnotation(2, 4, 9, earlier_reasons=later),
    ]


def test_a_pending_delivery_is_pending_until_it_is_settled_or_let_go() -> None:
    """It replaces neither the reason of the delivery before it nor what is forgiven."""
    before = [StateAnnotation(10, 19, 1, reason=Reason("slow"), forgiven=1)]
    state = Stored().updated(written([StateBatch(10, 19, 0, 1)], before))
    state = state.updated(written([StateBatch(10, 19, 0, 1)], [StateAnnotation(10, 19, 1, transaction_id="t-1")]))
    pending = StateAnnotation(10, 19, 1, reason=Reason("slow"), forgiven=1, transaction_id="t-1")
    assert state.annotations() == [pending]
    settled = state.updated(written([StateBatch(10, 12, 2, 2), StateBatch(13, 13, 0, 2)]))
    slow = (GivenReason(Reason("slow")),)
    returned = StateAnnotation(13, 13, 2, forgiven=1, earlier_reasons=slow)
    assert settled.annotations() == [returned, pending._replace(first_offset=14)]
    let_go = settled.updated(written([], [StateAnnotation(14, 19, 1, forgiven=1)]))
    assert let_go.annotations() == [returned, pending._replace(first_offset=14, transaction_id=None)]


def test_the_last_of_several_notes_of_one_offset_counts() -> None:
    said = [StateAnnotation(0, 9, 1, reason=Reason(reason), forgiven=n) for reason, n in (("a", 3), ("b", 1))]
    state = Stored().updated(written([StateBatch(0, 9, 0, 1)], said))
    assert state.annotations() == [StateAnnotation(0, 9, 1, None, Reason("b"), 3)]


def test_reading_begins_at_any_offset() -> None:
    found = [StateBatch(3 * n, 3 * n + 1, 0, 1) for n in range(2000)]
    for offset in (0, 1, 2, 3, 1535, 1536, 3000, 5998, 5999, 9999):
        assert list(from_offset(found, offset)) == [batch for batch in found if batch.last_offset >= offset]
