"""What one fetch gets from one share-partition: reads the log, memory first, and has the machine acquire.

Source: KIP-932, delayed share fetch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import AcquireMode
from sharequeue.service import Clock
from sharequeue_gateway.fetch_limits import records_within, split_bytes, whole_batches_within
from sharequeue_gateway.leader import Leader
from sharequeue_gateway.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log import OffsetOutOfRange, ReadResult, RecordBatch, RecordLog
from sharequeue_gateway.share_partition import AcquiredRange, OffsetRange
from sharequeue_gateway.waiting_fetch import WaitingFetch


class FetchLimits(NamedTuple):
    """What one fetch may take and how long it may wait; all checked and capped."""

    max_records: int
    max_bytes: int
    min_bytes: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int


class Acquisition(NamedTuple):
    """What a fetch acquired from one share-partition, and the record batches that hold it."""

    led: LedSharePartition
    ranges: Sequence[AcquiredRange]
    batches: Sequence[RecordBatch]


class PartitionReader:
    """Reads the log for fetches, and acquires what it has read."""

    def __init__(self, leader: Leader, record_log: RecordLog, clock: Clock) -> None:
        self._leader = leader
        self._record_log = record_log
        self._clock = clock

    async def min_bytes_there(self, taken: Sequence[LedSharePartition], limits: FetchLimits) -> bool:
        """Whether the bytes present, not necessarily acquirable, reach min_bytes."""
        wanted = min(limits.min_bytes, limits.max_bytes)
        for led, max_bytes in zip(taken, split_bytes(limits.max_bytes, len(taken)), strict=True):
            try:
                read = await self._read(led, led.machine.next_fetch_offset(), max_bytes, limits.max_records)
            except ApiError:
                return True
            wanted -= sum(batch.size for batch in read.batches)
            if wanted <= 0:
                return True
        return False

    async def acquire(
        self,
        waiting: WaitingFetch,
        member_id: str,
        led: LedSharePartition,
        limits: FetchLimits,
        max_records: int,
        max_bytes: int,
    ) -> Acquisition | None:
        machine = led.machine
        while True:
            fetch_offset = machine.next_fetch_offset()
            try:
                read = await self._read(led, fetch_offset, max_bytes, max_records)
            except OffsetOutOfRange as out_of_range:
                machine.move_log_start(out_of_range.log_start_offset, self._clock.now_ms())
                if machine.next_fetch_offset() <= fetch_offset:
                    return None
                continue
            now_ms = self._clock.now_ms()
            if led.fenced or waiting.over or not read.batches or not machine.can_acquire(now_ms):
                return None
            self._leader.check_may_acquire()
            batches, most = read.batches, max_records
            if sum(batch.size for batch in batches) > max_bytes:
                if limits.acquire_mode is AcquireMode.RECORD_LIMIT:
                    most = records_within(batches, fetch_offset, max_bytes, max_records)
                else:
                    batches = whole_batches_within(batches, max_bytes)
            acquiring = machine.acquisition(
                member_id, acquire_mode=limits.acquire_mode, batch_size=limits.batch_size, now_ms=now_ms
            )
            absent = absent_ranges(batches, fetch_offset, led.key.group_id)
            if acquiring.acquire(batches, fetch_offset=fetch_offset, max_records=most, absent=absent) > 0:
                led.note_untold(member_id, acquiring.acquired, now_ms)
                return Acquisition(led, acquiring.acquired, batches)
            if machine.next_fetch_offset() <= fetch_offset:  # else what was read holds nothing for this group
                return None

    async def _read(self, led: LedSharePartition, offset: int, max_bytes: int, max_records: int) -> ReadResult:
        topic_id, partition = led.key.topic_id, led.key.partition
        cached = self._record_log.read_cached(topic_id, partition, offset, max_bytes, max_records)
        if cached is not None:
            return cached
        led.reading = True
        try:
            return await self._record_log.read(topic_id, partition, offset, max_bytes, max_records)
        finally:
            led.reading = False


def absent_ranges(batches: Sequence[RecordBatch], fetch_offset: int, group_id: str) -> list[OffsetRange]:
    """Offsets between `fetch_offset` and the end of the batches that hold no record for the group."""
    absent: list[OffsetRange] = []
    expected = batches[0].base_offset
    for batch in batches:
        if batch.base_offset > expected:
            absent.append(OffsetRange(expected, batch.base_offset - 1))
        if batch.for_group is not None and batch.for_group != group_id:
            absent.append(OffsetRange(max(fetch_offset, batch.base_offset), batch.last_offset))
        elif batch.record_count != batch.last_offset - batch.base_offset + 1:
            first_offset = max(fetch_offset, batch.base_offset)
            absent.extend(OffsetRange(first, last) for first, last in batch.absent(first_offset, batch.last_offset))
        expected = batch.last_offset + 1
    return absent
