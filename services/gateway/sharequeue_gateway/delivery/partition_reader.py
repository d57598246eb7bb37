"""Acquires from one share-partition for one fetch: reads the log, memory first, and passes the batches to the machine.

One read covers contiguous offsets. Offsets that are held or finished are not read: the fetch continues behind them,
until its limits are met or the log ends. Source: KIP-932.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol.messages.leaders import Asked, FetchLimits
from sharequeue.protocol.types import OffsetRange
from sharequeue.slices import Slices
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords
from sharequeue_gateway.delivery.waiting import Life, WaitingFetch
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import LockRecorder
from sharequeue_gateway.record_log.log import OffsetOutOfRange, ReadResult, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.acquisition import Acquisition, can_acquire
from sharequeue_gateway.share_partition.fetch_limits import fitting
from sharequeue_gateway.share_partition.new_records import begin_at_new
from sharequeue_gateway.share_partition.turns import NO_DEADLINE_MS
from sharequeue_http.forms.errors import ApiError

READS_ON: Final = 4
"""The most further reads of the database for a share-partition after a fetch has acquired records from it."""
READ_ON_S: Final = 1.0
"""The longest such read. It is short, because the locks of the acquired records are running."""
READS_TO_COUNT: Final = 16
"""The most reads to count the bytes of a share-partition. If there is more behind them, it counts as enough."""


@dataclass(eq=False)
class PartitionReader:
    """Reads the log for fetches, and acquires the records that it has read."""

    _locks: LockRecorder
    _record_log: RecordLog
    _clock: Clock

    async def too_few(self, taken: Sequence[LedSharePartition], limits: FetchLimits) -> tuple[int, ...]:
        """Count the bytes and records present, acquirable or not. Returns: (): they reach min_bytes or max_records."""
        wanted = bytes_left, records_left = limits.bytes_wanted, limits.max_records
        slices = Slices()
        for led in taken:
            if slices.over():
                await slices.pause()
            offset, committed = led.machine.next_fetch_offset(), led.machine.config.read_committed
            for _ in range(READS_TO_COUNT):
                try:
                    read = self._record_log.read_cached(
                        led.key.topic_id, led.key.partition, offset, bytes_left, records_left, committed
                    ) or await self._read_database(led, offset, bytes_left, records_left)
                except ApiError:
                    return ()
                if read.batches:
                    bytes_left -= sum(batch.size for batch in read.batches)
                    records_left -= read.batches[-1].last_offset + 1 - offset
                    offset = read.batches[-1].last_offset + 1
                    if bytes_left <= 0 or records_left <= 0:
                        return ()
                if not read.batches or offset >= read.end_offset:
                    break
            else:
                return ()
        return wanted[0] - bytes_left, wanted[1] - records_left

    async def acquire(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        led: LedSharePartition,
        max_records: int,
        max_bytes: int,
        now_ms: int,
        *,
        alone: bool,
    ) -> AcquiredRecords | None:
        """Read from the next fetch offset, and acquire. Returns: None if there is nothing to acquire.

        Args:
            alone: the fetch takes from no other share-partition.
        Raises: ApiError: the log cannot be read, or another gateway may hand out the same records.
        """
        machine, key, limits = led.machine, led.key, asked.limits
        committed = machine.config.read_committed
        new_offset = begin_at_new(machine) if machine.waiting_count > machine.delayed_count else None
        fetch_offset, at_new = -1, True
        # once, and again after a read of new records, or of none for this group: the next fetch offset is behind it now
        while at_new or machine.next_fetch_offset() > fetch_offset:
            at_new = new_offset is not None
            fetch_offset = machine.next_fetch_offset() if new_offset is None else new_offset
            new_offset = None
            offsets = machine.reach(fetch_offset, max_records)
            try:
                of_partition = key.topic_id, key.partition, fetch_offset, max_bytes, offsets, committed
                read = self._record_log.read_cached(*of_partition)
                if read is None:
                    read, now_ms = await self._read_while_led(led, fetch_offset, max_bytes, offsets)
            except OffsetOutOfRange as out_of_range:
                machine.move_log_start(out_of_range.log_start_offset, now_ms)
                continue
            over = waiting.life is not Life.OPEN and waiting.over
            if not read.batches or over:
                if at_new and not over and not led.fenced and can_acquire(machine):
                    continue
                return None
            self._locks.check_may_acquire()
            batches, most, size = read.batches, max_records, sum([batch.size for batch in read.batches])
            if size > max_bytes:
                batches, most, size = fitting(batches, fetch_offset, limits.acquire_mode, max_bytes, max_records)
            acquiring = Acquisition(
                machine, asked.member_id, limits.acquire_mode, limits.batch_size, now_ms, limits.lock_duration_ms
            )
            absent = absent_ranges(batches, fetch_offset, key.group_id, committed)
            count = acquiring.acquire(batches, fetch_offset=fetch_offset, max_records=most, absent=absent)
            if count > 0:
                reached, end = batches[-1].last_offset + 1, read.end_offset
                if reached < end or not alone:
                    led.note_unanswered(asked.member_id, acquiring.acquired, now_ms)  # reading on adds to this list
                if reached < end and size < max_bytes:
                    more = structs.replace(limits, max_records=max_records - count, max_bytes=max_bytes - size)
                    batches = [*batches, *await self._read_on(waiting, led, acquiring, more, reached - 1)]
                elif machine.next_fetch_offset() >= end:
                    led.empty_until_ms = machine.next_deadline_ms() or NO_DEADLINE_MS
                return AcquiredRecords(led, acquiring.acquired, batches)
        return None

    async def _read_on(
        self,
        waiting: WaitingFetch,
        led: LedSharePartition,
        acquiring: Acquisition,
        limits: FetchLimits,
        last_offset: int,
    ) -> list[RecordBatch]:
        """Acquire behind `last_offset`, where the last read ended: at a hole in memory, or at records that are held.

        No error is raised: this fetch has records, and the next fetch meets the error again.

        Returns: the batches that were read.
        """
        machine, key, committed = led.machine, led.key, led.machine.config.read_committed
        records_left, bytes_left, reads_left = limits.max_records, limits.max_bytes, READS_ON
        read_on: list[RecordBatch] = []
        while records_left > 0 and bytes_left > 0 and not acquiring.over:
            fetch_offset = machine.next_fetch_offset()
            if fetch_offset <= last_offset:  # these became available during a read, but answers ascend
                break
            offsets = machine.reach(fetch_offset, records_left)
            try:
                of_partition = key.topic_id, key.partition, fetch_offset, bytes_left, offsets, committed
                read = self._record_log.read_cached(*of_partition)
                if read is None:
                    if reads_left <= 0:
                        break
                    reads_left -= 1
                    async with asyncio.timeout(READ_ON_S):
                        read = await self._read_database(led, fetch_offset, bytes_left, offsets)
                    self._locks.check_may_acquire()
            except (ApiError, TimeoutError):
                break
            if led.fenced or waiting.over or not read.batches:
                break
            batches, most, size = fitting(read.batches, fetch_offset, limits.acquire_mode, bytes_left, records_left)
            if size > bytes_left:  # not even the first one fits
                break
            absent = absent_ranges(batches, fetch_offset, key.group_id, committed)
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

    async def _read_while_led(
        self, led: LedSharePartition, offset: int, max_bytes: int, max_records: int
    ) -> tuple[ReadResult[RecordBatch], int]:
        """Read the database. Returns: the batches (none if no fetch may acquire them), and the time after the read."""
        read = await self._read_database(led, offset, max_bytes, max_records)
        if led.fenced or not can_acquire(led.machine):
            read = structs.replace(read, batches=())
        return read, self._clock.now_ms()

    async def _read_database(
        self, led: LedSharePartition, offset: int, max_bytes: int, max_records: int
    ) -> ReadResult[RecordBatch]:
        key, committed = led.key, led.machine.config.read_committed
        led.reading = True  # other fetches are turned away; this one passes on what it leaves when it ends
        try:
            return await self._record_log.read(key.topic_id, key.partition, offset, max_bytes, max_records, committed)
        finally:
            led.reading = False


def absent_ranges(
    batches: Sequence[RecordBatch], fetch_offset: int, group_id: str, committed: bool = False
) -> list[OffsetRange]:
    """Offsets between `fetch_offset` and the end of the batches that hold no record for the group.

    `committed`: records of aborted transactions are not for the group. The outcome of each transaction is known.
    """
    absent: list[OffsetRange] = []
    expected = batches[0].base_offset
    for batch in batches:
        if batch.base_offset > expected:
            absent.append(OffsetRange(expected, batch.base_offset - 1))
        if (batch.for_group is not None and batch.for_group != group_id) or (committed and batch.aborted):
            absent.append(OffsetRange(max(fetch_offset, batch.base_offset), batch.last_offset))
        elif batch.record_count != batch.last_offset - batch.base_offset + 1:
            first_offset = max(fetch_offset, batch.base_offset)
            absent.extend(OffsetRange(first, last) for first, last in batch.absent(first_offset, batch.last_offset))
        expected = batch.last_offset + 1
    return absent
