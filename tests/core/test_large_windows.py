"""Windows of thousands of runs, and writes of as many."""

from tests.core.share_partition_driver import Driver
from tests.core.states import StateAnnotation

NOW_MS = 1_000_000


def test_outdated_deadlines_are_dropped() -> None:
    machine = Driver([(2 * n, 2 * n, 0, 1) for n in range(3000)]).machine
    for number in range(20_000):
        machine.time_lock(NOW_MS + number, 0, 0)
        assert len(machine._deadlines) <= 2 * 3000 + 66


def test_many_restored_delays_end_on_time() -> None:
    notes = [StateAnnotation(2 * n, 2 * n, 1, NOW_MS + 100 * (1 + n * 7919 % 1000)) for n in range(1000)]
    d = Driver([(2 * n, 2 * n, 0, 1) for n in range(1000)], annotations=notes)
    for tenth in range(1, 1001, 100):
        d.now_ms = NOW_MS + 100 * tenth
        d.later(0)
        assert d.machine.delayed_count == 1000 - tenth


def test_restored_finished_runs_are_split_and_joined_as_others() -> None:
    d = Driver([(0, 0, 0, 1), (1, 4, 2, 1), (6, 6, 0, 1)])
    part = d.machine.cut_out(d.machine.runs[1], 2, 3)
    assert [(run.first, run.last) for run in d.machine.runs] == [(0, 0), (1, 1), (2, 3), (4, 4), (6, 6)]
    d.machine.merge_finished(part)
    assert [(run.first, run.last) for run in d.machine.runs] == [(0, 0), (1, 4), (6, 6)]
