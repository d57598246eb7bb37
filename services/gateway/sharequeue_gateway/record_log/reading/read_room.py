"""Bounds the memory of the reads of the database that are under way.

Until its answer is made, a read takes several times the bytes that it reads: the message of the database, the batches,
the answer. Nobody knows beforehand what a record has, so a read counts as the larger one of what it asks for and the
largest batch read so far. One that does not fit waits for those before it, which depend on no client. A single read is
never kept waiting.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from sharequeue_gateway.record_log.log import Batch

READ_AHEAD_BYTES: Final = 1 << 20


class ReadRoom:
    """Lets reads begin in their order, while the bytes of those under way are within `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._largest = 0
        self._first = asyncio.Lock()
        """Held by the read that is the next one to begin."""
        self._left = asyncio.Event()

    async def enter(self, asked: int) -> int:
        """Wait for room. `asked`: the bytes that the read asks for. Returns: those that it counts as, for `leave`."""
        async with self._first:
            while self._bytes and self._bytes + max(asked, self._largest) > self._max_bytes:
                self._left.clear()
                await self._left.wait()
            size = max(asked, self._largest)
            self._bytes += size
        return size

    def leave(self, size: int, largest: int = 0) -> None:
        """A read has ended. `largest`: the bytes of the largest batch that it read."""
        self._bytes -= size
        self._largest = max(self._largest, largest)
        self._left.set()


def ahead_of(max_bytes: int) -> int:
    """Return how many bytes one query reads."""
    return max(READ_AHEAD_BYTES, min(max_bytes, 4 * READ_AHEAD_BYTES))


def within(batches: Sequence[Batch], offset: int, max_bytes: int, max_records: int) -> Sequence[Batch]:
    """The first of these batches, until the limits are met."""
    size = 0
    for index, batch in enumerate(batches):
        size += batch.size
        if size >= max_bytes or batch.last_offset >= offset + max_records - 1:
            return batches[: index + 1]
    return batches
