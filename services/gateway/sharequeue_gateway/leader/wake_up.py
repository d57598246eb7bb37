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

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, Final, Protocol

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.share_partition.acquisition import can_acquire
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.turns import NO_DEADLINE_MS

_arrivals: Final = count()


class Waiter(Protocol):
    """A fetch that waits until one of its share-partitions may have records for it."""

    woken: bool

    def wake(self) -> None: ...


@dataclass(eq=False, slots=True, kw_only=True)
class Awaited:
    """Something that fetches wait for.

    `waiters`: the fetches, with their order of arrival. `fenced`: it is not led here any more, or an index that has
    ended; a waiting fetch must find its share-partitions again.
    """

    fenced: bool = False
    waiters: dict[Waiter, int] | None = None

    def add_waiter(self, waiter: Waiter) -> None:
        if self.waiters is None:
            self.waiters = {}
        self.waiters[waiter] = next(_arrivals)

    def remove_waiter(self, waiter: Waiter) -> None:
        if self.waiters is not None:
            self.waiters.pop(waiter, None)
            if not self.waiters:
                self.waiters = None


@dataclass(eq=False, slots=True)
class LedTopic(Awaited):
    """All share-partitions of one group and topic, in order, and those of them that may have records, in turn. Fetches
    of the whole topic wait here for all of them. It ends when one is unloaded or comes.

    `in_turn`: served turn and partition of those that may have records. No time adds to it: when locks and delays end,
    the sweep of the leader wakes their share-partition.
    `used_at_ms`: when a fetch last asked for all of them.
    """

    members: Sequence[Any]
    in_turn: list[tuple[int, int]] = field(default_factory=list)
    used_at_ms: int = 0

    def __post_init__(self) -> None:
        for led in self.members:
            led.of_topic, led.place = self, None
            self.note(led)

    def note(self, led: "WakeUps") -> None:
        """Note that its `empty_until_ms` or `served_turn` may have changed."""
        place = None if led.empty_until_ms else (led.served_turn, led.key.partition)
        if place != led.place:
            if led.place is not None:
                del self.in_turn[bisect_left(self.in_turn, led.place)]
            if place is not None:
                insort(self.in_turn, place)
            led.place = place

    def end(self) -> None:
        self.fenced = True
        for led in self.members:
            led.of_topic = None
            led.used_at_ms = max(led.used_at_ms, self.used_at_ms)
        for waiter in list(self.waiters or ()):
            waiter.wake()


@dataclass(eq=False, slots=True)
class WakeUps(Awaited):
    """The waiting fetches of one share-partition, and whether a fetch would find records.

    `empty_until_ms`: nothing can be acquired before this time. An event sets it to 0.
    `of_topic`: the index of its topic, if there is one. Whoever changes `empty_until_ms` or `served_turn` (see
    `turns.in_turn`) tells it; `place` is its place there.
    `reading`, `halted`, `turned_away`: see the page of this file.
    `holders`: by member, its streams that wait until it holds less.
    """

    key: SharePartitionKey
    machine: SharePartition
    _: KW_ONLY
    reading: bool = False
    halted: bool = False
    turned_away: bool = False
    empty_until_ms: int = 0
    served_turn: int = 0
    place: tuple[int, int] | None = None
    of_topic: LedTopic | None = None
    holders: dict[str, dict[Waiter, None]] | None = None

    def note_empty(self) -> None:
        """Nothing can be acquired until a lock or a delay ends."""
        self.empty_until_ms = self.machine.next_deadline_ms() or NO_DEADLINE_MS
        if self.of_topic is not None:
            self.of_topic.note(self)

    def awaiting(self) -> Collection[Waiter]:
        """The fetches that wait for it, or for its whole topic, in the order of arrival."""
        own, of_topic = self.waiters, None if self.of_topic is None else self.of_topic.waiters
        if not own or not of_topic:
            return own or of_topic or ()
        arrivals = own | of_topic
        return sorted(arrivals, key=arrivals.__getitem__)

    def wake(self) -> None:
        """There may be records: wake the fetch that has waited longest and is not woken yet."""
        self.empty_until_ms = 0
        if self.of_topic is not None:
            self.of_topic.note(self)
        for waiter in self.waiters or () if self.of_topic is None else self.awaiting():
            if not waiter.woken:
                waiter.wake()
                return

    def wake_after(self, waiter: Waiter) -> None:
        """Wake the next fetch behind `waiter`, which leaves the records that it was woken for."""
        behind = iter(self.awaiting())
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
        for waiter in list(self.awaiting()):
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
    if next_fetch_offset <= machine.end_offset and machine.runs and not committed:
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
        waiters = led.awaiting()
        if not waiters or led.empty_until_ms > now_ms:
            continue
        if waiter is not None and len(waiters) == 1 and not led.turned_away:
            continue
        if led.reading:
            led.turned_away = True  # the fetch that reads calls `pass_on` later
        elif may_acquire(led, record_log, now_ms):
            if waiter is None or led.turned_away:
                led.turned_away = False
                led.wake()
            else:
                led.wake_after(waiter)
