"""Where the first request with an idempotency key appended its records, by the answer that is stored with the key."""

from typing import Final

import msgspec

from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue.protocol.messages.records import ProducedRecord


class _FirstAnswer(msgspec.Struct):
    """Of produceRecords or produceArrow. The answers of other calls have neither."""

    records: list[ProducedRecord] = []
    batches: list[ProducedBatch] = []


_decode: Final = msgspec.json.Decoder(_FirstAnswer).decode


def batches_of(answer: bytes) -> list[ProducedBatch]:
    """The offsets by partition, in the order of each partition's first record. Answers of other calls give none."""
    try:
        found = _decode(answer)
    except msgspec.DecodeError:
        return []
    if found.batches:
        return found.batches
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for record in found.records:
        first.setdefault(record.partition, record.offset)
        last[record.partition] = record.offset
    return [
        ProducedBatch(partition=partition, first_offset=offset, last_offset=last[partition])
        for partition, offset in first.items()
    ]
