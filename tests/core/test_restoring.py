"""Restoring a window from persisted state: refused where it contradicts itself, and equal in memory where it is."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.restoring import STEP_RUNS, InvalidState, Restoring

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.state import Given, Note, StateBatch
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, Reason, RestoredLock

NOW_MS = 1_000_000
CONFIG = ShareGroupConfig()
GOOD = [StateBatch(n, n, 0 if n % 2 else 2, 1, Note(NOW_MS + 100, Given(n % 3)) if n % 2 else None) for n in range(6)]
TEXTS = {0: "a", 1: "b", 2: "c"}


def restored(batches: list[StateBatch], locks: list[RestoredLock] | None = None) -> SharePartition:
    machine = SharePartition(CONFIG, 0, 1, 1)
    for _ in Restoring(machine, TEXTS, NOW_MS).restore(batches, locks or []):
        pass
    return machine


@pytest.mark.parametrize(
    "changed",
    [
        {"first_offset": 1},
        {"first_offset": 4},
        {"last_offset": MAX_INT64 + 1},
        {"delivery_state": 1},
        {"delivery_state": 7},
        {"delivery_count": -1},
        {"delivery_count": MAX_INT32 + 1},
        {"note": Note(reason=Given(9))},
        {"note": Note(earlier=(Given(-1),))},
    ],
)
def test_a_state_that_contradicts_itself_is_refused(changed: dict[str, object]) -> None:
    batch = structs.replace(GOOD[3], **changed)
    with pytest.raises(InvalidState, match="the persisted state cannot be read"):
        restored([*GOOD[:3], batch])


def test_a_batch_below_the_start_offset_is_refused() -> None:
    machine = SharePartition(CONFIG, 1, 1, 1)
    with pytest.raises(InvalidState, match="cannot stand behind offset 0"):
        list(Restoring(machine, TEXTS, NOW_MS).restore(GOOD, []))


def test_a_finished_record_forgives_nothing() -> None:
    machine = restored([StateBatch(0, 0, 0, 1, Note(forgiven=1)), StateBatch(1, 1, 2, 1, Note(forgiven=1))])
    assert [run.forgiven for run in machine.runs] == [1, 0]


def test_neighbours_of_one_count_are_one_in_flight_batch_whatever_their_notes() -> None:
    """One release after another, each with its own delay, of what is one batch for throttling."""
    machine = restored([StateBatch(n, n, 0, 1, Note(NOW_MS + 100 * (1 + n % 9))) for n in range(1000)])
    assert {(run.batch_first, run.batch_last) for run in machine.runs} == {(0, 999)}
    apart = restored([StateBatch(0, 1, 0, 1), StateBatch(3, 3, 0, 1), StateBatch(4, 4, 2, 1)])
    assert [(run.batch_first, run.batch_last) for run in apart.runs] == [(0, 1), (3, 3), (4, 4)]


def test_equal_reasons_of_many_records_are_in_memory_once() -> None:
    machine = restored([StateBatch(2 * n, 2 * n, 0, 1, Note(NOW_MS + 100, Given(n % 3, 100))) for n in range(2000)])
    assert len({id(run.reason) for run in machine.runs}) == 3
    others = [machine.reasons.given(Reason(f"another {number}"), number) for number in range(10_000)]
    assert len({str(kept.reason) for kept in others}) == 10_000
    assert len(machine.reasons._texts) <= 256, "they do not stay for ever"
    assert len(machine.reasons._given) <= 2048, "they do not stay for ever"


def test_other_tasks_run_between_steps() -> None:
    machine = SharePartition(CONFIG, 0, 1, 1)
    batches = [StateBatch(2 * n, 2 * n, 2, 1) for n in range(10 * STEP_RUNS)]
    assert len(list(Restoring(machine, {}, NOW_MS).restore(batches, []))) >= 10


def test_no_step_goes_through_all_locks() -> None:
    """Not even if each is there twice: in Redis, and kept in memory."""
    machine = SharePartition(CONFIG, 0, 1, 1)
    locks = 2 * [RestoredLock(2 * n, 2 * n, "m", 1, NOW_MS + 1, 1000) for n in range(10 * STEP_RUNS)]
    calls: list[int] = []

    def count(*_: object) -> None:
        calls[-1] += 1

    steps = Restoring(machine, {}, NOW_MS).restore([], locks)
    going_on = True
    while going_on:
        calls.append(0)
        sys.setprofile(count)
        going_on = next(steps, steps) is None
        sys.setprofile(None)
    assert len(machine.runs) == 10 * STEP_RUNS
    assert max(calls) <= sum(calls) / 5


@st.composite
def locks(draw: st.DrawFn) -> RestoredLock:
    first = draw(st.integers(0, 40))
    last = first + draw(st.integers(0, 12))
    member = draw(st.sampled_from(("m", "")))
    return RestoredLock(first, last, member, draw(st.integers(1, 4)), NOW_MS + draw(st.integers(-1, 2)), 30_000)


@st.composite
def states(draw: st.DrawFn) -> list[StateBatch]:
    places = sorted(draw(st.sets(st.integers(0, 50), max_size=16)))
    kinds = st.tuples(st.sampled_from((0, 2, 3, 4)), st.integers(0, 3))
    return [
        StateBatch(first, after - 1, *draw(kinds)) for first, after in itertools.pairwise(places) if draw(st.booleans())
    ]


@given(states(), st.lists(locks(), max_size=6))
def test_each_offset_has_the_strongest_lock_above_what_is_persisted(
    batches: list[StateBatch], left: list[RestoredLock]
) -> None:
    machine = restored(batches, left)
    found = {at: run for run in machine.runs for at in range(run.first, run.last + 1)}
    for at in range(60):
        batch = next((b for b in batches if b.first_offset <= at <= b.last_offset), None)
        covering = [lock for lock in left if lock.first_offset <= at <= lock.last_offset]
        best = max(covering, key=lambda lock: (lock.delivery_count, lock.deadline_ms), default=None)
        count = 0 if batch is None else batch.delivery_count
        live = best is not None and best.delivery_count > count and (batch is None or batch.delivery_state == 0)
        if batch is None and not live:
            assert at not in found
        else:
            assert (found[at].delivery_count, found[at].durable) == (
                best.delivery_count if live and best else count,
                not live,
            )
    firsts = [run.first for run in machine.runs]
    assert firsts == sorted(firsts)
    assert machine.held_count + machine.waiting_count + machine.delivery_complete_count == len(found)
