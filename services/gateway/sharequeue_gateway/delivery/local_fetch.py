"""Fetches of what this gateway leads: acquired, locked in Redis before it is told, given back if nobody is there."""

import asyncio
from collections.abc import Awaitable

from sharequeue.clock import Clock
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.delivery.fetcher import Fetcher, PartitionFault
from sharequeue_gateway.delivery.partition_reader import Acquisition, FetchLimits
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.locks.lock_store import fetch_key


class LocalFetch:
    """Runs fetches over share-partitions that this gateway leads."""

    def __init__(self, leader: Leader, fetcher: Fetcher, repeated: RepeatedFetches, clock: Clock) -> None:
        self._leader = leader
        self._fetcher = fetcher
        self._repeated = repeated
        self._clock = clock

    async def acquire(
        self,
        waiting: WaitingFetch,
        group_id: str,
        member_id: str,
        partitions: Partitions,
        limits: FetchLimits,
        turn: int | None,
        fetch_id: str | None,
    ) -> tuple[list[Acquisition], list[PartitionFault]]:
        """As `Fetcher.fetch`; a repeat of a `fetch_id` gets what the first one still holds, and acquires nothing.

        While nothing keeps another gateway from handing out the same records every partition is a fault.
        """
        try:
            self._leader.check_may_acquire()
        except CoordinatorNotAvailable as away:
            return [], [PartitionFault(topic.name, partition, away) for topic, partition in partitions]
        if fetch_id is None:
            return await self._acquire(waiting, group_id, member_id, partitions, limits, turn, None)
        async with self._repeated.under_way(group_id, member_id, fetch_id, waiting) as name:
            places = {(topic.topic_id, partition) for topic, partition in partitions}
            again = await self._repeated.still_held(name, group_id, member_id, places)
            if again:
                return again, []
            return await self._acquire(waiting, group_id, member_id, partitions, limits, turn, name)

    async def places_of(self, group_id: str, member_id: str, fetch_id: str) -> set[TopicIdPartition]:
        """Where an earlier fetch of this id acquired anything."""
        return await self._repeated.places_of(fetch_key(group_id, member_id, fetch_id))

    async def repeat(self, group_id: str, member_id: str, fetch_id: str, partitions: Partitions) -> list[Acquisition]:
        """What an earlier fetch of this id still holds of these partitions."""
        places = {(topic.topic_id, partition) for topic, partition in partitions}
        return await self._repeated.still_held(fetch_key(group_id, member_id, fetch_id), group_id, member_id, places)

    async def _acquire(
        self,
        waiting: WaitingFetch,
        group_id: str,
        member_id: str,
        partitions: Partitions,
        limits: FetchLimits,
        turn: int | None,
        fetch_name: str | None,
    ) -> tuple[list[Acquisition], list[PartitionFault]]:
        started_ms = self._clock.now_ms()
        acquired, faults = await self._fetcher.fetch(waiting, group_id, member_id, partitions, limits, turn)
        if not waiting.ended:  # else the group may be deleted by now
            metrics.ACQUIRE_SECONDS.observe((self._clock.now_ms() - started_ms) / 1000)
            metrics.FETCH_RATIO.observe(100 * len(acquired) / len(partitions))
        if acquired:
            kept = (
                await asyncio.gather(*(self._record_locks(member_id, item, fetch_name) for item in acquired))
                if len(acquired) > 1
                else [await self._record_locks(member_id, acquired[0], fetch_name)]
            )
            untold = [acquisition for acquisition, told in zip(acquired, kept, strict=True) if not told]
            if untold:
                self._fetcher.give_back(member_id, untold)
                acquired = [acquisition for acquisition, told in zip(acquired, kept, strict=True) if told]
            if waiting.gone() and fetch_name is None:  # under a name it stays held: a repeat gets it, or has got it
                self._fetcher.give_back(member_id, acquired)
                acquired = []
        return acquired, faults

    def _record_locks(self, member_id: str, acquired: Acquisition, fetch_name: str | None) -> Awaitable[bool]:
        fetch = None if fetch_name is None else self._repeated.remember(fetch_name, acquired)
        return self._leader.record_locks(acquired.led, member_id, acquired.ranges, fetch)
