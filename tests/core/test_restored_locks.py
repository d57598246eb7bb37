"""A leader restores the locks of an earlier one: family LD on the pure machine."""

import pytest
from sharequeue_gateway.share_partition.runs import LIMIT_EXCEEDED

from sharequeue.protocol.types import RestoredLock
from tests.core.share_partition_driver import Driver

NOW_MS = 1_000_000
State = list[tuple[int, int, int, int]]


def lock(first: int, last: int, count: int, *, left_ms: int = 20_000, member: str = "M1") -> RestoredLock:
    return RestoredLock(first, last, member, count, NOW_MS + left_ms, 30_000)


def test_ld_039_a_restart_without_locks_forgets_first_deliveries() -> None:
    d = Driver([(10, 14, 2, 1)])
    assert d.where() == (0, 14, 0, 5)
    assert d.fetch("[0-9][10-14]") == "0-9×1"


def test_ld_039_a_restart_with_locks_forgets_nothing() -> None:
    d = Driver([(10, 14, 2, 1)], locks=[lock(0, 9, 1)])
    assert (d.states(), d.where()) == ("0-9 AQ×1 | 10-14 AK×1", (0, 14, 15, 5))
    assert d.machine.held_by("M1", 0, 99) == [(0, 9, 1, NOW_MS + 20_000, 30_000, 0)]
    assert d.machine.next_deadline_ms() == NOW_MS + 20_000
    d.ack("0-9 Acc")
    assert d.where() == (15, 15, 15, 0)


@pytest.mark.parametrize(
    ("state", "locks", "states"),
    [
        pytest.param([(0, 4, 0, 1)], [lock(0, 4, 2)], "0-4 AQ×2", id="a-later-delivery"),
        pytest.param([(0, 4, 0, 2)], [lock(0, 4, 2)], "0-4 AV×2", id="what-ended-it-is-durable"),
        pytest.param([(0, 4, 0, 2)], [lock(0, 4, 1)], "0-4 AV×2", id="an-older-delivery"),
        pytest.param([(0, 9, 2, 1), (10, 14, 0, 1)], [lock(5, 12, 2)], "10-12 AQ×2 | 13-14 AV×1", id="finished"),
        pytest.param([(0, 4, 3, 1)], [lock(0, 4, 2)], "0-4 ARCHIVING×1", id="archiving"),
        pytest.param([], [lock(0, 4, 1, left_ms=0)], "0-4 AV×1", id="over-at-its-deadline"),
        pytest.param([], [lock(0, 4, 1, left_ms=1)], "0-4 AQ×1", id="not-over-before"),
        pytest.param([(0, 9, 0, 1)], [lock(3, 6, 2)], "0-2 AV×1 | 3-6 AQ×2 | 7-9 AV×1", id="a-part"),
        pytest.param([], [lock(0, 5, 1), lock(3, 9, 2, member="M2")], "0-2 AQ×1 | 3-9 AQ×2", id="overlap"),
        pytest.param([], [lock(0, 9, 2), lock(3, 5, 1, left_ms=25_000)], "0-9 AQ×2", id="stale-inside"),
        pytest.param([(10, 14, 0, 1)], [lock(0, 4, 1)], "0-4 AQ×1 | 10-14 AV×1", id="a-hole-stays"),
    ],
)
def test_a_lock_is_restored_if_it_is_newer_than_the_stored_state(
    state: State, locks: list[RestoredLock], states: str
) -> None:
    d = Driver(state, locks=locks)
    assert d.states() == states
    assert d.machine.held_count == sum(
        run.size for run in d.machine.runs if run.member_id or run.state.name == "ARCHIVING"
    )


@pytest.mark.parametrize("left_ms", [0, -NOW_MS])
def test_a_last_delivery_whose_lock_ended_during_the_restart_is_not_repeated(left_ms: int) -> None:
    d = Driver([(0, 4, 0, 1)], locks=[lock(0, 4, 2, left_ms=left_ms)], delivery_count_limit=2)
    assert d.fetch("[0-4]") == ""
    assert d.machine.next_deadline_ms() == NOW_MS
    assert d.later(0) == 5
    assert d.written == [[(0, 4, 4, 2)]]
    assert (d.where(), d.machine.held_count) == ((5, 5, 5, 0), 0)


def test_a_last_delivery_whose_lock_ended_during_the_restart_becomes_a_dead_letter() -> None:
    d = Driver(locks=[lock(0, 4, 2, left_ms=-1)], delivery_count_limit=2, dead_letter_topic_name="dlq")
    assert d.later(0) == 5
    assert d.states() == "0-4 ARCHIVING×2"
    assert [letter[:4] for letter in d.dead_letters] == [(0, 4, 2, LIMIT_EXCEEDED)]


def test_the_last_deadline_of_equal_deliveries_counts() -> None:
    d = Driver(locks=[lock(0, 4, 1, left_ms=5_000), lock(0, 4, 1, left_ms=9_000)])
    assert d.later(8_999) == 0
    assert d.later(1) == 5


def test_locks_below_the_start_offset_are_dropped() -> None:
    d = Driver(start=3, locks=[lock(0, 1, 1), lock(2, 5, 1)])
    assert (d.states(), d.where()) == ("3-5 AQ×1", (3, 5, 6, 0))


def lengths(d: Driver) -> list[tuple[int, int, int]]:
    """(first offset, time left, length) of each lock."""
    return [(run.first, run.lock_expires_at_ms - d.now_ms, run.lock_duration_ms) for run in d.machine.runs]


def test_two_leader_changes_keep_the_length_and_the_deadline() -> None:
    d = Driver()
    d.fetch("[0-4]", lock_ms=7_200_000)
    d.now_ms += 1000
    second = Driver(locks=d.machine.locks(), now_ms=d.now_ms)
    assert lengths(second) == [(0, 7_199_000, 7_200_000)]
    second.ack("0-4 Ren")
    third = Driver(locks=second.machine.locks(), now_ms=d.now_ms)
    assert lengths(third) == [(0, 7_200_000, 7_200_000)]
    assert third.later(7_199_999) == 0
    assert third.later(1) == 5


def test_a_restored_deadline_is_at_most_the_lock_s_own_length_away() -> None:
    """The clock of the earlier leader was a day ahead."""
    later_ms = NOW_MS + 86_400_000
    d = Driver(locks=[RestoredLock(0, 4, "M1", 1, later_ms, 7_200_000), RestoredLock(5, 9, "M1", 1, later_ms, 1_000)])
    assert lengths(d) == [(0, 7_200_000, 7_200_000), (5, 1_000, 1_000)]


def test_a_hole_before_a_restored_lock_is_read() -> None:
    d = Driver([(10, 14, 0, 1)], locks=[lock(20, 24, 1)])
    assert d.where() == (0, 24, 0, 0)
    assert d.fetch("[0-29]") == "0-9×1, 10-14×2, 15-19×1, 25-29×1"


def test_the_end_of_a_lock_that_is_durable_leaves_none() -> None:
    d = Driver(hold_writes=True)
    d.fetch("[0-4]")
    d.later()
    assert [lock.member_id for lock in d.machine.locks()] == [""]
    d.finish()
    assert d.machine.locks() == []


def test_the_end_of_a_lock_that_is_durable_leaves_the_lock_of_the_next_delivery() -> None:
    d = Driver(hold_writes=True)
    d.fetch("[0-4]")
    d.later()
    assert d.fetch("[0-4]", "M2") == "0-4×2"
    d.finish()
    assert [(lock.member_id, lock.delivery_count) for lock in d.machine.locks()] == [("M2", 2)]


def test_the_end_of_a_last_delivery_survives_a_failed_write() -> None:
    d = Driver(hold_writes=True, delivery_count_limit=1)
    d.fetch("[0-4]")
    d.fetch("[5-9]")
    d.ack("0-4 Acc")
    d.later()
    d.finish(d.pending[1], ok=False)
    assert d.states() == "0-4 AK×1 | 5-9 AR×1"
    later = Driver(locks=d.machine.locks(), delivery_count_limit=1)
    assert later.fetch("[0-9]") == ""
    assert (later.later(0), later.states()) == (5, "0-4 AQ×1 | 5-9 AR×1")
