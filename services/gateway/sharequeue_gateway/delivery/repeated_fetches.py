"""Fetches that carry a fetch_id: a repeat gets what the first one acquired and still holds, and acquires nothing.

The ranges are kept in Redis before the answer is sent, so a repeat finds them after a crash of the gateway too.
"""

import asyncio
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.partition_reader import Acquisition
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_store import LockTimers, fetch_key
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.machine import AcquiredRange

_decode: Final = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
UNBOUNDED: Final = 1 << 31


class RepeatedFetches:
    """Keeps and finds what fetches with a fetch_id acquired."""

    def __init__(
        self, leader: Leader, metadata: Metadata, lock_timers: LockTimers, record_log: RecordLog, clock: Clock
    ) -> None:
        self._leader = leader
        self._metadata = metadata
        self._lock_timers = lock_timers
        self._record_log = record_log
        self._clock = clock
        self._under_way: dict[str, tuple[WaitingFetch, asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def under_way(
        self, group_id: str, member_id: str, fetch_id: str, waiting: WaitingFetch
    ) -> AsyncIterator[str]:
        """Take the place of an earlier fetch of the same id that still waits. Yields: the fetch's name."""
        name = fetch_key(group_id, member_id, fetch_id)
        while (earlier := self._under_way.get(name)) is not None:
            earlier[0].replaced = True
            earlier[0].wake()
            await earlier[1]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[name] = (waiting, done)
        try:
            yield name
        finally:
            del self._under_way[name]
            done.set_result(None)

    def remember(self, name: str, acquired: Acquisition) -> tuple[str, bytes, int]:
        """What to keep in Redis of a fetch's answer: (name, value, time to live in ms)."""
        led, held, _ = acquired
        ranges = [(*led.key[1:], first_offset, last_offset) for first_offset, last_offset, *_ in held]
        return name, msgspec.json.encode(ranges), led.config.record_lock_duration_ms

    async def places_of(self, name: str) -> set[TopicIdPartition]:
        """Where the first answer's ranges lie."""
        return {(topic_id, partition) for topic_id, partition, *_ in await self._kept(name)}

    async def _kept(self, name: str) -> list[tuple[str, int, int, int]]:
        return [kept for part in await self._lock_timers.fetched(name) for kept in _decode(part)]

    async def still_held(
        self, name: str, group_id: str, member_id: str, places: Container[TopicIdPartition] | None = None
    ) -> list[Acquisition]:
        """The ranges of the first answer that the member still holds, with their records; counts are unchanged.

        Args:
            places: look at these alone; others may be led elsewhere.
        """
        by_place: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        for topic_id, partition, first_offset, last_offset in await self._kept(name):
            if places is None or (topic_id, partition) in places:
                by_place.setdefault((topic_id, partition), []).append((first_offset, last_offset))
        if not by_place:
            return []
        await self._metadata.topics_by_id([topic_id for topic_id, _ in by_place])
        acquired = []
        for (topic_id, partition), ranges in by_place.items():
            topic = self._metadata.known_topic_id(topic_id)
            if topic is None:
                continue
            (led,) = await self._leader.get(group_id, [(topic, partition)], initialize=False)
            if isinstance(led, ApiError):
                continue
            self._leader.expire_if_due(led, self._clock.now_ms())
            held: list[AcquiredRange] = []
            for first_offset, last_offset in ranges:
                held += led.machine.held_by(member_id, first_offset, last_offset)
            if held:
                acquired.append(Acquisition(led, held, await self._batches(led, held)))
        return acquired

    async def _batches(self, led: LedSharePartition, held: Sequence[AcquiredRange]) -> list[RecordBatch]:
        batches: list[RecordBatch] = []
        offset, last_offset = held[0].first_offset, held[-1].last_offset
        key = SharePartitionKey(*led.key)
        while offset <= last_offset:
            try:
                read = await self._record_log.read(
                    key.topic_id, key.partition, offset, UNBOUNDED, last_offset - offset + 1
                )
            except OffsetOutOfRange as out_of_range:
                offset = out_of_range.log_start_offset
                continue
            if not read.batches:
                break
            batches += read.batches
            offset = read.batches[-1].last_offset + 1
        return batches
