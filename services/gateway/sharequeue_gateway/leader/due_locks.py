"""Ends due locks. Redis names them, including those of share-partitions that are not loaded; a sweep needs no Redis."""

import asyncio
import logging
from typing import Final

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import DUE_ELSEWHERE, DUE_LOCKS, Every
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.locks.lock_store import LockTimers
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

SWEEP_PAUSE_S: Final = 0.5


class DueLocks:
    """Ends due locks of loaded share-partitions, loads the others, and passes on those that another gateway leads.

    It receives the events of the lock timers (`LockEvents`): `locks_due`, and `led_locks` when Redis lost its locks.
    """

    def __init__(
        self,
        leader: Leader,
        kept_locks: KeptLocks,
        epochs: LeaderEpochs,
        lock_timers: LockTimers,
        metadata: Metadata,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        self._leader = leader
        self._kept_locks = kept_locks
        self._epochs = epochs
        self._lock_timers = lock_timers
        self._metadata = metadata
        self._cluster = cluster
        self._clock = clock
        self._loading: set[SharePartitionKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def sweep(self) -> None:
        """End due locks without Redis. Runs until it is cancelled."""
        async for _ in Every(SWEEP_PAUSE_S):
            await self._leader.expire_all_due()
            for key in self._kept_locks.due():
                self._start_loading(key)

    def locks_due(self, key: SharePartitionKey) -> None:
        """A lock or a delay of a share-partition is due."""
        led = self._leader.loaded(key)
        if led is not None:
            self._end(led)
        elif self._cluster.leads(key):
            self._start_loading(key)
        else:
            background.start(self._tasks, self._lock_timers.hand_over({key: self._cluster.leader_of(key).node_id}))

    def led_locks(self) -> list[LockWrite]:
        """All locks that this gateway knows, to write back when Redis lost them."""
        now_ms = self._clock.now_ms()
        own = [led for led in self._leader.all() if led.machine.runs or led.lock_entries]
        return [lock_entries.whole(led, now_ms) for led in (*own, *self._kept_locks.for_others())]

    def _end(self, led: LedSharePartition) -> None:
        now_ms = self._clock.now_ms()
        self._leader.expire(led, now_ms)

        def written(leads: asyncio.Future[bool]) -> None:
            if not leads.result():
                self._leader.unload(led)

        self._lock_timers.write(lock_entries.ended(led, now_ms)).add_done_callback(written)

    def _start_loading(self, key: SharePartitionKey) -> None:
        if key not in self._loading:
            self._loading.add(key)
            background.start(self._tasks, self._load(key))

    async def _load(self, key: SharePartitionKey) -> None:
        """Load a share-partition with a due lock, so that its records can be delivered again."""
        tried = self._epochs.current
        try:
            await self._metadata.topics_by_id([key.topic_id])
            topic = self._metadata.known_topic_id(key.topic_id)
            loaded = None
            if topic is not None:
                (loaded,) = await self._leader.get(key.group_id, [(topic, key.partition)], initialize=False)
            if isinstance(loaded, LedSharePartition):
                if not loaded.fenced:  # otherwise Redis names it again
                    self._end(loaded)
            elif isinstance(loaded, NotLeaderOrFollower):
                self._kept_locks.discard(key)
                if not await self._epochs.above(tried) and self._cluster.leads(key):
                    await self._lock_timers.put_off(key, DUE_ELSEWHERE.pause_ms)
            elif topic is None or (isinstance(loaded, ApiError) and loaded.definite and not loaded.error.retriable):
                self._kept_locks.discard(key)
                await self._lock_timers.forget_due(key)
            else:
                await self._lock_timers.put_off(key, DUE_LOCKS.pause_ms)
        except ApiError as error:
            log.info(
                "cannot load a due share-partition",
                extra=fields(group_id=key.group_id, cause=error.detail),
            )
            await self._lock_timers.put_off(key, DUE_LOCKS.pause_ms)
        finally:
            self._loading.discard(key)
