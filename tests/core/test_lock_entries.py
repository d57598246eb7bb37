"""Lock entries in Redis that may be removed: those below the start offset, and old ones when there are too many."""

from collections.abc import Sequence

from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import LOCK_ENTRY_SLACK
from sharequeue_gateway.locks.lock_writer import LockWrite
from sharequeue_gateway.share_partition.machine import AcquiredRange

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from tests.core.share_partition_driver import Driver


def led_by(driver: Driver) -> LedSharePartition:
    return LedSharePartition(SharePartitionKey("g", "t", 0), "orders", driver.machine, driver.now_ms)


def noted(led: LedSharePartition, *names: tuple[int, int]) -> None:
    lock_entries.note(led, [AcquiredRange(first, last, 1, 0, 0) for first, last in names])


def over(led: LedSharePartition) -> Sequence[tuple[int, int]]:
    return lock_entries.take_over(led)


def written(led: LedSharePartition, name: tuple[int, int]) -> LockWrite:
    """What is written to Redis when a member acquires a range."""
    return lock_entries.taken(led, "M1", [AcquiredRange(*name, 1, 0, 0)], None, Clock())


def test_lock_entries_end_when_the_start_offset_has_passed_them() -> None:
    d = Driver()
    led = led_by(d)
    assert over(led) == []
    for batch in ("[0-4]", "[5-9]", "[10-14]"):
        d.fetch(batch)
    noted(led, (0, 4), (5, 9), (10, 14))
    noted(led, (0, 1), (5, 9))
    d.ack("0-4 Acc")
    assert over(led) == [(0, 4)]
    d.ack("5-11 Acc")
    assert over(led) == [(5, 9)]
    d.ack("12-14 Acc")
    assert over(led) == [(10, 14), (0, 1)]
    assert over(led) == []


def test_too_many_lock_entries_are_noticed() -> None:
    d = Driver()
    led = led_by(d)
    d.fetch("[0-99]")
    d.fetch("[100-199]")
    most = LOCK_ENTRY_SLACK + 2 * 2
    noted(led, *((0, last) for last in range(most)))
    assert written(led, (0, 0)).over == []
    all_locks = written(led, (1, 1))
    assert all_locks.over is None, "it stands in place of what Redis holds"
    assert list(all_locks.entries) == [(0, 99), (100, 199)] == list(led.lock_entries or ())
