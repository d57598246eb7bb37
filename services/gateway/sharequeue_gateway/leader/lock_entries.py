"""The locks of a share-partition in Redis: they are written before a client learns of them.

`LockRecorder.record` writes the locks that a fetch acquired or a member renewed. `taken` makes a write of new locks,
`whole` one of all locks. The entry of a lock that has ended stays until a write of all locks: it is of a delivery that
the stored state knows too, so the next leader does not restore it.

    locks ──▶ record() ──▶ Redis ──▶ RECORDED       the client is answered
                │            ├─────▶ LED_ELSEWHERE  Redis knows a higher leader epoch: this gateway unloads
                │            └ away: RECORDED       while the lease holds, no other gateway leads
                └──────────────────▶ UNCERTAIN      neither Redis nor the lease keeps other gateways out
"""

import logging
from collections.abc import Sequence
from enum import Enum
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
"""So many entries stay, besides two for each run in flight, before all locks are written in their place."""


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
        """Remove entries that nobody needs. While members fetch, the writes of their locks do that."""
        if not led.fenced and outgrown(led):
            self._lock_timers.write(whole(led))

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
    led.lock_entries += len(ranges)
    if outgrown(led):
        return whole(led, fetch)
    machine = led.machine
    locks = [RestoredLock(first_offset, last_offset, member_id, *lock) for first_offset, last_offset, *lock in ranges]
    return LockWrite(led.key, machine.leader_epoch, machine.state_epoch, locks, False, fetch)


def whole(led: LedSharePartition, fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
    """The write of all locks of a share-partition, in place of its entries in Redis."""
    machine = led.machine
    locks = machine.locks()
    led.lock_entries = len(locks)
    return LockWrite(led.key, machine.leader_epoch, machine.state_epoch, locks, True, fetch)


def outgrown(led: LedSharePartition) -> bool:
    """Return whether most entries are of locks whose end is durable, so that the next leader does not need them.

    Where the start offset has passed an end that only memory knows, entries stay until that start offset is durable.
    """
    machine = led.machine
    many = led.lock_entries > LOCK_ENTRY_SLACK + 2 * len(machine.runs)
    return many and machine.memory_start <= led.stored_start
