"""The locks of a share-partition in Redis: they are written before a client learns of them.

locks ──▶ record() ──▶ Redis ──▶ recorded   the client is answered
            │            ├─────▶ not        Redis knows a higher leader epoch: this gateway unloads
            │            └ away: recorded   while the lease holds, no other gateway leads
            └──────────────────▶ not        neither Redis nor the lease keeps other gateways out: the share-partition
                                            stays, with the locks of its holders
"""

import logging
from collections.abc import Sequence

from sharequeue.clock import Clock
from sharequeue.protocol.types import RestoredLock
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.load_registry import Loads
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


class LockRecorder:
    """Writes locks to Redis, and unloads the share-partitions of which Redis knows another leader."""

    def __init__(self, lock_timers: LockStore, loads: Loads, cluster: Cluster, clock: Clock) -> None:
        self._lock_timers = lock_timers
        self._loads = loads
        self._cluster = cluster
        self._clock = clock
        self._timed = loads.led.timed

    def check_may_acquire(self) -> None:
        """Raises: CoordinatorNotAvailable: without Redis and lease, another gateway may hand out the same."""
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
    ) -> bool:
        """Write locks to Redis.

        Args:
            fetch: as in LockWrite.
        Returns: whether the next leader will find them. If not, the client must not learn of them.
        """
        if led.unanswered is not None:
            led.note_answered(ranges)
        if led.fenced or (self._lock_timers.degraded and not self._cluster.lease_holds()):
            return False
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
            return False
        if led.fenced:
            return self._after_unload(led, member_id, ranges)
        return not self._lock_timers.degraded or self._cluster.lease_holds()

    async def still_leads(self, led: LedSharePartition) -> bool:
        """Ask Redis whether no other gateway leads, before memory alone is the reason for a refusal."""
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
            self._lock_timers.write(led.all_locks())

    def may_leave(self, led: LedSharePartition) -> bool:
        """Before a share-partition at rest is unloaded: leave in Redis what the next leader needs, and no more.

        Returns: False: only its memory knows the end of some locks, because neither a state write nor Redis has it.
        """
        if self._lock_timers.degraded:
            return not led.machine.locks()
        if led.lock_entries:
            self._lock_timers.write(led.all_locks())
        return True

    def _after_unload(self, led: LedSharePartition, member_id: str, ranges: Sequence[AcquiredRange]) -> bool:
        """The share-partition was unloaded while its locks were written.

        If it was handed over, the next leader reads Redis only after this write has ended, and finds the locks.
        Otherwise they are released in memory.
        """
        if self._loads.kept_locks.holds(led) and not self._lock_timers.degraded:
            return True
        led.release_in_memory(member_id, ranges, self._clock.now_ms())
        return False


def taken(
    led: LedSharePartition,
    member_id: str,
    ranges: Sequence[AcquiredRange],
    fetch: tuple[str, bytes, int] | None,
) -> LockWrite:
    """The write of ranges that a member acquired or renewed.

    The entry of a lock that has ended stays until a write of all locks: it is of a delivery that the stored state knows
    too, so the next leader does not restore it.
    """
    led.lock_entries += len(ranges)
    if outgrown(led):
        return led.all_locks(fetch)
    machine = led.machine
    locks = [RestoredLock(first_offset, last_offset, member_id, *lock) for first_offset, last_offset, *lock in ranges]
    return LockWrite(led.key, machine.leader_epoch, machine.state_epoch, locks, False, fetch)


def outgrown(led: LedSharePartition) -> bool:
    """Return whether most entries are of locks whose end is durable, so that the next leader does not need them.

    Where the start offset has passed an end that only memory knows, entries stay until that start offset is durable.
    """
    return led.lock_entries > led.most_lock_entries and led.machine.memory_start <= led.stored_start
