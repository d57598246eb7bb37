"""The locks of a share-partition in Redis: they are written before a client learns of them.

`LockRecorder.record` writes the locks that a fetch acquired or a member renewed. `taken` makes a write of changes,
`whole` one of all locks. The next write removes the entries of locks that have ended.

    locks ──▶ record() ──▶ Redis ──▶ RECORDED       the client is answered
                │            ├─────▶ LED_ELSEWHERE  Redis knows a higher leader epoch: this gateway unloads
                │            └ away: RECORDED       while the lease holds, no other gateway leads
                └──────────────────▶ UNCERTAIN      neither Redis nor the lease keeps other gateways out
"""

import logging
from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from sharequeue.clock import Clock
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.share_partition.machine import AcquiredRange, RestoredLock
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOCK_ENTRY_SLACK: Final = 64
MOST_OVER: Final = 1000
"""The most entries that one write takes out because they lie below the start offset."""


class Recorded(Enum):
    """The outcome of a write of locks. A client learns only of RECORDED locks."""

    RECORDED = "the next leader finds them"
    LED_ELSEWHERE = "another gateway leads; this one has unloaded the share-partition"
    UNCERTAIN = "another gateway may lead; this one keeps the share-partition, with the locks of its holders"


class Register(Protocol):
    """The share-partitions led here, and their unloading: see `load_registry.Loads`.
    Loading uses this module, so it is not imported."""

    @property
    def led(self) -> LedIndex: ...

    @property
    def kept_locks(self) -> KeptLocks: ...

    def unload(self, led: LedSharePartition) -> None: ...

    def writes_ended(self, led: LedSharePartition) -> None: ...


class LockRecorder:
    """Writes locks to Redis before a client learns of them. Unloads the share-partitions that Redis knows another
    leader of."""

    def __init__(self, lock_timers: LockStore, loads: Register, cluster: Cluster, clock: Clock) -> None:
        self._lock_timers = lock_timers
        self._loads = loads
        self._cluster = cluster
        self._clock = clock
        self._timed = loads.led.timed

    def check_may_acquire(self) -> None:
        """Raises: CoordinatorNotAvailable: another gateway may hand out the same records: Redis and the lease are
        lost."""
        if self._lock_timers.degraded and not self._cluster.lease_holds():
            raise CoordinatorNotAvailable(
                f"the group coordinator does not answer, and Redis {self._lock_timers.trouble}; try again in a moment"
            )

    async def record(
        self,
        led: LedSharePartition,
        member_id: str,
        ranges: Sequence[AcquiredRange],
        fetch: tuple[str, bytes, int] | None = None,
    ) -> Recorded:
        """Write locks to Redis. While Redis is away the lease decides: see `Recorded`.

        Args:
            fetch: as in LockWrite.
        """
        if led.unanswered is not None:
            led.note_answered(ranges)
        if led.fenced:
            return Recorded.LED_ELSEWHERE
        if self._lock_timers.degraded and not self._cluster.lease_holds():
            return Recorded.UNCERTAIN
        self._timed[led] = 0
        led.writes += 1
        try:
            written = await self._lock_timers.write_now(taken(led, member_id, ranges, fetch))
        finally:
            led.writes -= 1
            if led.fenced and not led.writes:
                self._loads.writes_ended(led)
        if not written:
            log.warning("another gateway leads", extra=fields(group_id=led.key.group_id, topic=led.topic_name))
            self._loads.unload(led)
            return Recorded.LED_ELSEWHERE
        if led.fenced:
            return self._after_unload(led, member_id, ranges)
        if self._lock_timers.degraded and not self._cluster.lease_holds():
            return Recorded.UNCERTAIN
        return Recorded.RECORDED

    async def still_leads(self, led: LedSharePartition) -> bool:
        """Return whether no other gateway has taken over, asked of Redis. Call it before memory alone is the reason for
        a refusal."""
        epoch = await self._lock_timers.leader_epoch(led.key)
        if led.fenced:
            return False
        if epoch is None:
            return self._cluster.lease_holds()
        if epoch > led.machine.leader_epoch:
            self._loads.unload(led)
            return False
        return True

    def tidy(self, led: LedSharePartition) -> None:
        """Remove entries of locks whose end is durable. While members fetch, the writes of their locks do that."""
        if len(led.lock_entries or ()) > LOCK_ENTRY_SLACK + led.machine.held_count and not led.fenced:
            over = take_over(led)
            if over:
                machine = led.machine
                self._lock_timers.write(LockWrite(led.key, machine.leader_epoch, machine.state_epoch, (), over, None))

    def may_leave(self, led: LedSharePartition) -> bool:
        """Before a share-partition at rest is unloaded: leave in Redis what the next leader needs, and no more.

        Returns: False: only its memory knows the end of some locks, because neither a state write nor Redis has it.
        """
        if self._lock_timers.degraded:
            return not led.machine.locks()
        if led.lock_entries:
            self._lock_timers.write(whole(led))
        return True

    def _after_unload(self, led: LedSharePartition, member_id: str, ranges: Sequence[AcquiredRange]) -> Recorded:
        """The share-partition was unloaded while its locks were written.

        If it was handed over, the next leader reads Redis only after this write has ended, and finds the locks.
        Otherwise they are released in memory.
        """
        if self._loads.kept_locks.holds(led) and not self._lock_timers.degraded:
            return Recorded.RECORDED
        led.release_in_memory(member_id, ranges, self._clock.now_ms())
        return Recorded.LED_ELSEWHERE


def taken(
    led: LedSharePartition,
    member_id: str,
    ranges: Sequence[AcquiredRange],
    fetch: tuple[str, bytes, int] | None,
) -> LockWrite:
    """The write of ranges that a member acquired or renewed."""
    machine = led.machine
    over = take_over(led, 2 * len(ranges) + 2) if led.lock_entries else []
    names = led.lock_entries = led.lock_entries or {}
    locks = []
    for first_offset, last_offset, *lock in ranges:
        names[first_offset, last_offset] = None
        locks.append(RestoredLock(first_offset, last_offset, member_id, *lock))
    # most entries are over, but a lock that is held long keeps the start offset below them
    if len(names) > LOCK_ENTRY_SLACK + 2 * len(machine.runs) and machine.memory_start <= led.stored_start:
        return whole(led, fetch)
    return LockWrite(led.key, machine.leader_epoch, machine.state_epoch, locks, over, fetch)


def whole(led: LedSharePartition, fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
    """The write of all locks of a share-partition, in place of its entries in Redis."""
    machine = led.machine
    locks = machine.locks()
    led.lock_entries = None
    note(led, locks)
    return LockWrite(led.key, machine.leader_epoch, machine.state_epoch, locks, None, fetch)


def note(led: LedSharePartition, locks: Sequence[AcquiredRange] | Sequence[RestoredLock]) -> None:
    """Note that Redis has entries of these."""
    names = led.lock_entries = led.lock_entries or {}
    for first_offset, last_offset, *_ in locks:
        names[first_offset, last_offset] = None


def take_over(led: LedSharePartition, looks: int = MOST_OVER) -> list[tuple[int, int]]:
    """Take out entries that the next leader does not need: what ended their locks is durable.

    Those below the start offset are the first ones, in most cases. If many stay behind, because a record holds the
    start offset back, `looks` others are looked at too, in turn. Where the start offset has passed an end that only
    memory knows, entries stay until that start offset is durable.
    Returns: at most MOST_OVER + `looks` names.
    """
    names = led.lock_entries or {}
    machine = led.machine
    start_offset = machine.start_offset
    kept_below = machine.memory_start if machine.memory_start > led.stored_start else 0
    over: list[tuple[int, int]] = []
    for name in names:
        if name[1] >= start_offset or name[0] < kept_below or len(over) == MOST_OVER:
            break
        over.append(name)
    for name in over:
        del names[name]
    if len(names) > LOCK_ENTRY_SLACK:
        for name in list(islice(names, looks)):
            del names[name]
            if name[0] >= kept_below and (name[1] < start_offset or not machine.needs_lock(*name)):
                over.append(name)
            else:
                names[name] = None
    return over
