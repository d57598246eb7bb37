"""A state that is restored page by page makes the same window as one that is restored at once."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sharequeue_gateway.share_partition.machine import RestoredLock, SharePartition
from sharequeue_gateway.share_partition.restored_page import InvalidState
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_gateway.share_partition.runs import LiveRun, Run
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch, batch_list, in_blocks
from sharequeue_share_coordinator.share_state.columns import BATCH_BYTES, NOTE_BYTES, page_from
from sharequeue_share_coordinator.share_state.notes import given as given_reason
from sharequeue_share_coordinator.share_state.notes import make_note

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.state_columns import ReasonHistory, StatePage, outcome_of
from sharequeue.protocol.types import MAX_INT64, GivenReason, Reason, StateAnnotation, StateBatch
from tests.core.restored import load
from tests.examples import examples

NOW_MS = 1_000_000
CONFIG = ShareGroupConfig(dead_letter_topic_name="")


def shown(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in LiveRun.__struct_fields__)


def window(machine: SharePartition) -> tuple[Any, ...]:
    counts = (machine.held_count, machine.waiting_count, machine.delayed_count, machine.delivery_complete_count)
    offsets = (machine.start_offset, machine.end_offset, machine.gap_start, machine.gap_end)
    return (
        [shown(run) for run in machine.runs],
        counts,
        offsets,
        machine.next_fetch_offset(),
        sorted(machine._deadlines),
    )


EARLIER = ((), (GivenReason(Reason("c"), 500),), (GivenReason(Reason("d")), GivenReason(Reason("a"), 900)))


@st.composite
def stored(draw: st.DrawFn) -> tuple[BatchList, list[RestoredLock]]:
    """A state as a share coordinator has it, and locks anywhere."""
    batches, notes, offset = [], [], draw(st.sampled_from([0, 0, 3]))
    for _ in range(draw(st.integers(0, 9))):
        first = offset + draw(st.sampled_from([0, 0, 1, 2]))
        last = first + draw(st.sampled_from([0, 0, 1, 4]))
        state, count = draw(st.sampled_from([(0, 1), (0, 1), (0, 2), (0, 0), (2, 1), (3, 2), (4, 1)]))
        batches.append(StateBatch(first, last, state, count))
        for begin, end in draw(
            st.sampled_from([[], [(first, last)], [(first, first)], [(first, first), (last, last)]])
        ):
            delay = draw(st.sampled_from([None, 500, NOW_MS + 5000, NOW_MS + 9000]))
            reason, at_ms = draw(st.sampled_from([(None, None), (Reason("a"), None), (Reason("b"), 700)]))
            transaction_id = draw(st.sampled_from([None, None, None, "t-1", "t-2"]))
            earlier = draw(st.sampled_from(EARLIER)) if state not in (2, 4) else ()
            forgiven = draw(st.integers(0, 1)) if state not in (2, 4) else 0
            notes.append(StateAnnotation(begin, end, count, delay, reason, forgiven, at_ms, earlier, transaction_id))
        offset = last + 1
    locks = []
    for _ in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, offset + 4))
        member, count = draw(st.sampled_from(["m", "n", ""])), draw(st.integers(1, 3))
        deadline_ms = NOW_MS + draw(st.sampled_from([-700, 900]))
        locks.append(RestoredLock(first, first + draw(st.sampled_from([0, 1, 9])), member, count, deadline_ms, 30_000))
    return batch_list(batches, notes), locks


def comparable(machine: SharePartition) -> tuple[Any, ...]:
    """As `window`, without the fields that may differ between machines which were restored in two ways."""
    shown_runs, *rest = window(machine)
    runs = []
    for run, fields in zip(machine.runs, shown_runs, strict=True):
        by_name = dict(zip(LiveRun.__struct_fields__, fields, strict=True))
        by_name["write"] = getattr(run.write, "transaction_id", None)
        if run.finished and run.reason is None:
            del by_name["batch_first"], by_name["batch_last"]  # nobody will change it
        runs.append(by_name)
    holds = {
        transaction_id: sorted(offsets for hold in of for offsets in hold.ranges)
        for transaction_id, of in (machine.holds or {}).items()
    }
    return runs, rest[:3], deadlines(machine), machine.first_new(), machine._available, holds


def deadlines(machine: SharePartition) -> list[tuple[int, ...]]:
    """For each record, when something may end."""
    found = {(deadline, offset) for deadline, first, last in machine._deadlines for offset in range(first, last + 1)}
    return sorted(found)


@settings(max_examples=examples(1500), deadline=None)
@given(stored(), st.integers(1, 200))
def test_pages_make_the_same_window_as_the_whole_state(state: tuple[BatchList, list[RestoredLock]], size: int) -> None:
    batches, locks = state
    whole = load(
        CONFIG,
        state_epoch=1,
        leader_epoch=1,
        start_offset=0,
        state_batches=batches.state_batches(),
        annotations=batches.annotations(),
        locks=locks,
        now_ms=NOW_MS,
    )
    machine = SharePartition(CONFIG, 0, 1, 1)
    restoring = Restoring(machine, locks, NOW_MS)
    offset: int | None = 0
    while offset is not None:
        page, offset = page_from(batches, offset, size)
        for _ in restoring.add_page(
            msgspec.json.decode(msgspec.json.encode(page), type=StatePage), last=offset is None
        ):
            pass
    loaded = machine.loaded()
    assert [letter._asdict() for letter in loaded.dead_letters] == [letter._asdict() for letter in whole.dead_letters]
    assert comparable(loaded.share_partition) == comparable(whole.share_partition)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (BATCH_BYTES, 1), (2 * BATCH_BYTES, 2)])
def test_a_page_has_at_least_one_batch_and_ends(size: int, count: int) -> None:
    page, next_offset = page_from(in_blocks([NotedBatch(n, n, outcome_of(0, 1)) for n in range(3)]), 0, size)
    assert (len(page.columns.outcomes), next_offset) == (count, count)


def test_a_text_counts_for_the_size_of_a_page_once() -> None:
    late, away = (make_note(0, given_reason(letter * 100, 0)) for letter in "la")
    batches = in_blocks([NotedBatch(n, n, outcome_of(0, 1), note) for n, note in enumerate([late, late, away])])
    _, next_offset = page_from(batches, 0, 2 * (BATCH_BYTES + NOTE_BYTES) + 100)
    assert next_offset == 2


def test_a_finished_record_forgives_nothing() -> None:
    """The columns of a page can say that it does."""
    note = make_note(0, given_reason("late", 100), forgiven=1)
    page, _ = page_from(
        in_blocks([NotedBatch(0, 0, outcome_of(0, 1), note), NotedBatch(1, 1, outcome_of(2, 1), note)]), 0, 1 << 40
    )
    machine = SharePartition(CONFIG, 0, 1, 1)
    for _ in Restoring(machine, [], NOW_MS).add_page(page, last=True):
        pass
    assert [run.forgiven for run in machine.runs] == [1, 0]


def delayed_page(count: int) -> StatePage:
    """Every second record delayed, with one of 100 reasons; the others accepted."""
    reasons = [given_reason(f"{number:03} the warehouse did not answer in time", 100) for number in range(100)]
    batches = [
        NotedBatch(n, n, outcome_of(0, 1), make_note(NOW_MS + 100 * (n * 7919 % 9000 + 1), reasons[n % 100]))
        if n % 2
        else NotedBatch(n, n, outcome_of(2, 1))
        for n in range(count)
    ]
    page, offset = page_from(in_blocks(batches), 0, 1 << 40)
    assert offset is None
    return page


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls of Python functions, and of built-in ones, by the kind of call."""
    calls: Counter[str] = Counter()

    def count(_frame: Any, event: str, _argument: Any) -> None:
        calls[event] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_run_is_restored_without_a_call_and_without_an_object_beside_it() -> None:
    """A load is bounded by the CPU of what it does for each of 200,000 batches: it was a dozen calls."""
    page = delayed_page(10_000)
    machine = SharePartition(CONFIG, 0, 1, 1)
    with counted() as calls:
        for _ in Restoring(machine, [], NOW_MS).add_page(page, last=True):
            pass
    assert len(machine.runs) == 10_000
    assert machine.delayed_count == 5000
    assert calls["call"] < 2500, "some for each step and each reason, none for each run"
    assert calls["c_call"] < 30_000, "a run and a deadline that join a list, and a mark of a note that is looked up"


def test_a_few_locks_do_not_change_what_the_others_cost() -> None:
    page = delayed_page(10_000)
    calls = {}
    for number in (1, 20):
        locks = [
            RestoredLock(at, at, "m", 2, NOW_MS + 900, 30_000) for at in range(1, 10_000, 20_000 // number // 2 * 2)
        ]
        machine = SharePartition(CONFIG, 0, 1, 1)
        with counted() as counts:
            for _ in Restoring(machine, locks, NOW_MS).add_page(page, last=True):
                pass
        assert machine.held_count == len(locks)
        calls[len(locks)] = counts["call"]
    (few, least), (many, most) = sorted(calls.items())
    assert most - least < 200 * (many - few)


def test_runs_of_an_in_flight_batch_over_many_pages_know_its_ends() -> None:
    """One release after another, each with its own delay: the pages cut what is one batch for throttling."""
    notes = [make_note(NOW_MS + 100 * (1 + n % 9)) for n in range(1000)]
    batches = in_blocks([NotedBatch(n, n, outcome_of(0, 1), note) for n, note in enumerate(notes)])
    machine = SharePartition(CONFIG, 0, 1, 1)
    restoring = Restoring(machine, [], NOW_MS)
    offset: int | None = 0
    pages = 0
    while offset is not None:
        page, offset = page_from(batches, offset, 4000)
        pages += 1
        for _ in restoring.add_page(page, last=offset is None):
            pass
    assert pages > 5
    assert {(run.batch_first, run.batch_last) for run in machine.runs} == {(0, 999)}


GOOD = delayed_page(6).columns
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a column is short": ({"lengths": [0] * 5}, "6 gaps, 5 lengths, 6 outcomes and 6 marks of notes"),
    "a mark is neither 0 nor 1": ({"noted": [0, 2, 0, 1, 0, 1]}, "neither 0 nor 1"),
    "a note is missing": ({"delays": [1, 1]}, "3 batches have notes"),
    "a transaction is missing": ({"transactions": [1]}, "3 batches have notes"),
    "batches overlap": ({"gaps": [0, 1, 0, 1, 1, 1]}, "begins before the one before it ends"),
    "a batch ends before it begins": ({"lengths": [0, 0, -1, 0, 0, 0]}, "ends before it begins"),
    "an offset is negative": ({"base_offset": -1}, "begins before"),
    "an offset is too large": ({"base_offset": MAX_INT64 - 4}, "which is no offset"),
    "a length is too large": ({"lengths": [0, 0, 0, 0, 0, MAX_INT64]}, "which is no offset"),
    "a state that is never stored": ({"outcomes": [9] * 6}, "the delivery state 1"),
    "an unknown state": ({"outcomes": [15] * 6}, "the delivery state 7"),
    "a negative count": ({"outcomes": [-8] * 6}, "count is negative"),
    "a count that is too large": ({"outcomes": [8 << 31] * 6}, "the delivery count 2147483648"),
    "a delay is negative": ({"delays": [-1, 1, 1]}, "delay is negative"),
    "a text that is not there": ({"reasons": [1, 2, 99]}, "cannot be read"),
    "a text before the first": ({"reasons": [1, -2, 1]}, "number of a text is negative"),
    "a transaction without a name": ({"transactions": [0, 0, 1]}, "cannot be read"),
    "a time is missing": ({"history": ReasonHistory([1, 2])}, "2 times belong to 3 reasons"),
    "earlier reasons are cut off": ({"history": ReasonHistory([], [0, 2, 1, 1])}, "are cut off"),
    "an earlier reason before the first": ({"history": ReasonHistory([], [0, 1, -1, 1])}, "is negative"),
    "earlier reasons of no note": ({"history": ReasonHistory([], [3, 1, 0, 1])}, "cannot be read"),
}


@pytest.mark.parametrize(("fields", "cause"), HOSTILE.values(), ids=HOSTILE)
def test_a_page_that_contradicts_itself_is_refused(fields: dict[str, Any], cause: str) -> None:
    page = StatePage(structs.replace(GOOD, **fields), ["a", "b", "c"])
    machine = SharePartition(CONFIG, 0, 1, 1)
    with pytest.raises(InvalidState, match=cause):
        list(Restoring(machine, [], NOW_MS).add_page(page, last=True))
    assert machine.window_empty


def test_a_page_that_begins_before_the_last_one_ends_is_refused() -> None:
    restoring = Restoring(SharePartition(CONFIG, 0, 1, 1), [], NOW_MS)
    list(restoring.add_page(delayed_page(6), last=False))
    with pytest.raises(InvalidState, match="batch 0-0 is out of place"):
        list(restoring.add_page(delayed_page(6), last=True))


small = st.integers(-3, 12)


@settings(max_examples=examples(600), deadline=None)
@given(st.data())
def test_any_columns_make_a_window_or_are_refused(data: st.DataObject) -> None:
    fields: dict[str, Any] = {}
    for name in data.draw(st.sets(st.sampled_from(GOOD.__struct_fields__), min_size=1, max_size=3)):
        value = getattr(GOOD, name)
        if isinstance(value, int):
            fields[name] = data.draw(small)
        elif isinstance(value, list):
            sizes = st.sampled_from([len(value), len(value), len(value) + 1, 0])
            size = data.draw(sizes)
            fields[name] = data.draw(st.lists(small, min_size=size, max_size=size))
        else:
            fields[name] = ReasonHistory(data.draw(st.lists(small, max_size=4)), data.draw(st.lists(small, max_size=6)))
    locks = [RestoredLock(2, 3, "m", 2, NOW_MS + 900, 30_000)] if data.draw(st.booleans()) else []
    machine = SharePartition(CONFIG, 0, 1, 1)
    try:
        list(
            Restoring(machine, locks, NOW_MS).add_page(
                StatePage(structs.replace(GOOD, **fields), ["a", "b"]), last=True
            )
        )
    except InvalidState:
        return
    offsets = [offset for run in machine.runs for offset in (run.first, run.last)]
    assert offsets == sorted(offsets)
    assert machine.held_count + machine.waiting_count + sum(run.size for run in machine.runs if run.finished) == sum(
        run.size for run in machine.runs
    )


def test_equal_reasons_of_many_records_are_in_memory_once() -> None:
    offsets = range(0, 4000, 2)
    machine = SharePartition(CONFIG, 0, 1, 1)
    notes = [StateAnnotation(at, at, 1, NOW_MS + 5000, Reason(f"reason {at % 100}")) for at in offsets]
    batches = batch_list([StateBatch(at, at, 0, 1) for at in offsets], notes)
    for _ in Restoring(machine, [], NOW_MS).add_page(page_from(batches, 0, 1 << 40)[0], last=True):
        pass
    assert len({id(run.reason) for run in machine.runs}) == 50
    assert [run.reason and run.reason.reason for run in machine.runs] == [note.reason for note in notes]
    others = [machine.reasons.given(Reason(f"another {number}"), number) for number in range(10_000)]
    assert [(str(kept.reason), kept.at_ms) for kept in others] == [
        (f"another {number}", number // 100 * 100) for number in range(10_000)
    ]
    assert len(machine.reasons._texts) <= 256, "they do not stay for ever"
    assert len(machine.reasons._given) <= 2048, "they do not stay for ever"
