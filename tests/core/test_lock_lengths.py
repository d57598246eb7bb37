"""A lock has a length of its own: from its group's setting, or from the fetch that acquired it."""

from sharequeue.protocol.types import RestoredLock
from tests.core.share_partition_driver import Driver

TWO_HOURS_MS = 7_200_000


def lengths(d: Driver) -> list[tuple[int, int, int]]:
    """(first offset, time left, length) of each lock."""
    return [
        (run.first, run.lock_expires_at_ms - d.now_ms, run.lock_duration_ms)
        for run in d.machine.runs
        if run.member_id is not None
    ]


def next_leader(d: Driver) -> Driver:
    """A leader that finds nothing durable, but the locks of this one."""
    return Driver(locks=d.machine.locks(), now_ms=d.now_ms)


def test_a_fetch_may_bring_the_length_of_its_locks() -> None:
    d = Driver()
    d.fetch("[0-4]", lock_ms=TWO_HOURS_MS)
    d.fetch("[5-9]")
    assert lengths(d) == [(0, TWO_HOURS_MS, TWO_HOURS_MS), (5, 30_000, 30_000)]
    assert d.later(30_001) == 5
    assert d.states() == "0-4 AQ×1 | 5-9 AV×1"
    assert d.later(TWO_HOURS_MS) == 5


def test_a_redelivery_has_the_length_of_its_own_fetch() -> None:
    d = Driver()
    d.fetch("[0-4]", lock_ms=TWO_HOURS_MS)
    d.ack("0-4 Rel")
    d.fetch("[0-4]")
    assert lengths(d) == [(0, 30_000, 30_000)]


def test_a_renewal_starts_the_lock_s_own_length_again() -> None:
    d = Driver()
    d.fetch("[0-4]", lock_ms=TWO_HOURS_MS)
    d.later(60_000)
    d.configure(record_lock_duration_ms=10_000)
    acknowledged = d.ack("1-2 Ren")
    assert [lock.lock_duration_ms for lock in acknowledged.renewed] == [TWO_HOURS_MS]
    left_ms = TWO_HOURS_MS - 60_000
    assert lengths(d) == [(0, left_ms, TWO_HOURS_MS), (1, TWO_HOURS_MS, TWO_HOURS_MS), (3, left_ms, TWO_HOURS_MS)]


def test_a_renewal_may_bring_another_length_which_the_lock_keeps() -> None:
    d = Driver()
    d.fetch("[0-4]")
    d.ack("0-4 Ren", lock_ms=5_000)
    assert lengths(d) == [(0, 5_000, 5_000)]
    d.ack("0-4 Ren")
    assert lengths(d) == [(0, 5_000, 5_000)]
    assert d.later(5_000) == 5


def test_two_leader_changes_keep_the_length_and_the_deadline() -> None:
    d = Driver()
    d.fetch("[0-4]", lock_ms=TWO_HOURS_MS)
    d.now_ms += 1000
    second = next_leader(d)
    assert lengths(second) == [(0, TWO_HOURS_MS - 1000, TWO_HOURS_MS)]
    second.ack("0-4 Ren")
    third = next_leader(second)
    assert lengths(third) == [(0, TWO_HOURS_MS, TWO_HOURS_MS)]
    assert third.later(TWO_HOURS_MS - 1) == 0
    assert third.later(1) == 5


def test_a_restored_deadline_is_at_most_the_lock_s_own_length_away() -> None:
    """The clock of the earlier leader was a day ahead."""
    later_ms = 1_000_000 + 86_400_000
    locks = [RestoredLock(0, 4, "M1", 1, later_ms, TWO_HOURS_MS), RestoredLock(5, 9, "M1", 1, later_ms, 1_000)]
    d = Driver(locks=locks)
    assert lengths(d) == [(0, TWO_HOURS_MS, TWO_HOURS_MS), (5, 1_000, 1_000)]
