"""Lock entries in Redis: all locks are written in their place when there are too many."""

import pytest
from sharequeue_gateway.leader.led_share_partition import LOCK_ENTRY_SLACK, LedSharePartition
from sharequeue_gateway.leader.lock_entries import taken
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.share_partition.acquisition import AcquiredRange

from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from tests.core.share_partition_driver import Driver
from tests.core.states import StateAnnotation


def led_by(driver: Driver) -> LedSharePartition:
    return LedSharePartition(SharePartitionKey("g", "t", 0), driver.machine, "orders", driver.now_ms)


def written(led: LedSharePartition, *names: tuple[int, int]) -> LockWrite:
    """What is written to Redis when a member acquires ranges."""
    return taken(led, "M1", [AcquiredRange(*name, 1, 0, 0) for name in names], None)


def test_too_many_lock_entries_are_noticed() -> None:
    d = Driver()
    led = led_by(d)
    d.fetch("[0-99]")
    d.fetch("[100-199]")
    assert not written(led, *((0, last) for last in range(LOCK_ENTRY_SLACK))).whole
    all_locks = written(led, (1, 1))
    assert all_locks.whole, "it stands in place of what Redis holds"
    assert [lock[:2] for lock in all_locks.locks] == [(0, 99), (100, 199)]
    assert led.lock_entries == 2
    assert not written(led, *((0, last) for last in range(LOCK_ENTRY_SLACK + 2))).whole
    assert written(led, (1, 1)).whole


def test_records_that_wait_for_another_delivery_leave_few_entries() -> None:
    """Each is a run of its own, and their locks have ended: the next leader would read all of their entries."""
    d = Driver(partition_max_record_locks=1000)
    led = led_by(d)
    for first in range(0, 1000, 10):
        offsets = range(first, first + 10)
        d.fetch("".join(f"[{offset}]" for offset in offsets), max=10, bs=1)
        written(led, *((offset, offset) for offset in offsets))
        for offset in offsets:
            d.ack(f"{offset} Rel", delay_ms=3_600_000 + 1000 * offset)
    assert (len(d.machine.runs), d.machine.locks()) == (1000, [])
    assert led.lock_entries <= 3 * LOCK_ENTRY_SLACK


@pytest.mark.parametrize("refused", [False, True])
def test_an_entry_stays_while_only_memory_knows_the_end_of_its_lock(refused: bool) -> None:
    """The start offset passes a record at its limit before that is durable: kill -9 now, and it would come again."""
    d = Driver(delivery_count_limit=1)
    d.fetch("[0]")
    led = led_by(d)
    d.hold_writes = True
    d.later()
    d.fetch("[1]")
    d.ack("1 Acc")
    expiry, accept = d.pending
    d.finish(expiry if refused else accept, ok=not refused)
    assert (d.machine.start_offset, led.stored_start) == (2 - refused, 0)
    many = [(5, last) for last in range(5, 100)]
    assert not written(led, *many).whole
    led.stored_start = d.machine.start_offset
    assert written(led, *many).whole


def test_a_count_that_was_released_in_memory_alone_is_left_to_the_next_leader() -> None:
    """What no client saw is released without a write when its leader stops to lead."""
    d = Driver()
    d.fetch("[0-4]")
    led_by(d).release_in_memory("M1", [AcquiredRange(0, 4, 1, 0, 0)], d.now_ms)
    (lock,) = d.machine.locks()
    assert (lock.first_offset, lock.last_offset, lock.member_id) == (0, 4, "")
    assert (lock.delivery_count, lock.forgiven) == (1, 1)


def test_delayed_records_need_no_entry() -> None:
    """Neither after a leader change, nor in the write of all locks after Redis has lost them."""
    count, later_ms = 10_000, 9_000_000_000_000
    batches = [(offset, offset, 0, 1) for offset in range(1, count + 1)]
    delays = [StateAnnotation(offset, offset, 1, later_ms) for offset in range(1, count + 1)]
    d = Driver(batches, annotations=delays, locks=[RestoredLock(0, 0, "M1", 1, later_ms, 30_000)])
    assert d.machine.delayed_count == count
    led = led_by(d)
    assert [lock[:2] for lock in led.all_locks().locks] == [(0, 0)]
