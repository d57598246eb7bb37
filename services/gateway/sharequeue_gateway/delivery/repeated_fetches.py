"""Repeats of a fetch with a `fetch_id`: a repeat gets the records that the first fetch still holds, and acquires
nothing.

Redis has the ranges before the answer is sent, so a repeat also finds them after a crash of the gateway.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from sharequeue.protocol.messages.leaders import Asked, HeldRequest
from sharequeue.protocol.types import OffsetsAt
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.waiting import Event, WaitingFetch
from sharequeue_gateway.locks.lock_store import LockStore, fetch_key

_decode: Final = msgspec.json.Decoder(list[OffsetsAt]).decode


class RepeatedFetches:
    """Keeps and finds the ranges of fetches with a `fetch_id`."""

    def __init__(self, held: HeldRecords, lock_timers: LockStore) -> None:
        self._held = held
        self._lock_timers = lock_timers
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
        return _name(asked), msgspec.json.encode(ranges), led.machine.config.record_lock_duration_ms

    async def remembered(self, group_id: str, member_id: str, fetch_id: str) -> list[OffsetsAt]:
        """The ranges of the answer to a fetch."""
        parts = await self._lock_timers.fetched(fetch_key(group_id, member_id, fetch_id))
        return [kept for part in parts for kept in _decode(part)]

    async def first_answer(self, asked: Asked, partitions: Partitions) -> HeldRequest:
        """Ask for what the member still holds of the first answer in these partitions."""
        kept = await self.remembered(asked.group_id, asked.member_id, asked.fetch_id or "")
        named = {(topic.topic_id, partition) for topic, partition in partitions} if kept else ()
        ranges = [part for part in kept if part[:2] in named]
        return HeldRequest(member_id=asked.member_id, ranges=ranges, with_records=asked.with_records)

    async def still_held(self, asked: Asked, partitions: Partitions) -> list[AcquiredRecords]:
        """Return what the member still holds of the first answer, with its records; counts are unchanged.

        Raises: ApiError: that cannot be learned now; nothing else may be acquired before.
        """
        held, faults = await self._held.look(asked.group_id, await self.first_answer(asked, partitions))
        for fault in faults if not held else ():
            if fault.error.error.retriable:
                raise fault.error
        return held


def _name(asked: Asked) -> str:
    return fetch_key(asked.group_id, asked.member_id, asked.fetch_id or "")
