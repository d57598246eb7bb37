"""Locks that are due end: Redis says when, also for share-partitions that are not loaded; a sweep is there without it."""

import asyncio
import logging

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, NotLeaderOrFollower
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_store import LockTimers

log = logging.getLogger(__name__)

SWEEP_PAUSE_S = 0.5
LOAD_AGAIN_MS = 1_000
NOT_LED_AGAIN_MS = 10_000
"""How long a share-partition that is due, but that another leads as it seems, is left alone: it learns who by then."""


class DueLocks:
    """Ends what is due at the leader, loads what is due and not loaded, and passes on what is due elsewhere."""

    def __init__(
        self,
        leader: Leader,
        epochs: LeaderEpochs,
        lock_timers: LockTimers,
        metadata: Metadata,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        self._leader = leader
        self._epochs = epochs
        self._lock_timers = lock_timers
        self._metadata = metadata
        self._cluster = cluster
        self._clock = clock
        self._loading: set[SharePartitionKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        lock_timers.on_due = self._on_due

    async def sweep(self) -> None:
        """End locks that are due without Redis's help. For ever."""
        while True:
            await asyncio.sleep(SWEEP_PAUSE_S)
            await self._leader.expire_all_due()
            for key in self._leader.loads.given_up_and_due():
                self._start_loading(key)

    def _on_due(self, key: SharePartitionKey) -> None:
        led = self._leader.loaded(key)
        if led is not None:
            self._end(led)
        elif self._cluster.leads(key):
            self._start_loading(key)
        else:
            background.start(self._tasks, self._lock_timers.hand_over({key: self._cluster.leader_of(key).node_id}))

    def _end(self, led: LedSharePartition) -> None:
        self._leader.expire(led)

        def written(leads: asyncio.Future[bool]) -> None:
            if not leads.result():
                self._leader.unload(led)

        self._lock_timers.write(lock_entries.ended(led, self._clock.now_ms())).add_done_callback(written)

    def _start_loading(self, key: SharePartitionKey) -> None:
        if key not in self._loading:
            self._loading.add(key)
            background.start(self._tasks, self._load(key))

    async def _load(self, key: SharePartitionKey) -> None:
        """A lock of a share-partition that nobody fetches from is due: load it, so that its records come back."""
        tried = self._epochs.current
        try:
            await self._metadata.topics_by_id([key.topic_id])
            topic = self._metadata.known_topic_id(key.topic_id)
            loaded = None
            if topic is not None:
                (loaded,) = await self._leader.get(key.group_id, [(topic, key.partition)], initialize=False)
            if isinstance(loaded, LedSharePartition):
                if not loaded.fenced:  # else it is still due, and is named again
                    self._end(loaded)
            elif isinstance(loaded, NotLeaderOrFollower):
                self._leader.loads.forget_given_up(key.__eq__)
                if not await self._epochs.above(tried) and self._cluster.leads(key):
                    await self._lock_timers.put_off(key, NOT_LED_AGAIN_MS)
            elif topic is None or (isinstance(loaded, ApiError) and loaded.definite and not loaded.error.retriable):
                self._leader.loads.forget_given_up(key.__eq__)
                await self._lock_timers.forget_due(key)
            else:
                await self._lock_timers.put_off(key, LOAD_AGAIN_MS)
        except ApiError as error:
            log.info("a lock that is due waits", extra=fields(group_id=key.group_id, cause=error.detail))
            await self._lock_timers.put_off(key, LOAD_AGAIN_MS)
        finally:
            self._loading.discard(key)
