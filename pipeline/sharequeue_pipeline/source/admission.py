"""Decides when a micro-batch begins, and what keeps it small. Pure.

It begins as soon as enough records wait, or the last one was long enough ago, as with Kafka's minOffsetsPerTrigger and
maxTriggerDelay; the time counts from the start of the query at first. A group's limit of locks in a partition may end
it before it has maxRecordsPerTrigger.
"""

from typing import Final

FETCH_BYTES: Final = 32 * 1024 * 1024
"""Of one fetch, if a micro-batch has a limit of bytes."""


class Admission:
    """Decides whether a micro-batch may begin. Times are milliseconds of any clock."""

    def __init__(self, min_records: int, max_delay_ms: int) -> None:
        self._min_records = min_records
        self._max_delay_ms = max_delay_ms
        self._since_ms: float | None = None

    @property
    def waits(self) -> bool:
        """Return whether a micro-batch may have to wait at all."""
        return self._min_records > 1

    def admits(self, waiting: int, now_ms: float) -> bool:
        """Return whether a micro-batch begins now. `waiting`: how many records it could read."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if waiting and (waiting >= self._min_records or now_ms - self._since_ms >= self._max_delay_ms):
            self._since_ms = now_ms
            return True
        return False


class Room:
    """Counts what a micro-batch may still take. Without `max_bytes` the records alone are bounded."""

    def __init__(self, records: int, max_bytes: int | None) -> None:
        self.records = records
        self._bytes = max_bytes

    @property
    def left(self) -> bool:
        return self.records > 0 and self._bytes != 0

    @property
    def bytes(self) -> int | None:
        """The most bytes of the next fetch; None: the gateway's own limit."""
        return None if self._bytes is None else min(self._bytes, FETCH_BYTES)

    def take(self, records: int) -> None:
        """A fetch of at most `bytes` has found so many records. How many bytes they have is not known."""
        self.records -= records
        if self._bytes is not None:
            self._bytes -= min(self._bytes, FETCH_BYTES)
