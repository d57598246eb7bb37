"""Records as the log has them, parsed one by one, for dead letters, redrives and look-ups. A fetch parses none."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from sharequeue.protocol.configs import SOURCE_HEADER
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch, holding

NULL: Final = (b"", b"null")
_encode: Final = msgspec.json.Encoder().encode


class StoredRecord(msgspec.Struct):
    """A record of the log. Raw JSON but for headers; empty if absent."""

    offset: int = -1
    timestamp_ms: int = 0
    key: msgspec.Raw = msgspec.Raw()
    key_base64: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    value_base64: msgspec.Raw = msgspec.Raw()
    headers: dict[str, str] = {}

    def tail(self, timestamp_ms: int, headers: dict[str, str]) -> bytes:
        """The record without its offset, as in PartitionAppend.tails, with another time and other headers."""
        parts = [b',"timestamp_ms":%d' % timestamp_ms]
        for name, plain, base64 in ((b"key", self.key, self.key_base64), (b"value", self.value, self.value_base64)):
            parts.append(b',"%b_base64":%b' % (name, base64) if base64 else b',"%b":%b' % (name, plain or b"null"))
        return b"".join((*parts, b',"headers":' + _encode(headers) if headers else b"", b"}"))

    def same_content(self, other: "StoredRecord") -> bool:
        mine = (self.key, self.key_base64, self.value, self.value_base64)
        return [bytes(part) for part in mine] == [
            bytes(part) for part in (other.key, other.key_base64, other.value, other.value_base64)
        ]

    def source_headers(self) -> dict[str, str]:
        """The headers of the source record that a dead letter carries."""
        return {
            name.removeprefix(SOURCE_HEADER): value
            for name, value in self.headers.items()
            if name.startswith(SOURCE_HEADER)
        }

    @property
    def size(self) -> int:
        return sum(map(len, (self.key, self.key_base64, self.value, self.value_base64, *self.headers.values())))

    @property
    def empty(self) -> bool:
        """Tell whether it has neither key nor value: the dead letter has no copy of its record."""
        return not self.key_base64 and not self.value_base64 and bytes(self.key) in NULL and bytes(self.value) in NULL


_records: Final = msgspec.json.Decoder(list[StoredRecord])


def parsed(records: bytes) -> list[StoredRecord]:
    """Parse records that commas join."""
    return _records.decode(b"[%b]" % records)


def records_in(batches: Sequence[RecordBatch], first_offset: int, last_offset: int) -> list[StoredRecord]:
    """The records of first..last in batches, ascending."""
    parts = [
        batch.slice(max(first_offset, batch.base_offset), min(last_offset, batch.last_offset))
        for batch in holding(batches, first_offset, last_offset)
    ]
    return parsed(b",".join(filter(None, parts)))


async def batches_between(
    record_log: RecordLog, place: TopicIdPartition, first_offset: int, last_offset: int, max_bytes: int, most: int
) -> AsyncIterator[tuple[int, Sequence[RecordBatch]]]:
    """Read first..last in portions of `max_bytes` and `most` records. Records that left the log are missing.

    Yields: the first offset that counts, and the batches from the one that holds it: records below it may have left.
    """
    while first_offset <= last_offset:
        try:
            read = await record_log.read(*place, first_offset, max_bytes, min(most, last_offset - first_offset + 1))
        except OffsetOutOfRange as out_of_range:
            first_offset = out_of_range.log_start_offset
            continue
        if not read.batches:
            return
        yield first_offset, read.batches
        first_offset = read.batches[-1].last_offset + 1
