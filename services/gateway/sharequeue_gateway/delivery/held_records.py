"""Finds what a member holds of some records. A repeated fetch reads them again. A stream asks, waits until it is less,
and reads what its client lacks.

look ──▶ the ranges that the member holds; of `settling`, also those whose settling is under way
wait ──▶ settled or released, and durable ──╮
         their lock ended ──────────────────┼──▶ wakes the member's streams (`WakeUps.holders`) ──▶ look
         the share-partition was unloaded ──╯
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue_gateway.cluster.metadata import KnownTopic
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.machine import AcquiredRange
from sharequeue_http.forms.errors import ApiError

UNBOUNDED: Final = 1 << 31


class OffsetsOf(NamedTuple):
    """Contiguous offsets of one partition, `last_offset` inclusive."""

    topic: KnownTopic
    partition: int
    first_offset: int
    last_offset: int


@dataclass(eq=False)
class HeldRecords:
    """Looks into the share-partitions that this gateway leads."""

    _leader: Leader
    _record_log: RecordLog
    _clock: Clock

    async def look(
        self, group_id: str, member_id: str, ranges: Sequence[OffsetsOf], *, with_records: bool, settling: bool = False
    ) -> tuple[list[AcquiredRecords], list[PartitionFault]]:
        """Return what the member holds of `ranges`, by partition; and the partitions that cannot tell."""
        held: list[AcquiredRecords] = []
        by_led, faults = await self._loaded(group_id, ranges)
        for led, wanted in by_led:
            self._leader.expire_if_due(led, self._clock.now_ms())
            look = led.machine.still_held_by if settling else led.machine.held_by
            parts = [part for first, last in wanted for part in look(member_id, first, last)]
            if not parts:
                continue
            try:
                batches = await self._read(led, parts) if with_records else []
            except ApiError as error:
                faults.append(PartitionFault(led.topic_name, led.key.partition, error))
                continue
            held.append(AcquiredRecords(led, parts, batches))
        return held, faults

    async def wait(
        self, waiting: WaitingFetch, group_id: str, member_id: str, ranges: Sequence[OffsetsOf], seconds: float
    ) -> None:
        """Wait until the member holds less than all of `ranges`, until `waiting` is woken, or the time is over."""
        by_led, faults = await self._loaded(group_id, ranges)
        for led, _ in by_led:
            led.add_holder(member_id, waiting)
        try:
            whole = not faults and all(_holds_all(led, member_id, wanted) for led, wanted in by_led)
            if whole and not waiting.over:
                await waiting.wait(seconds)
        finally:
            for led, _ in by_led:
                led.remove_holder(member_id, waiting)

    async def _loaded(
        self, group_id: str, ranges: Sequence[OffsetsOf]
    ) -> tuple[list[tuple[LedSharePartition, list[tuple[int, int]]]], list[PartitionFault]]:
        """The share-partitions of `ranges`, each with its offsets."""
        wanted: dict[tuple[KnownTopic, int], list[tuple[int, int]]] = {}
        for topic, partition, first_offset, last_offset in ranges:
            wanted.setdefault((topic, partition), []).append((first_offset, last_offset))
        loaded = await self._leader.get(group_id, list(wanted), initialize=False) if wanted else []
        by_led, faults = [], []
        for ((topic, partition), offsets), led in zip(wanted.items(), loaded, strict=True):
            if isinstance(led, ApiError):
                faults.append(PartitionFault(topic.name, partition, led))
            else:
                by_led.append((led, sorted(offsets)))
        return by_led, faults

    async def _read(self, led: LedSharePartition, held: Sequence[AcquiredRange]) -> list[RecordBatch]:
        """The batches with the records of `held`, ascending. Records that left the log are missing."""
        batches: list[RecordBatch] = []
        for first_offset, last_offset, *_ in held:
            offset = max(first_offset, batches[-1].last_offset + 1) if batches else first_offset
            while offset <= last_offset:
                most = last_offset - offset + 1
                try:
                    read = await self._record_log.read(led.key.topic_id, led.key.partition, offset, UNBOUNDED, most)
                except OffsetOutOfRange as out_of_range:
                    offset = max(out_of_range.log_start_offset, offset + 1)
                    continue
                if not read.batches:
                    break
                batches += read.batches
                offset = read.batches[-1].last_offset + 1
        return batches


def _holds_all(led: LedSharePartition, member_id: str, wanted: Sequence[tuple[int, int]]) -> bool:
    if led.fenced:
        return False
    return all(
        sum(held.last_offset - held.first_offset + 1 for held in led.machine.still_held_by(member_id, first, last))
        == last - first + 1
        for first, last in wanted
    )
