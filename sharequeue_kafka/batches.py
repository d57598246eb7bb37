"""The bytes of a Fetch, as records: each codec, control batches and aborted transactions as gaps."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class KafkaRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ReadBatch(NamedTuple):
    """One batch: records may be none of `first_offset` ... `last_offset` (compacted, control, aborted)."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    records: list[KafkaRecord]


def read_batches(raw: bytes, offset: int, aborted: Sequence[tuple[int, int]] = ()) -> Iterator[ReadBatch]:
    """Read whole batches, in order; records below `offset` are left out. A batch that is cut off ends it.

    Args:
        aborted: as a Fetch answers it. Empty reads the records of aborted transactions, too.
    Raises: KafkaError CORRUPT_MESSAGE, not retriable: a codec that is unknown, or a checksum that differs.
    """
    raise NotImplementedError
