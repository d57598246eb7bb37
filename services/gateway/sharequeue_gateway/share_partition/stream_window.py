"""The window of a stream: what one member was sent, what of it is still held, and what a reconnect is sent again. Pure.

A stream is a fetch that goes on: each time it acquires records it sends them as one event, under the next position. It
never acquires more than leaves `size` records held. The leaders decide who holds a record; `learn` takes what they say.

    position        1        2          3         4         5
    ranges       [settled] [held 2/5] [settled] [held 3]  [held 4]      held = 2 + 3 + 4
                                        ▲
                            Last-Event-ID: the client has these; a reconnect is sent 4 and 5 again, and then new records

                   acquired(ranges)            written(position)
    room ─▶ fetch ────────────────▶ unwritten ──────────────────▶ written ──▶ learn(held): settled ones leave: room
                                        │                            │
    the client does not come back:      ╰▶ given back: forgiven      ╰▶ released: the delivery counts

A range is of one delivery: its records have one delivery count. If their lock ends and the stream acquires them again,
the later delivery takes the place of the earlier one.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from sharequeue.protocol.types import OffsetsAt, TopicIdPartition

UNKNOWN: Final = 0
"""The position of what a restored stream holds and finds under no other position."""


class SentRange(NamedTuple):
    """Contiguous records of one delivery. `last_offset` is inclusive."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def place(self) -> TopicIdPartition:
        return self.topic_id, self.partition

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def cut(self, first_offset: int, last_offset: int) -> "SentRange":
        """The part of it within first_offset..last_offset; they overlap."""
        return self._replace(
            first_offset=max(self.first_offset, first_offset), last_offset=min(self.last_offset, last_offset)
        )


@dataclass(slots=True, eq=False)
class _Event:
    """One event: the ranges of it that are held, and whether the connection took all of it."""

    ranges: list[SentRange]
    written: bool


class StreamWindow:
    """The events of one stream with something held.

    `size`: the most records that may be held. `position`: of the last event. `held`: how many records are held.
    """

    __slots__ = ("_events", "_learned_at", "held", "position", "size")

    def __init__(self, size: int, position: int = 0) -> None:
        self.size = size
        self._learned_at = 0
        self.position = position
        self.held = 0
        self._events: dict[int, _Event] = {}

    @classmethod
    def restored(
        cls,
        size: int,
        after: int,
        position: int,
        remembered: Mapping[int, Iterable[OffsetsAt]],
        held: Iterable[SentRange],
    ) -> Self:
        """The window of a stream whose gateway is gone, from what the leaders and Redis know.

        Args:
            after: the last position that the client has. position: the highest position that may have been given.
            remembered: by position above `after`, what fetches acquired. held: what the member holds. What `remembered`
                does not name is at position UNKNOWN: every client with an event id has it.
        """
        window = cls(size, max(after, position, *remembered))
        left = _by_place(held)
        for given in sorted(remembered, reverse=True):  # the last delivery of a record counts
            ranges = [part for offsets in remembered[given] for part in _take(left, offsets)]
            if ranges:
                window._add(given, ranges, written=True)
        rest = [part for parts in left.values() for part in parts]
        if rest:
            window._add(UNKNOWN, rest, written=True)
        window._events = dict(sorted(window._events.items()))
        return window

    @property
    def room(self) -> int:
        """Return how many records the next fetch may acquire at most."""
        return max(0, self.size - self.held)

    @property
    def first_held(self) -> int:
        """The position of the first event with something held; one above the last position without any."""
        return next(iter(self._events), self.position + 1)

    def looks(self) -> bool:
        """Return whether to learn what was settled before the next fetch:
        half of the room that there was last time is used."""
        return self.held > self._learned_at and 2 * self.room <= self.size - self._learned_at

    def ranges(self, position: int) -> Sequence[SentRange]:
        """The held ranges of one event."""
        event = self._events.get(position)
        return () if event is None else event.ranges

    def all_ranges(self) -> list[SentRange]:
        """Return what is held, ascending; neighbours are one range, with any delivery counts."""
        merged: list[SentRange] = []
        for part in sorted(part for event in self._events.values() for part in event.ranges):
            last = merged[-1] if merged else None
            if last is not None and last.place == part.place and last.last_offset + 1 == part.first_offset:
                merged[-1] = last._replace(last_offset=part.last_offset)
            else:
                merged.append(part)
        return merged

    # Events

    def acquired(self, ranges: Sequence[SentRange]) -> int:
        """A fetch acquired these for the stream. Returns: the position of their event, which is to be written."""
        if any(part.delivery_count > 1 for part in ranges):
            self._forget(ranges)
        self.position += 1
        self._add(self.position, list(ranges), written=False)
        return self.position

    def written(self, position: int) -> None:
        """The connection took all of an event."""
        event = self._events.get(position)
        if event is not None:
            event.written = True

    def learn(self, held: Iterable[SentRange], answered: Collection[TopicIdPartition]) -> int:
        """Take what the member holds by now.

        Args:
            held: disjoint ranges. answered: the partitions whose leaders said so; the others stay as they are.
        Returns: how many records of this window are not held any more.
        """
        by_place = _by_place(held)
        before = self.held
        for position, event in list(self._events.items()):
            kept: list[SentRange] = []
            for part in event.ranges:
                if part.place not in answered:
                    kept.append(part)
                    continue
                kept += [
                    part.cut(other.first_offset, other.last_offset)
                    for other in _overlapping(by_place.get(part.place, ()), part)
                    if other.delivery_count == part.delivery_count
                ]
            self._replace(position, event, kept)
        self._learned_at = self.held
        return before - self.held

    def resume(self, after: int) -> list[int]:
        """The client is back, and has the events up to `after`. Returns: the positions to send again, ascending."""
        for position, event in self._events.items():
            if position <= after:
                event.written = True
        return [position for position in self._events if position > after]

    def ends(self) -> Iterator[tuple[SentRange, bool]]:
        """The client did not come back: what is to be released, and whether it was written."""
        for event in self._events.values():
            for part in event.ranges:
                yield part, event.written

    # Inside

    def _add(self, position: int, ranges: list[SentRange], *, written: bool) -> None:
        self._events[position] = _Event(ranges, written)
        self.held += sum(part.size for part in ranges)

    def _replace(self, position: int, event: _Event, ranges: list[SentRange]) -> None:
        self.held += sum(part.size for part in ranges) - sum(part.size for part in event.ranges)
        event.ranges = ranges
        if not ranges:
            del self._events[position]

    def _forget(self, ranges: Iterable[SentRange]) -> None:
        """Forget ranges that were delivered again: their earlier deliveries have ended."""
        again = _by_place(ranges)
        for position, event in list(self._events.items()):
            kept = [
                rest for part in event.ranges for rest in _without(part, _overlapping(again.get(part.place, ()), part))
            ]
            self._replace(position, event, kept)


def _by_place(ranges: Iterable[SentRange]) -> dict[TopicIdPartition, list[SentRange]]:
    """Ranges by their partition, ascending."""
    found: dict[TopicIdPartition, list[SentRange]] = {}
    for part in sorted(ranges):
        found.setdefault(part.place, []).append(part)
    return found


def _span(parts: Sequence[SentRange], wanted: SentRange | OffsetsAt) -> slice:
    """Return where those of `parts` (of one partition, ascending and disjoint) are that have an offset of `wanted`."""
    begin = bisect_right(parts, wanted.first_offset, key=lambda part: part.first_offset)
    if begin and parts[begin - 1].last_offset >= wanted.first_offset:
        begin -= 1
    return slice(begin, bisect_right(parts, wanted.last_offset, key=lambda part: part.first_offset))


def _overlapping(parts: Sequence[SentRange], wanted: SentRange) -> Sequence[SentRange]:
    return parts[_span(parts, wanted)]


def _without(part: SentRange, gone: Iterable[SentRange | OffsetsAt]) -> Iterator[SentRange]:
    """Yield what is left of `part` beside `gone`: ascending, disjoint ranges that overlap it."""
    first = part.first_offset
    for other in gone:
        if other.first_offset > first:
            yield part.cut(first, other.first_offset - 1)
        first = other.last_offset + 1
    if first <= part.last_offset:
        yield part.cut(first, part.last_offset)


def _take(left: dict[TopicIdPartition, list[SentRange]], wanted: OffsetsAt) -> list[SentRange]:
    """Take the offsets of `wanted` out of `left`. Returns: what was there."""
    parts = left.get(wanted[:2], [])
    span = _span(parts, wanted)
    taken = parts[span]
    parts[span] = [rest for part in taken for rest in _without(part, (wanted,))]
    return [part.cut(wanted.first_offset, wanted.last_offset) for part in taken]
