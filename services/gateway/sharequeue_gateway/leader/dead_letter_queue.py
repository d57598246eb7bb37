"""Ranges whose dead letters must be written. The leader adds them, delivery/dead_letters.py writes and removes them."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.runs import DeadLetter


@dataclass(eq=False, slots=True)
class PendingLetters:
    """A range that is ARCHIVING, with its failed attempts: their number and the last cause."""

    led: LedSharePartition
    letter: DeadLetter
    attempts: int = 0
    last_error: str = ""
    next_attempt_at_ms: int = 0

    @property
    def records(self) -> int:
        return self.letter.last_offset - self.letter.first_offset + 1


class DeadLetterQueue:
    """The ranges of all share-partitions, in the order of arrival. `news` is set when there is work."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._pending: dict[PendingLetters, None] = {}

    def __iter__(self) -> Iterator[PendingLetters]:
        return iter(self._pending)

    def __contains__(self, pending: PendingLetters) -> bool:
        return pending in self._pending

    def enqueue(self, led: LedSharePartition, letters: Sequence[DeadLetter]) -> None:
        """Add ranges that have just become ARCHIVING, or that a load restored as ARCHIVING."""
        self._pending.update((PendingLetters(led, letter), None) for letter in letters)
        self.news.set()

    def remove(self, pending: PendingLetters) -> None:
        """The dead letters of a range are written."""
        del self._pending[pending]

    def drop_fenced(self) -> None:
        """Drop the ranges of share-partitions that have been unloaded: their next leader writes them."""
        self._pending = {pending: None for pending in self._pending if not pending.led.fenced}

    def records(self) -> int:
        return sum(pending.records for pending in self._pending)

    def stuck(self) -> bool:
        """Return whether the last attempt to write some dead letter failed."""
        return any(pending.attempts for pending in self._pending)

    def failed_of(self, led: LedSharePartition) -> Iterable[PendingLetters]:
        return (pending for pending in self._pending if pending.led is led and pending.attempts)
