"""Scenarios of loading: family LD on the pure machine, and the delays and reasons that a leader restores."""

import pytest
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.restoring import InvalidState

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import Reason, RestoredLock
from tests.core.restored import load
from tests.core.share_partition_driver import Driver
from tests.core.states import StateAnnotation

NOW_MS = 1_000_000
State = list[tuple[int, int, int, int]]
GAPS: State = [(15, 18, 0, 2), (20, 22, 4, 2), (26, 30, 0, 1)]


@pytest.mark.parametrize(
    ("start", "state", "where", "span"),
    [
        pytest.param(5, [(5, 10, 0, 2), (11, 15, 4, 3)], (5, 15, 5, 5), 11, id="LD-001"),
        pytest.param(10, [(15, 20, 2, 2), (30, 40, 4, 3)], (10, 40, 10, 17), 31, id="LD-003"),
        pytest.param(15, [(15, 20, 2, 2), (21, 30, 4, 3)], (31, 31, 31, 0), 0, id="LD-005"),
        pytest.param(10, [], (10, 10, 10, 0), 0, id="LD-007"),
        pytest.param(11, [(11, 20, 2, 2), (31, 40, 4, 1)], (21, 40, 21, 10), 20, id="finished-up-to-a-hole"),
        pytest.param(0, [(0, 4, 2, 1), (5, 9, 0, 1)], (5, 9, 5, 0), 5, id="a-finished-head"),
        pytest.param(0, [(5, 9, 3, 1)], (0, 9, 0, 0), 10, id="archiving-is-not-finished"),
    ],
)
def test_ld_001_to_007_a_load_restores_window_and_counts(
    start: int, state: State, where: tuple[int, int, int, int], span: int
) -> None:
    d = Driver(state, start=start)
    assert d.where() == where
    assert d.machine.span == span


def test_ld_001_delivery_counts_continue_after_a_load() -> None:
    assert Driver([(5, 10, 0, 2), (11, 15, 4, 3)], start=5).fetch("[5-10]") == "5-10×3"


@pytest.mark.parametrize(
    ("start", "state", "data", "limit", "rl", "acquired", "where"),
    [
        pytest.param(
            11, [(21, 30, 2, 2), (31, 40, 4, 1)], "[11-25]", 500, False, "11-20×1", (11, 40, 41, 20), id="LD-009"
        ),
        pytest.param(
            11,
            [(11, 20, 0, 2), (31, 40, 4, 1)],
            "[11-25]",
            500,
            False,
            "11-20×3, 21-25×1",
            (11, 40, 26, 10),
            id="LD-011",
        ),
        pytest.param(
            11,
            [(21, 30, 2, 2), (41, 50, 0, 1), (61, 70, 4, 1)],
            "[11-75]",
            500,
            False,
            "11-20×1, 31-40×1, 41-50×2, 51-60×1, 71-75×1",
            (11, 75, 76, 20),
            id="LD-013",
        ),
        pytest.param(
            11,
            [(11, 20, 2, 2), (31, 40, 4, 1)],
            "[21-23][24-26][27-28]",
            6,
            False,
            "21-26×1",
            (21, 40, 27, 10),
            id="LD-015",
        ),
        pytest.param(
            11, [(11, 20, 0, 2), (31, 40, 0, 1)], "[11-20][21-40]", 8, False, "11-20×3", (11, 40, 21, 0), id="LD-017"
        ),
        pytest.param(
            11,
            [(21, 30, 2, 2), (41, 50, 4, 1)],
            "[21-35][36-60]",
            500,
            False,
            "31-40×1, 51-60×1",
            (11, 60, 61, 20),
            id="LD-019",
        ),
        pytest.param(
            11,
            [(21, 30, 2, 2), (41, 50, 4, 1)],
            "[16-35][36-60]",
            20,
            True,
            "16-20×1, 31-40×1, 51-55×1",
            (16, 60, 56, 20),
            id="LD-021",
        ),
        pytest.param(
            11,
            [(21, 30, 2, 2), (41, 50, 4, 1)],
            "[11-20][21-35][41-60]",
            15,
            True,
            "11-20×1, 31-35×1",
            (11, 50, 36, 20),
            id="LD-023",
        ),
        pytest.param(
            10,
            GAPS,
            "[10-27]",
            500,
            False,
            "10-14×1, 15-18×3, 19-19×1, 23-25×1, 26-27×2",
            (10, 30, 28, 3),
            id="LD-029",
        ),
        pytest.param(
            10,
            GAPS,
            "[12-27]",
            500,
            False,
            "12-14×1, 15-18×3, 19-19×1, 23-25×1, 26-27×2",
            (12, 30, 28, 3),
            id="LD-029-from-12",
        ),
    ],
)
def test_ld_009_to_029_the_first_fetch_fills_the_holes_of_the_state(
    start: int, state: State, data: str, limit: int, rl: bool, acquired: str, where: tuple[int, int, int, int]
) -> None:
    d = Driver(state, start=start)
    assert d.fetch(data, max=limit, rl=rl) == acquired
    assert d.where() == where


def test_ld_021_ld_023_the_span_follows_the_first_fetch() -> None:
    state = [(21, 30, 2, 2), (41, 50, 4, 1)]
    d = Driver(state, start=11)
    d.fetch("[16-35][36-60]", max=20, rl=True)
    assert d.machine.span == 45
    d = Driver(state, start=11)
    d.fetch("[11-20][21-35][41-60]", max=15, rl=True)
    assert d.machine.span == 40


def test_ld_009_the_start_offset_passes_a_window_that_was_read_whole() -> None:
    d = Driver([(21, 30, 2, 2), (31, 40, 4, 1)], start=11)
    d.fetch("[11-25]")
    d.ack("11-20 Acc")
    assert d.where() == (41, 41, 41, 0)


def test_ld_025_the_start_offset_stops_at_an_unread_hole() -> None:
    d = Driver([(11, 20, 0, 1), (31, 40, 4, 1)], start=11)
    assert d.fetch("[11-20]") == "11-20×2"
    d.ack("11-20 Acc")
    assert d.where() == (21, 40, 21, 10)
    assert d.fetch("[21-30]") == "21-30×1"
    d.ack("21-30 Acc")
    assert d.where() == (41, 41, 41, 0)


def test_ld_027_one_log_batch_may_cover_the_whole_state() -> None:
    d = Driver(GAPS, start=10)
    expected = [
        (1, "10-14×1", 15),
        (10, "15-18×3, 19-19×1, 23-25×1, 26-30×2", 31),
        (1, "31-49×1", 50),
    ]
    for limit, acquired, next_fetch_offset in expected:
        assert d.fetch("[10-49]", max=limit) == acquired
        assert d.where()[2:] == (next_fetch_offset, 3)


def test_ld_031_small_log_batches_fill_the_state_step_by_step() -> None:
    d = Driver(GAPS, start=5)
    batches = [(5, 6), (8, 8), (10, 11), (13, 18), (19, 21), (22, 30), (31, 49)]
    expected = [
        (1, "5-6×1", 7),
        (3, "8-11×1", 12),
        (8, "13-14×1, 15-18×3, 19-19×1, 23-25×1", 26),
        (10, "26-30×2, 31-49×1", 50),
    ]
    for limit, acquired, next_fetch_offset in expected:
        data = "".join(f"[{first}-{last}]" for first, last in batches if last >= d.where()[2])
        assert d.fetch(data, max=limit) == acquired
        assert d.where()[2] == next_fetch_offset


def test_the_start_offset_passes_the_place_where_a_limit_ended_the_first_read() -> None:
    d = Driver(locks=[RestoredLock(4, 8, "M1", 1, NOW_MS + 20_000, 30_000)])
    assert d.fetch("[0-3]", max=3) == "0-3×1"
    d.ack("0-7 Acc")
    assert d.where()[0] == 8
    d.ack("8 Acc")
    assert d.where() == (9, 9, 9, 0)


def test_the_start_offset_passes_a_natural_hole_behind_the_loaded_state() -> None:
    d = Driver(locks=[RestoredLock(4, 8, "M1", 1, NOW_MS + 20_000, 30_000)])
    assert d.fetch("[0-3]", max=3) == "0-3×1"
    assert d.fetch("[9-9]") == "9-9×1"
    assert d.fetch("[12-12]", at=12) == "12-12×1"
    d.ack("0-9 Acc")
    assert d.where() == (12, 12, 13, 0)


def test_the_start_offset_stops_at_the_next_fetch_offset() -> None:
    d = Driver([(4, 4, 0, 1), (9, 9, 2, 1)])
    assert d.fetch("[0-4]") == "0-3×1, 4-4×2"
    assert d.fetch("[7-7]", at=5) == "7-7×1"
    d.ack("0-4 Acc")
    assert d.where() == (7, 9, 8, 1)


def test_a_read_beyond_the_window_makes_the_holes_before_it_natural() -> None:
    """A read that began when the window was shorter: the offsets before it were read then."""
    d = Driver([(0, 4, 0, 1), (10, 14, 0, 1)])
    assert d.fetch("[0-4]") == "0-4×2"
    assert d.where()[2] == 5
    assert d.fetch("[15-19]", at=15) == "15-19×1"
    assert d.where()[2] == 10


def test_the_start_offset_moves_up_to_a_hole_without_another_fetch() -> None:
    """No fetch happens in between: the machine knows what was read without one."""
    held = [RestoredLock(first, first + 4, "M1", 1, NOW_MS + 20_000, 30_000) for first in (0, 10, 15, 25)]
    d = Driver(locks=held)
    assert d.fetch("[5-9]") == "5-9×1"
    starts = []
    for first in (0, 5, 10, 15):
        d.ack(f"{first}-{first + 4} Acc")
        starts.append(d.machine.start_offset)
    assert starts == [5, 10, 15, 20]


def test_ld_033_a_state_that_begins_below_its_start_offset_is_refused() -> None:
    with pytest.raises(InvalidState):
        Driver([(4, 10, 0, 1)], start=5)


# Delays and reasons


def loaded(annotation: StateAnnotation, *state: tuple[int, int, int, int]) -> SharePartition:
    return load(
        ShareGroupConfig(),
        state_epoch=1,
        leader_epoch=1,
        start_offset=0,
        state_batches=[StateBatch(*batch) for batch in state],
        annotations=[annotation],
        now_ms=NOW_MS,
    ).share_partition


def test_a_delay_continues_after_a_load() -> None:
    machine = loaded(StateAnnotation(3, 5, 1, NOW_MS + 1_000), (0, 9, 0, 1))
    assert (machine.held_count, machine.waiting_count, machine.delayed_count) == (0, 10, 3)
    assert machine.next_deadline_ms() == NOW_MS + 1_000
    assert [(run.first, run.last) for run in machine.runs if run.acquirable] == [(0, 2), (6, 9)]
    assert machine.expire(NOW_MS + 999).made_available is False
    assert machine.expire(NOW_MS + 1_000) == (None, 0, True, [], set())
    assert (machine.waiting_count, machine.delayed_count) == (10, 0)


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(StateAnnotation(0, 9, 1, NOW_MS), id="over"),
        pytest.param(StateAnnotation(0, 9, 2, NOW_MS + 1), id="of-another-delivery"),
        pytest.param(StateAnnotation(20, 29, 1, NOW_MS + 1), id="elsewhere"),
    ],
)
def test_a_delay_of_another_delivery_or_range_is_ignored(annotation: StateAnnotation) -> None:
    machine = loaded(annotation, (0, 9, 0, 1))
    assert (machine.delayed_count, machine.next_fetch_offset()) == (0, 0)


def test_the_reason_of_a_reject_survives_a_load() -> None:
    result = load(
        ShareGroupConfig(),
        state_epoch=7,
        leader_epoch=9,
        start_offset=0,
        state_batches=[StateBatch(0, 9, 3, 1)],
        annotations=[StateAnnotation(4, 5, 1, reason=Reason("malformed"))],
        now_ms=NOW_MS,
    )
    assert [
        (letter.first_offset, letter.last_offset, letter.reason and letter.reason.reason)
        for letter in result.dead_letters
    ] == [
        (0, 3, None),
        (4, 5, Reason("malformed")),
        (6, 9, None),
    ]
    assert (result.share_partition.state_epoch, result.share_partition.leader_epoch) == (7, 9)
