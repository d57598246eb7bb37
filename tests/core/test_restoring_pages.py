"""A state that is restored page by page makes the same window as one that is restored at once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sharequeue_gateway.share_partition.machine import RestoredLock, SharePartition
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_gateway.share_partition.runs import LiveRun, Run

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import Reason, StateAnnotation, StateBatch

NOW_MS = 1_000_000
CONFIG = ShareGroupConfig(dead_letter_topic_name="")


@st.composite
def states(draw: st.DrawFn) -> tuple[list[StateBatch], list[StateAnnotation], list[RestoredLock]]:
    """Batches that ascend, annotations that begin and end where batches do, in places, and locks anywhere."""
    batches, notes, offset = [], [], 0
    for _ in range(draw(st.integers(0, 8))):
        first = offset + draw(st.integers(0, 2))
        last = first + draw(st.integers(0, 3))
        state, count = draw(st.sampled_from([(0, 1), (0, 2), (2, 1), (4, 1)]))
        if batches and (batches[-1].last_offset + 1, *_of(batches[-1])) == (first, state, count):
            first, last = first + 1, last + 1  # the share coordinator joins equal neighbours
        batches.append(StateBatch(first, last, state, count))
        if draw(st.booleans()):
            cut = draw(st.integers(first, last))
            delay = draw(st.sampled_from([None, NOW_MS + 5000, NOW_MS + 9000]))
            forgiven = draw(st.integers(0, 1))
            noted = draw(st.sampled_from([count, count + 1]))
            notes.append(
                StateAnnotation(first, cut, noted, delay, draw(st.sampled_from([None, Reason("a")])), forgiven)
            )
            if cut < last:
                notes.append(StateAnnotation(cut + 1, last, count, NOW_MS + 7000, Reason("b")))
        offset = last + 1
    locks = []
    for _ in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, offset + 4))
        last = first + draw(st.integers(0, 9))
        locks.append(
            RestoredLock(first, last, draw(st.sampled_from(["m", "n", ""])), draw(st.integers(1, 3)), NOW_MS + 900)
        )
    return batches, notes, locks


def _of(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_state, batch.delivery_count


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


@settings(max_examples=400, deadline=None)
@given(states(), st.data())
def test_pages_make_the_same_window_as_the_whole_state(
    state: tuple[list[StateBatch], list[StateAnnotation], list[RestoredLock]], data: st.DataObject
) -> None:
    batches, notes, locks = state
    whole = SharePartition.load(
        CONFIG,
        state_epoch=1,
        leader_epoch=1,
        start_offset=0,
        state_batches=batches,
        annotations=notes,
        locks=locks,
        now_ms=NOW_MS,
    )
    machine = SharePartition(CONFIG, 0, 1, 1)
    restoring = Restoring(machine, locks, NOW_MS)
    places = sorted({place for batch in batches for place in range(batch.first_offset, batch.last_offset + 1)})
    cuts = sorted(data.draw(st.sets(st.sampled_from(places), max_size=4))) if places else []
    begin = 0
    for end in [*cuts, None]:
        some, about = _between(batches, begin, end), _between(notes, begin, end)
        for _ in restoring.add(some, about, last=end is None):
            pass
        begin = begin if end is None else end
    assert window(machine.loaded().share_partition) == window(whole.share_partition)


def _between(parts: list[Any], begin: int, end: int | None) -> list[Any]:
    """The parts of a page. The border of two pages may cut batches and annotations."""
    found = []
    for part in parts:
        first, last = max(part.first_offset, begin), part.last_offset if end is None else min(part.last_offset, end - 1)
        if first <= last:
            fields = [getattr(part, name) for name in part.__struct_fields__[2:]]
            found.append(type(part)(first, last, *fields))
    return found


def test_equal_reasons_of_many_records_are_in_memory_once() -> None:
    offsets = range(0, 4000, 2)
    machine = SharePartition(CONFIG, 0, 1, 1)
    notes = [StateAnnotation(at, at, 1, NOW_MS + 5000, Reason(f"reason {at % 100}")) for at in offsets]
    for _ in Restoring(machine, [], NOW_MS).add([StateBatch(at, at, 0, 1) for at in offsets], notes, last=True):
        pass
    assert len({id(run.reason) for run in machine.runs}) == 50
    assert [run.reason and run.reason.reason for run in machine.runs] == [note.reason for note in notes]
    others = [machine.reasons.given(Reason(f"another {number}"), number) for number in range(10_000)]
    assert [(str(kept.reason), kept.at_ms) for kept in others] == [
        (f"another {number}", number // 100 * 100) for number in range(10_000)
    ]
    assert len(machine.reasons._texts) <= 256, "they do not stay for ever"
    assert len(machine.reasons._given) <= 2048, "they do not stay for ever"
