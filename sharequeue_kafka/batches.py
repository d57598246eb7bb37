"""The bytes of a Fetch, as records: each codec, control batches and aborted transactions as gaps."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.errors import KafkaError as Fault
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from sharequeue_kafka.errors import KafkaError

HEAD: Final = struct.Struct(">qiib")
"""First offset, bytes that follow, leader epoch, form. Forms before 2 have a checksum in place of the epoch."""
BEFORE_LENGTH: Final = 12
NUMBERS: Final = slice(43, 57)
"""Of a batch: its producer id, the epoch of that, and the sequence of the first record."""
make = tuple.__new__
"""Makes a record in half the time of its class."""


def numbers_of(batch: bytes) -> bytes:
    """Return what names a batch of an idempotent producer: no other one in its log has the same."""
    return batch[NUMBERS]


class KafkaRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ReadBatch(NamedTuple):
    """One batch. Offsets of `first_offset` ... `last_offset` may have no record: compacted, control, aborted."""

    first_offset: int
    last_offset: int
    leader_epoch: int  # -1: written before Kafka 0.11
    records: list[KafkaRecord]


def read_batches(raw: bytes, aborted: Sequence[tuple[int, int]] = ()) -> Iterator[ReadBatch]:
    """Read whole batches, in order. A batch that is cut off ends it.

    Args:
        aborted: as a Fetch answers it. Empty reads the records of aborted transactions, too.
    Raises: KafkaError CORRUPT_MESSAGE: a codec that is unknown, or a checksum that differs.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    open_aborted: set[int] = set()
    batches, at = MemoryRecords(raw), 0
    while (batch := batches.next_batch()) is not None:
        first, size, epoch, form = HEAD.unpack_from(raw, at)
        at += BEFORE_LENGTH + size
        last = batch.next_offset - 1
        while waiting and waiting[0][1] <= last:
            open_aborted.add(waiting.pop(0)[0])
        records = _records(batch)
        if form < 2:
            yield ReadBatch(records[0].offset if records else first, last, -1, records)
            continue
        if batch.is_control_batch:
            if any(ControlRecord.parse(record.key) == ABORT_MARKER for record in records if record.key):
                open_aborted.discard(batch.producer_id)
            records = []
        elif batch.is_transactional and batch.producer_id in open_aborted:
            records = []
        yield ReadBatch(first, last, epoch, records)


def _records(batch: Any) -> list[KafkaRecord]:
    try:
        if not batch.validate_crc():
            raise KafkaError.of(2, "the checksum of a batch differs")
        return [make(KafkaRecord, (each.offset, each.timestamp, each.key, each.value, each.headers)) for each in batch]
    except (Fault, ValueError) as cause:
        raise KafkaError.of(2, f"a batch cannot be read: {cause}") from cause
