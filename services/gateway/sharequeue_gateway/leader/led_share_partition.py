"""One share-partition as its leader runs it: the pure machine, and who waits for it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import AcknowledgeType, SharePartitionKey
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.share_partition.acquisition import can_acquire
from sharequeue_gateway.share_partition.batch_times import BatchTimes, TimedBatch
from sharequeue_gateway.share_partition.machine import AcknowledgementBatch, AcquiredRange, RestoredLock, SharePartition

LOCK_ENTRY_SLACK: Final = 64
NO_DEADLINE_MS: Final = 1 << 62

_encode: Final = msgspec.json.Encoder().encode


class Waiter(Protocol):
    """A fetch that waits until one of its share-partitions may have something for it."""

    woken: bool

    def wake(self) -> None: ...


class LedSharePartition:
    """A loaded share-partition. `machine` decides; this keeps what only the shell needs.

    `fenced`: this object leads no more; a waiting fetch must load the share-partition again.
    `empty_until_ms`: nothing is to be acquired before this time unless something happens, which sets it to 0.
    `unserved_since_ms`: see `unserved.Unserved`; 0 while nothing is known to be there.
    `served_turn`: see `turns.Served`.
    `reading`: a fetch is reading the log for it; others wait for their turn (Kafka's fetch lock).
    `turned_away`: a fetch found it being read, or its limits used up; whoever changes that wakes the waiting ones.
    """

    __slots__ = (
        "_quiet",
        "batch_times",
        "empty_until_ms",
        "fenced",
        "fetch_lock_ended_s",
        "json_prefix",
        "key",
        "lock_entries",
        "machine",
        "reading",
        "served_turn",
        "topic_name",
        "turned_away",
        "unserved_since_ms",
        "untold",
        "used_at_ms",
        "waiters",
        "writes",
    )

    def __init__(self, key: SharePartitionKey, topic_name: str, machine: SharePartition, now_ms: int) -> None:
        self.key = key
        self.topic_name = topic_name
        self.machine = machine
        self.json_prefix = b'{"topic":%b,"partition":%d,"first_offset":' % (_encode(topic_name), key.partition)
        self.fenced = False
        self.batch_times: BatchTimes | None = None
        self.reading = False
        self.turned_away = False
        self.empty_until_ms = 0
        self.served_turn = 0
        self.unserved_since_ms = 0
        self.fetch_lock_ended_s = 0.0
        self.used_at_ms = now_ms
        self.waiters: dict[Waiter, None] | None = None
        self._quiet: asyncio.Future[None] | None = None
        self.writes = 0
        """Writes on their way to the share coordinator, and of locks to Redis."""
        self.lock_entries: dict[tuple[int, int], None] | None = None
        """Lock entries in Redis, by first and last offset."""
        self.untold: list[tuple[str, Sequence[AcquiredRange]]] | None = None
        """What fetches acquired that still read other partitions: members and ranges. Nobody was told."""

    @property
    def config(self) -> ShareGroupConfig:
        return self.machine.config

    def note_empty(self) -> None:
        """Nothing is to be acquired until a lock or a delay ends."""
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
        """Something may be there: wake the fetch that has waited longest; it wakes the next one if it leaves something."""
        self.empty_until_ms = 0
        for waiter in self.waiters or ():
            if not waiter.woken:
                waiter.wake()
                return

    def wake_after(self, waiter: Waiter) -> None:
        """Wake the next fetch behind `waiter`, which leaves what it was woken for."""
        behind = iter(self.waiters or ())
        if waiter in behind:  # goes on from there
            for following in behind:
                if not following.woken:
                    following.wake()
                    return

    def wake_turned_away(self, now_ms: int) -> None:
        """Records ended to be held: wake who found the limits used up, if there is room now."""
        if self.turned_away and can_acquire(self.machine):
            self.turned_away = False
            self.wake()

    def wake_all(self) -> None:
        if self.waiters is not None:
            for waiter in list(self.waiters):
                waiter.wake()

    def write_ended(self) -> None:
        """A write's outcome is known."""
        self.writes -= 1
        if self._quiet is not None and not self.writes:
            self._quiet.set_result(None)
            self._quiet = None

    def quiet(self) -> asyncio.Future[None]:
        """Ends when no write is on its way any more; there is one now."""
        if self._quiet is None:
            self._quiet = asyncio.get_running_loop().create_future()
        return self._quiet

    def idle_since(self) -> int | None:
        """When it was last used, or None while anybody or anything still needs it."""
        if self.waiters or self.reading or self.writes or self.machine.held_count:
            return None
        return None if self.machine.next_deadline_ms() is not None else self.used_at_ms

    def note_times(self, batches: Sequence[TimedBatch]) -> None:
        """Remember when the records of batches were appended, until they are finished."""
        if self.batch_times is None:
            self.batch_times = BatchTimes()
        self.batch_times.note(batches)

    # Locks that nobody was told of yet

    def note_untold(self, member_id: str, ranges: Sequence[AcquiredRange], now_ms: int) -> None:
        """A fetch acquired these, and does more before it is answered."""
        if self.untold is None:
            self.untold = [(member_id, ranges)]
        else:  # entries of a fetch that got no answer are dropped when their locks expire
            held = [entry for entry in self.untold if entry[1][0].lock_expires_at_ms > now_ms]
            self.untold = [*held, (member_id, ranges)]

    def is_told(self, ranges: Sequence[AcquiredRange]) -> None:
        """The fetch that acquired these is about to be answered."""
        if self.untold is None or (len(self.untold) == 1 and self.untold[0][1] is ranges):
            self.untold = None
        else:
            self.untold = [entry for entry in self.untold if entry[1] is not ranges]

    def take_back_untold(self, now_ms: int) -> None:
        """It is led no more, and whoever leads next is not to take over locks that nobody was told of."""
        for member_id, ranges in self.untold or ():
            self.take_back(member_id, ranges, now_ms)
        self.untold = None

    def take_back(self, member_id: str, ranges: Sequence[AcquiredRange], now_ms: int) -> None:
        """Release in memory alone what is led here no more: nothing of it is written. Delivery counts stay."""
        for first_offset, last_offset, delivery_count, _ in ranges:
            release = AcknowledgementBatch(first_offset, last_offset, (AcknowledgeType.RELEASE,), delivery_count)
            with contextlib.suppress(ApiError):  # the lock ended meanwhile
                for write in self.machine.acknowledge(member_id, [release], now_ms).writes:
                    self.machine.complete_write(write, ok=True, now_ms=now_ms)

    # Locks in Redis

    def note_lock_entries(self, ranges: Sequence[AcquiredRange] | Sequence[RestoredLock]) -> None:
        if self.lock_entries is None:
            self.lock_entries = {}
        for first_offset, last_offset, *_ in ranges:
            self.lock_entries[first_offset, last_offset] = None

    def lock_entries_outgrown(self) -> bool:
        """Whether most entries are of no use any more, as behind a lock that is held long: then write anew what counts."""
        return self.lock_entries is not None and len(self.lock_entries) > LOCK_ENTRY_SLACK + 2 * len(self.machine.runs)

    def take_lock_entries_over(self) -> list[tuple[int, int]]:
        """Entries that the start offset has passed: their locks ended and that is durable."""
        entries = self.lock_entries
        if not entries:
            return []
        start_offset = self.machine.start_offset
        over = []
        for entry in entries:
            if entry[1] >= start_offset:
                break
            over.append(entry)
        for entry in over:
            del entries[entry]
        return over


def may_acquire(led: LedSharePartition, record_log: RecordLog, now_ms: int) -> bool:
    """Whether another fetch would find something, as far as can be told without asking the database.

    Where only the limits are in the way, those who wait count as turned away; where nothing is, that is remembered.
    """
    machine = led.machine
    if led.fenced or led.empty_until_ms > now_ms:
        return False
    if not can_acquire(machine):
        led.turned_away = True
        return False
    next_fetch_offset = machine.next_fetch_offset()
    if next_fetch_offset <= machine.end_offset and not machine.window_empty:
        return True
    try:
        read = record_log.read_cached(led.key.topic_id, led.key.partition, next_fetch_offset, 1, 1)
    except OffsetOutOfRange:  # a fetch moves the start offset
        return True
    if read is None or read.batches:
        return True
    led.note_empty()
    return False
