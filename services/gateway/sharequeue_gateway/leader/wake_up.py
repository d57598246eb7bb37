"""Wakes waiting fetches when a share-partition may have records: one at a time, in the order of arrival.

    records appended, released, locks ended,              a write or a lock ended:
    settings changed                                      the limits may leave room
          │                                                       │
        wake()                                           wake_turned_away(), if `turned_away`
          ▼                                                       ▼
    waiters   first ─── second ─── third        the first that is not woken yet looks again
                │
                ├─ takes everything           note_empty(): fetches pass this share-partition over
                ├─ ends and leaves records    pass_on(leds): the first waiter looks
                └─ waits on, leaves records   pass_on(leds, waiter): the next one behind it looks

A woken fetch must call `pass_on`: if it leaves records, it wakes the next fetch. `unload` wakes all of them, because
each must load the share-partition again or find its new leader.

A stream whose window is full waits in `holders` instead, under its member: a write, a lock that ended or an unload
wakes the streams of the members that held the records.

Three obstacles turn a fetch away: another fetch reads the log for this share-partition (`reading`, Kafka's fetch lock),
the limits leave no room, or its share coordinator takes no writes (`halted`). Each sets `turned_away`. The fetch or the
event that removes the obstacle wakes a waiter.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.share_partition.acquisition import can_acquire
from sharequeue_gateway.share_partition.machine import SharePartition

NO_DEADLINE_MS: Final = 1 << 62


class Waiter(Protocol):
    """A fetch that waits until one of its share-partitions may have records for it."""

    woken: bool

    def wake(self) -> None: ...


class WakeUps:
    """The waiting fetches of one share-partition, and whether a fetch would find records.

    `empty_until_ms`: nothing can be acquired before this time. An event sets it to 0.
    `fenced`: this gateway does not lead it any more; a waiting fetch must load the share-partition again.
    `reading`, `halted`, `turned_away`: see the page of this file.
    `holders`: by member, its streams that wait until it holds less.
    """

    __slots__ = (
        "empty_until_ms",
        "fenced",
        "halted",
        "holders",
        "key",
        "machine",
        "reading",
        "turned_away",
        "waiters",
    )

    def __init__(self, key: SharePartitionKey, machine: SharePartition) -> None:
        self.key = key
        self.machine = machine
        self.fenced = False
        self.reading = False
        self.halted = False
        self.turned_away = False
        self.empty_until_ms = 0
        self.waiters: dict[Waiter, None] | None = None
        self.holders: dict[str, dict[Waiter, None]] | None = None

    def note_empty(self) -> None:
        """Nothing can be acquired until a lock or a delay ends."""
        self.empty_until_ms = self.machine.next_deadline_ms() or NO_DEADLINE_MS

    def add_waiter(self, waiter: Waiter) -> None:
        if self.waiters is None:
            self.waiters = {}
        self.waiters[waiter] = None

    def remove_waiter(self, waiter: Waiter) -> None:
        if self.waiters is not None:
            self.waiters.pop(waiter, None)
            if not self.waiters:
                self.waiters = None

    def wake(self) -> None:
        """There may be records: wake the fetch that has waited longest and is not woken yet."""
        self.empty_until_ms = 0
        for waiter in self.waiters or ():
            if not waiter.woken:
                waiter.wake()
                return

    def wake_after(self, waiter: Waiter) -> None:
        """Wake the next fetch behind `waiter`, which leaves the records that it was woken for."""
        behind = iter(self.waiters or ())
        if waiter in behind:  # moves the iterator behind `waiter`
            for following in behind:
                if not following.woken:
                    following.wake()
                    return

    def wake_turned_away(self) -> None:
        """Records are no longer held: wake a fetch that was turned away, if there is room now."""
        if self.turned_away and can_acquire(self.machine):
            self.turned_away = False
            self.wake()

    def wake_all(self) -> None:
        if self.waiters is not None:
            for waiter in list(self.waiters):
                waiter.wake()
        if self.holders is not None:
            self.wake_holders(list(self.holders))

    def add_holder(self, member_id: str, waiter: Waiter) -> None:
        if self.holders is None:
            self.holders = {}
        self.holders.setdefault(member_id, {})[waiter] = None

    def remove_holder(self, member_id: str, waiter: Waiter) -> None:
        if self.holders is not None:
            waiters = self.holders.get(member_id, {})
            waiters.pop(waiter, None)
            if not waiters:
                self.holders.pop(member_id, None)
            self.holders = self.holders or None

    def wake_holders(self, members: Iterable[str | None]) -> None:
        """Records of these members are not held any more."""
        for member_id in members:
            for waiter in (self.holders or {}).get(member_id or "", ()):
                waiter.wake()

    @contextmanager
    def read_alone(self) -> Iterator[None]:
        """Read the log while other fetches are turned away. The reader passes on what it leaves when it ends."""
        self.reading = True
        try:
            yield
        finally:
            self.reading = False


def may_acquire(led: WakeUps, record_log: RecordLog, now_ms: int) -> bool:
    """Return whether a fetch would find records, judged from memory alone: True if memory cannot tell.

    If limits are in the way, or records cannot be settled now, the waiting fetches count as turned away. If there are
    no records, that is noted. The log is asked about records in the window too if the group is read_committed: before
    its level was changed, it may have received records of a transaction that is still open.
    """
    machine = led.machine
    if led.fenced or led.empty_until_ms > now_ms:
        return False
    if led.halted or not can_acquire(machine):
        led.turned_away = True
        return False
    next_fetch_offset, committed = machine.next_fetch_offset(), machine.config.read_committed
    if next_fetch_offset <= machine.end_offset and not machine.window_empty and not committed:
        return True
    try:
        read = record_log.read_cached(led.key.topic_id, led.key.partition, next_fetch_offset, 1, 1, committed)
    except OffsetOutOfRange:  # a fetch then moves the start offset
        return True
    if read is None or read.batches:
        return True
    led.note_empty()
    return False


def pass_on(leds: Sequence[WakeUps], record_log: RecordLog, now_ms: int, waiter: Waiter | None = None) -> None:
    """Wake the next waiting fetch of each share-partition in which a fetch leaves records.

    Args:
        waiter: the fetch that leaves them, if it waits on. It wakes a fetch behind it, or any that was turned away.
    """
    for led in leds:
        if led.waiters is None or led.empty_until_ms > now_ms:
            continue
        if waiter is not None and len(led.waiters) == 1 and not led.turned_away:
            continue
        if led.reading:
            led.turned_away = True  # the fetch that reads calls `pass_on` later
        elif may_acquire(led, record_log, now_ms):
            if waiter is None or led.turned_away:
                led.turned_away = False
                led.wake()
            else:
                led.wake_after(waiter)
