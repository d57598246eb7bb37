"""What one fetch gets from one share-partition: reads the log, memory first, and has the machine acquire.

A read is of contiguous offsets. What memory knows to be held or finished is not read: behind it the fetch reads on, until
its limits are met or the log ends. Source: KIP-932.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import AcquireMode, OffsetRange
from sharequeue.slices import Slices
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.log import OffsetOutOfRange, ReadResult, RecordBatch, RecordLog
from sharequeue_gateway.share_partition import acquisition
from sharequeue_gateway.share_partition.fetch_limits import fitting
from sharequeue_gateway.share_partition.machine import AcquiredRange

READS_ON: Final = 4
"""How often a fetch that has acquired something reads the database for more of the same share-partition."""
READ_ON_S: Final = 1.0
"""How long such a read may take: the locks of what was acquired run already."""
READS_TO_COUNT: Final = 16
"""How many reads of a share-partition count its bytes; where there is still more there is enough."""


class FetchLimits(NamedTuple):
    """What one fetch may take and how long it may wait; all checked and capped."""

    max_records: int
    max_bytes: int
    min_bytes: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    look_at_ends: bool = True
    """Look at the ends of the log before nothing is answered: another gateway may have appended something just now."""


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
        """Whether the bytes present, not necessarily acquirable, reach min_bytes, or the records max_records."""
        bytes_left, records_left = min(limits.min_bytes, limits.max_bytes), limits.max_records
        slices = Slices()
        for led in taken:
            if slices.over():
                await slices.pause()
            offset = led.machine.next_fetch_offset()
            for _ in range(READS_TO_COUNT):
                try:
                    read = await self._read(led, offset, bytes_left, records_left)
                except ApiError:
                    return True
                if read.batches:
                    bytes_left -= sum(batch.size for batch in read.batches)
                    records_left -= read.batches[-1].last_offset + 1 - offset
                    offset = read.batches[-1].last_offset + 1
                    if bytes_left <= 0 or records_left <= 0:
                        return True
                if not read.batches or offset >= read.log_end_offset:
                    break
            else:
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
            fetch_offset, offsets = machine.next_fetch_offset(), max_records
            if machine.runs and fetch_offset <= machine.end_offset:
                offsets = machine.reach(fetch_offset, max_records)
            try:
                read = await self._read(led, fetch_offset, max_bytes, offsets)
            except OffsetOutOfRange as out_of_range:
                machine.move_log_start(out_of_range.log_start_offset, self._clock.now_ms())
                if machine.next_fetch_offset() <= fetch_offset:
                    return None
                continue
            now_ms = self._clock.now_ms()
            if led.fenced or waiting.over or not read.batches or not acquisition.can_acquire(machine):
                return None
            self._leader.check_may_acquire()
            batches, most, size = fitting(read.batches, fetch_offset, limits.acquire_mode, max_bytes, max_records)
            acquiring = acquisition.Acquisition(machine, member_id, limits.acquire_mode, limits.batch_size, now_ms)
            absent = absent_ranges(batches, fetch_offset, led.key.group_id)
            count = acquiring.acquire(batches, fetch_offset=fetch_offset, max_records=most, absent=absent)
            if count > 0:
                led.note_untold(member_id, acquiring.acquired, now_ms)  # reading on adds to this list
                if batches[-1].last_offset + 1 < read.log_end_offset and size < max_bytes and not acquiring.over:
                    more = limits._replace(max_records=max_records - count, max_bytes=max_bytes - size)
                    batches = [*batches, *await self._read_on(waiting, led, acquiring, more, batches[-1].last_offset)]
                return Acquisition(led, acquiring.acquired, batches)
            if machine.next_fetch_offset() <= fetch_offset:  # else what was read holds nothing for this group
                return None

    async def _read_on(
        self,
        waiting: WaitingFetch,
        led: LedSharePartition,
        acquiring: acquisition.Acquisition,
        limits: FetchLimits,
        last_offset: int,
    ) -> list[RecordBatch]:
        """Acquire what lies behind `last_offset`, up to which was read: memory may have a hole there, or much is held.

        An error here is not raised: this fetch already has records. The next fetch meets it again. Returns: the batches that were read.
        """
        machine, key = led.machine, led.key
        records_left, bytes_left, reads_left = limits.max_records, limits.max_bytes, READS_ON
        read_on: list[RecordBatch] = []
        while records_left > 0 and bytes_left > 0 and not acquiring.over:
            fetch_offset = machine.next_fetch_offset()
            if fetch_offset <= last_offset:  # made available meanwhile; answers are ascending
                break
            offsets = machine.reach(fetch_offset, records_left)
            try:
                read = self._record_log.read_cached(key.topic_id, key.partition, fetch_offset, bytes_left, offsets)
                if read is None:
                    if reads_left <= 0:
                        break
                    reads_left -= 1
                    async with asyncio.timeout(READ_ON_S):
                        read = await self._read(led, fetch_offset, bytes_left, offsets)
                    self._leader.check_may_acquire()
            except (ApiError, TimeoutError):
                break
            if led.fenced or waiting.over or not read.batches:
                break
            batches, most, size = fitting(read.batches, fetch_offset, limits.acquire_mode, bytes_left, records_left)
            if size > bytes_left:  # not even the first one fits
                break
            absent = absent_ranges(batches, fetch_offset, key.group_id)
            count = acquiring.acquire(batches, fetch_offset=fetch_offset, max_records=most, absent=absent)
            last_offset = batches[-1].last_offset
            if count > 0:
                read_on += batches
            elif reads_left <= 0:
                break
            else:
                reads_left -= 1
            records_left -= count
            bytes_left -= size
        return read_on

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
