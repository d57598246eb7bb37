"""What keeps a window of 100,000 delayed records small: packed deadlines, and finished runs of a third of the size."""

import random
import sys

import pytest
from sharequeue_gateway.share_partition import window
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_gateway.share_partition.runs import MOST_APART, LiveRun, Run

from sharequeue.protocol.types import AcknowledgeType, Reason, StateAnnotation, StateBatch
from tests.core.share_partition_driver import Driver

NOW_MS = 1_000_000


def test_deadlines_come_in_order_whether_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_PACKED_AT_ONCE", 7)
    rng = random.Random(7)
    machine = Driver([(2 * n, 2 * n, 0, 1) for n in range(300)]).machine
    machine.delayed_count = 1  # so that deadlines are not dropped
    timed: list[tuple[int, int, int]] = []

    def take() -> None:
        deadline_ms = min(timed)[0]
        assert machine.next_deadline_ms() == deadline_ms
        assert machine.pop_due(deadline_ms - 1) is None
        found = machine.pop_due(deadline_ms)
        assert found is not None
        timed.remove((deadline_ms, *found))

    for number in range(500):
        timed.append((rng.randrange(200), rng.randrange(600), 600))
        machine.time_lock(*timed[-1])
        if number % 5 == 0:
            take()
    assert machine._packed
    while timed:
        take()
    assert (machine.next_deadline_ms(), machine.pop_due(1000), machine._packed_count) == (None, None, 0)


def test_outdated_deadlines_are_dropped_from_both() -> None:
    machine = Driver([(2 * n, 2 * n, 0, 1) for n in range(3000)]).machine
    most = 0
    for number in range(100_000):
        machine.time_lock(NOW_MS + number, 0, 0)
        assert len(machine._deadlines) <= 2048
        most = max(most, machine._packed_count + len(machine._deadlines))
    assert 2048 < most <= 2 * 3000 + 66


def test_delays_that_were_packed_end_on_time() -> None:
    notes = [StateAnnotation(2 * n, 2 * n, 1, NOW_MS + 100 * (1 + n * 7919 % 5000)) for n in range(5000)]
    d = Driver([(2 * n, 2 * n, 0, 1) for n in range(5000)], annotations=notes)
    assert d.machine._packed_count >= 3000
    for tenth in range(1, 5001, 100):
        d.now_ms = NOW_MS + 100 * tenth
        d.later(0)
        assert d.machine.delayed_count == 5000 - tenth


def test_a_finished_run_that_is_restored_is_a_third_as_large() -> None:
    notes = [StateAnnotation(4, 5, 1, reason=Reason("bad"))]
    d = Driver([(0, 0, 0, 1), (1, 2, 2, 1), (4, 5, 4, 1), (6, 6, 2, 1)], annotations=notes)
    assert [type(run) for run in d.machine.runs] == [LiveRun, Run, LiveRun, Run]
    assert 3 * sys.getsizeof(d.machine.runs[1]) <= sys.getsizeof(d.machine.runs[0])
    assert [run.reason is not None for run in d.machine.runs] == [False, False, True, False]


def test_restored_finished_runs_are_split_and_joined_as_others() -> None:
    d = Driver([(0, 0, 0, 1), (1, 4, 2, 1), (6, 6, 0, 1)])
    part = d.machine.cut_out(d.machine.runs[1], 2, 3)
    assert [(run.first, run.last) for run in d.machine.runs] == [(0, 0), (1, 1), (2, 3), (4, 4), (6, 6)]
    d.machine.merge_finished(part)
    assert [(run.first, run.last) for run in d.machine.runs] == [(0, 0), (1, 4), (6, 6)]


# Large writes


def released(counts: dict[int, int]) -> tuple[list[StateBatch], int]:
    """Release each record by itself, with a delay of its own. `counts`: the delivery count by offset.

    Returns: the state batches of the write, and how many delays it has.
    """
    state = [(offset, offset, 0, count - 1) for offset, count in counts.items()]
    d = Driver(state, partition_max_record_locks=10_000)
    d.fetch(f"[0-{len(counts) - 1}]", max=10_000)
    batches = [
        AcknowledgementBatch(offset, offset, (AcknowledgeType.RELEASE,), delay_ms=1_000 + offset) for offset in counts
    ]
    (write,) = d.machine.acknowledge("M1", iter(batches), d.now_ms).writes
    return write.state_batches, len({note.available_at_ms for note in write.annotations})


def test_a_large_write_joins_neighbours_of_one_state_and_no_delays() -> None:
    small, large = dict.fromkeys(range(MOST_APART), 2), dict.fromkeys(range(MOST_APART + 1), 2)
    assert released(small) == ([StateBatch(offset, offset, 0, 2) for offset in small], MOST_APART)
    assert released(large) == ([StateBatch(0, MOST_APART, 0, 2)], MOST_APART + 1)


def test_a_large_write_keeps_records_of_other_counts_apart() -> None:
    counts = {offset: 2 + offset % 2 for offset in range(MOST_APART + 1)}
    assert released(counts)[0] == [StateBatch(offset, offset, 0, count) for offset, count in counts.items()]
