"""Repeats of a fetch with a `fetch_id`: a repeat gets the records that the first fetch still holds, and acquires
nothing.

Redis has the ranges before the answer is sent, so a repeat also finds them after a crash of the gateway.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.cluster.metadata import Metadata, Partitions
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, Asked
from sharequeue_gateway.delivery.waiting import Event, WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.locks.lock_store import LockTimers, fetch_key
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.machine import AcquiredRange
from sharequeue_http.forms.errors import ApiError

_decode: Final = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
UNBOUNDED: Final = 1 << 31


class RepeatedFetches:
    """Keeps and finds the ranges of fetches with a `fetch_id`."""

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
    async def under_way(self, asked: Asked, waiting: WaitingFetch) -> AsyncIterator[None]:
        """Replace an earlier fetch of the same id that still waits."""
        name = _name(asked)
        while (earlier := self._under_way.get(name)) is not None:
            earlier[0].on(Event.REPEATED)
            await earlier[1]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[name] = (waiting, done)
        try:
            yield
        finally:
            del self._under_way[name]
            done.set_result(None)

    def remember(self, asked: Asked, acquired: AcquiredRecords) -> tuple[str, bytes, int]:
        """The entry of a fetch's answer for Redis: (name, value, time to live in ms)."""
        led = acquired.led
        ranges = [(*led.key[1:], first_offset, last_offset) for first_offset, last_offset, *_ in acquired.ranges]
        return _name(asked), msgspec.json.encode(ranges), led.config.record_lock_duration_ms

    async def places_of(self, asked: Asked) -> set[TopicIdPartition]:
        """The partitions of the first answer."""
        return {(topic_id, partition) for topic_id, partition, *_ in await self._kept(asked)}

    async def remembered(self, group_id: str, member_id: str, fetch_id: str) -> list[tuple[str, int, int, int]]:
        """The ranges of the answer to a fetch, as (topic id, partition, first offset, last offset)."""
        parts = await self._lock_timers.fetched(fetch_key(group_id, member_id, fetch_id))
        return [kept for part in parts for kept in _decode(part)]

    async def _kept(self, asked: Asked) -> list[tuple[str, int, int, int]]:
        return [kept for part in await self._lock_timers.fetched(_name(asked)) for kept in _decode(part)]

    async def still_held(self, asked: Asked, partitions: Partitions) -> list[AcquiredRecords]:
        """The ranges of the first answer that the member still holds, with their records; counts are unchanged.

        Args:
            partitions: only these are looked up; the others may have another leader.
        """
        places = {(topic.topic_id, partition) for topic, partition in partitions}
        by_place: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        for topic_id, partition, first_offset, last_offset in await self._kept(asked):
            if (topic_id, partition) in places:
                by_place.setdefault((topic_id, partition), []).append((first_offset, last_offset))
        if not by_place:
            return []
        await self._metadata.topics_by_id([topic_id for topic_id, _ in by_place])
        acquired = []
        for (topic_id, partition), ranges in by_place.items():
            topic = self._metadata.known_topic_id(topic_id)
            if topic is None:
                continue
            (led,) = await self._leader.get(asked.group_id, [(topic, partition)], initialize=False)
            if isinstance(led, ApiError):
                continue
            self._leader.expire_if_due(led, self._clock.now_ms())
            held: list[AcquiredRange] = []
            for first_offset, last_offset in ranges:
                held += led.machine.held_by(asked.member_id, first_offset, last_offset)
            if held:
                acquired.append(AcquiredRecords(led, held, await self._batches(led, held)))
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


def _name(asked: Asked) -> str:
    return fetch_key(asked.group_id, asked.member_id, asked.fetch_id or "")
