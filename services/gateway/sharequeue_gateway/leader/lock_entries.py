"""What is written to Redis of a share-partition's locks: those just taken or ended, or all there are."""

from collections.abc import Sequence
from typing import Final

from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_writer import LockEntry, LockWrite
from sharequeue_gateway.share_partition.machine import AcquiredRange

REMIND_AGAIN_MS: Final = 30_000


def taken(
    led: LedSharePartition,
    member_id: str,
    ranges: Sequence[AcquiredRange],
    now_ms: int,
    fetch: tuple[str, bytes, int] | None,
) -> LockWrite:
    """Ranges that a member acquired or renewed; `fetch` as in LockWrite."""
    over = led.take_lock_entries_over()
    led.note_lock_entries(ranges)
    if led.lock_entries_outgrown():
        return whole(led, now_ms, fetch)
    machine = led.machine
    entries = {
        (first, last): LockEntry(member_id, delivery_count, deadline_ms, machine.state_epoch)
        for first, last, delivery_count, deadline_ms in ranges
    }
    return LockWrite(led.key, machine.leader_epoch, _remind_at_ms(led, now_ms), entries, over, fetch)


def ended(led: LedSharePartition, now_ms: int) -> LockWrite:
    """Locks that are over, and when the next one is due."""
    over = led.take_lock_entries_over()
    return LockWrite(led.key, led.machine.leader_epoch, _remind_at_ms(led, now_ms), {}, over, None)


def whole(led: LedSharePartition, now_ms: int, fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
    """All that Redis should hold of a share-partition's locks, in place of what it holds."""
    machine = led.machine
    locks = machine.locks()
    led.lock_entries = None
    led.note_lock_entries(locks)
    entries = {
        (first, last): LockEntry(member_id, delivery_count, deadline_ms, machine.state_epoch)
        for first, last, member_id, delivery_count, deadline_ms in locks
    }
    return LockWrite(led.key, machine.leader_epoch, _remind_at_ms(led, now_ms), entries, None, fetch)


def _remind_at_ms(led: LedSharePartition, now_ms: int) -> int | None:
    deadline_ms = led.machine.next_deadline_ms()
    if deadline_ms is None and led.machine.held_count:
        return now_ms + REMIND_AGAIN_MS  # dead letters are not written yet
    return deadline_ms
