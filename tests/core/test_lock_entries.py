"""Lock entries in Redis that may be removed: those below the start offset, and old ones when there are too many."""

from collections.abc import Sequence

import pytest
from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import LOCK_ENTRY_SLACK
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.share_partition.machine import AcquiredRange, RestoredLock

from sharequeue.protocol.types import SharePartitionKey
from tests.core.share_partition_driver import Driver
from tests.core.states import StateAnnotation


def led_by(driver: Driver) -> LedSharePartition:
    return LedSharePartition(SharePartitionKey("g", "t", 0), "orders", driver.machine, driver.now_ms)


def noted(led: LedSharePartition, *names: tuple[int, int]) -> None:
    lock_entries.note(led, [AcquiredRange(first, last, 1, 0, 0) for first, last in names])


def over(led: LedSharePartition) -> Sequence[tuple[int, int]]:
    return lock_entries.take_over(led)


def written(led: LedSharePartition, name: tuple[int, int]) -> LockWrite:
    """What is written to Redis when a member acquires a range."""
    return lock_entries.taken(led, "M1", [AcquiredRange(*name, 1, 0, 0)], None)


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
    assert [lock[:2] for lock in all_locks.locks] == [(0, 99), (100, 199)] == list(led.lock_entries or ())


def held_back(count: int) -> tuple[Driver, LedSharePartition]:
    """A record that is held at the start offset, and `count` more, each with an entry of its own."""
    d = Driver(partition_max_record_locks=10_000)
    d.fetch("[0]")
    d.fetch("".join(f"[{offset}]" for offset in range(1, count + 1)), max=count, bs=1)
    led = led_by(d)
    noted(led, *((offset, offset) for offset in range(count + 1)))
    return d, led


def test_an_entry_leaves_when_the_end_of_its_lock_is_durable() -> None:
    """A delayed record holds the start offset back for hours: its neighbours, and it itself, need no lock."""
    d, led = held_back(200)
    assert over(led) == []
    d.ack("0-99 Rel", delay_ms=3_600_000)
    d.hold_writes = True
    d.ack("100-149 Acc")
    assert set(over(led)) == {(offset, offset) for offset in range(100)}
    assert [(lock.first_offset, lock.member_id) for lock in d.machine.locks()] == [(o, "M1") for o in range(100, 201)]
    d.finish()
    assert set(over(led)) == {(offset, offset) for offset in range(100, 150)}
    assert len(d.machine.locks()) == 51


def test_an_entry_whose_lock_memory_ended_leaves_when_that_is_durable() -> None:
    d, led = held_back(200)
    d.hold_writes = True
    d.later()
    assert over(led) == []
    assert d.fetch("[0]", max=1) == "0-0×2"
    d.finish()
    assert set(over(led)) == {(offset, offset) for offset in range(1, 201)}
    assert [(lock.first_offset, lock.delivery_count) for lock in d.machine.locks()] == [(0, 2)]


def test_each_write_looks_at_a_few_entries_in_turn() -> None:
    d, led = held_back(200)
    d.ack("101-200 Acc")
    looked = [written(led, (0, 0)).over or [] for _ in range(80)]
    assert max(map(len, looked)) <= 4
    assert sorted(name for names in looked for name in names)[:100] == [(offset, offset) for offset in range(101, 201)]


@pytest.mark.parametrize("refused", [False, True])
def test_an_entry_stays_while_only_memory_knows_the_end_of_its_lock(refused: bool) -> None:
    """The start offset passes a record at its limit before that is durable: kill -9 now, and it would come again."""
    d = Driver(delivery_count_limit=1)
    d.fetch("[0]")
    led = led_by(d)
    noted(led, (0, 0))
    d.hold_writes = True
    d.later()
    d.fetch("[1]")
    noted(led, (1, 1))
    d.ack("1 Acc")
    expiry, accept = d.pending
    d.finish(expiry if refused else accept, ok=not refused)
    assert (d.machine.start_offset, led.stored_start) == (2 - refused, 0)
    assert over(led) == []
    noted(led, *((5, last) for last in range(5, 100)))
    assert (0, 0) not in (written(led, (2, 2)).over or [(0, 0)]), "nor are all entries written anew"
    led.stored_start = d.machine.start_offset
    assert (0, 0) in over(led)


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
    assert [lock[:2] for lock in lock_entries.whole(led).locks] == [(0, 0)] == list(led.lock_entries or ())
