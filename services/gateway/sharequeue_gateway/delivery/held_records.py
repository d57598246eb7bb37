"""Finds what a member holds of some records. A repeated fetch reads them again. A stream asks, waits until it is less,
and reads what its client lacks.

look ──▶ the ranges that the member holds; of `settling`, also those whose settling is under way
wait ──▶ settled or released, and durable ──╮
         their lock ended ──────────────────┼──▶ wakes the member's streams (`WakeUps.holders`) ──▶ look
         the share-partition was unloaded ──╯
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.messages.leaders import HeldRequest
from sharequeue.protocol.types import OffsetsAt, TopicIdPartition
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.delivery.stored_records import batches_between
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_http.forms.errors import ApiError

UNBOUNDED: Final = 1 << 31


@dataclass(eq=False)
class HeldRecords:
    """Looks into the share-partitions that this gateway leads."""

    _leader: Leader
    _metadata: Metadata
    _record_log: RecordLog
    _clock: Clock

    async def look(self, group_id: str, request: HeldRequest) -> tuple[list[AcquiredRecords], list[PartitionFault]]:
        """Return what the member holds of the ranges, by partition; and the partitions that cannot tell."""
        held: list[AcquiredRecords] = []
        by_led, faults = await self._loaded(group_id, request.ranges)
        for led, wanted in by_led:
            self._leader.expire_if_due(led, self._clock.now_ms())
            look = partial(led.machine.held_by, request.member_id, settling=request.settling)
            parts = [part for *_, first, last in wanted for part in look(first, last)]
            if not parts:
                continue
            try:
                batches = await self._read(led, parts) if request.with_records else []
            except ApiError as error:
                faults.append(PartitionFault(led.topic_name, led.key.partition, error))
                continue
            held.append(AcquiredRecords(led, parts, batches))
        return held, faults

    async def wait(self, waiting: WaitingFetch, group_id: str, request: HeldRequest) -> None:
        """Wait until the member holds less than all of the ranges, until `waiting` is woken, or the time is over."""
        by_led, faults = await self._loaded(group_id, request.ranges)
        member_id = request.member_id
        for led, _ in by_led:
            led.add_holder(member_id, waiting)
        try:
            whole = not faults and all(_holds_all(led, member_id, wanted) for led, wanted in by_led)
            if whole and not waiting.over:
                await waiting.wait(request.max_wait_ms / 1000)
        finally:
            for led, _ in by_led:
                led.remove_holder(member_id, waiting)

    async def _loaded(
        self, group_id: str, ranges: Sequence[OffsetsAt]
    ) -> tuple[list[tuple[LedSharePartition, list[OffsetsAt]]], list[PartitionFault]]:
        """The share-partitions of `ranges`, each with its offsets. Those of a deleted topic are left out. Until a
        topic is known, a fault has its id as the name."""
        wanted: dict[TopicIdPartition, list[OffsetsAt]] = {}
        for part in ranges:
            wanted.setdefault(part[:2], []).append(part)
        try:
            await self._metadata.topics_by_id(list({topic_id for topic_id, _ in wanted}))
        except ApiError as error:
            return [], [PartitionFault(*place, error) for place in wanted]
        known = ((self._metadata.known_topic_id(topic_id), partition) for topic_id, partition in wanted)
        there = [(topic, partition) for topic, partition in known if topic is not None]
        loaded = await self._leader.get(group_id, there, initialize=False) if there else []
        by_led, faults = [], []
        for (topic, partition), led in zip(there, loaded, strict=True):
            if isinstance(led, ApiError):
                faults.append(PartitionFault(topic.name, partition, led))
            else:
                by_led.append((led, sorted(wanted[topic.topic_id, partition])))
        return by_led, faults

    async def _read(self, led: LedSharePartition, held: Sequence[AcquiredRange]) -> list[RecordBatch]:
        """The batches with the records of `held`, ascending. Records that left the log are missing."""
        batches: list[RecordBatch] = []
        for first_offset, last_offset, *_ in held:
            first = max(first_offset, batches[-1].last_offset + 1) if batches else first_offset
            place = led.key[1:]
            async for _, some in batches_between(self._record_log, place, first, last_offset, UNBOUNDED, UNBOUNDED):
                batches += some
        return batches


def _holds_all(led: LedSharePartition, member_id: str, wanted: Sequence[OffsetsAt]) -> bool:
    if led.fenced:
        return False
    return all(
        sum(
            held.last_offset - held.first_offset + 1
            for held in led.machine.held_by(member_id, first, last, settling=True)
        )
        == last - first + 1
        for *_, first, last in wanted
    )
