"""Divides the limits of a fetch between its share-partitions. Pure. Source: KIP-932, fetch fairness."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from sharequeue.protocol.types import AcquireMode
from sharequeue_gateway.share_partition.runs import LogBatch

T = TypeVar("T")


class SizedBatch(LogBatch, Protocol):
    """`size`: the bytes of its records."""

    @property
    def size(self) -> int: ...
    def size_of(self, first_offset: int, last_offset: int) -> int: ...


B = TypeVar("B", bound=SizedBatch)


def rotate(items: Sequence[T], turn: int) -> list[T]:
    """Rotate left by `turn` modulo the length. Turns below 1 change nothing."""
    if turn < 1 or len(items) < 2:
        return list(items)
    places = turn % len(items)
    return [*items[places:], *items[:places]]


def split_bytes(max_bytes: int, parts: int) -> list[int]:
    """Split bytes evenly. If some are left over, the first parts get one more each."""
    each, rest = divmod(max_bytes, parts)
    return [each + 1] * rest + [each] * (parts - rest)


def fitting(
    batches: Sequence[B], fetch_offset: int, mode: AcquireMode, max_bytes: int, max_records: int
) -> tuple[Sequence[B], int, int]:
    """The part of a read that fits in `max_bytes`, at least one record.

    Returns: the batches to acquire from, the most records, and their bytes: more than `max_bytes` if not even the first
    record fits.
    """
    size = sum([batch.size for batch in batches])
    if size <= max_bytes:
        return batches, max_records, size
    if mode is AcquireMode.RECORD_LIMIT:
        first_offset = max(fetch_offset, batches[0].base_offset)
        most = records_within(batches, fetch_offset, max_bytes, max_records)
        return batches, most, max(max_bytes, batches[0].size_of(first_offset, first_offset))
    batches = whole_batches_within(batches, max_bytes)
    return batches, max_records, max(max_bytes, sum([batch.size for batch in batches]))


def records_within(batches: Sequence[SizedBatch], fetch_offset: int, max_bytes: int, max_records: int) -> int:
    """Return how many offsets from `fetch_offset` on fit in `max_bytes`; at least one, so that a large record still
    comes."""
    left = max_bytes
    count = 0
    for batch in batches:
        first_offset = max(fetch_offset, batch.base_offset)
        last_offset = batch.last_offset
        size = batch.size_of(first_offset, last_offset)
        if size > left:
            low, high = first_offset, last_offset
            while low < high:
                middle = (low + high + 1) // 2
                if batch.size_of(first_offset, middle) <= left:
                    low = middle
                else:
                    high = middle - 1
            fits = low - first_offset + (batch.size_of(first_offset, low) <= left)
            return max(1, min(count + fits, max_records))
        left -= size
        count = last_offset - fetch_offset + 1
        if count >= max_records:
            break
    return max(1, min(count, max_records))


def whole_batches_within(batches: Sequence[B], max_bytes: int) -> Sequence[B]:
    """The leading batches that fit in `max_bytes`; at least one."""
    left = max_bytes
    for index, batch in enumerate(batches):
        left -= batch.size
        if left < 0:
            return batches[: max(1, index)]
    return batches
