"""Ranges of offsets: joined, written into the offset of a micro-batch, and shared among tasks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class Range(NamedTuple):
    """Offsets of one partition, `last_offset` inclusive, acquired with one delivery count (0: not acquired).

    `topic_id`: of the topic from which they were acquired; another topic may have its name later.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int = 0
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1


class Given(msgspec.Struct):
    """The records that the member of a group has given to the tasks of a micro-batch. `ranges`: as `encode` returns
    them."""

    url: str
    group: str
    ranges: dict[str, dict[str, str]]


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in order. Neighbours of one topic id with the same delivery count become one range."""
    result: list[Range] = []
    for entry in sorted(ranges):
        last = result[-1] if result else None
        if (
            last is not None
            and last[:2] == entry[:2]
            and last.last_offset + 1 == entry.first_offset
            and last.delivery_count == entry.delivery_count
            and last.topic_id == entry.topic_id
        ):
            result[-1] = last._replace(last_offset=entry.last_offset)
        else:
            result.append(entry)
    return result


def divided(ranges: Iterable[Range], others: Iterable[Range]) -> tuple[list[Range], list[Range]]:
    """Cut ranges where others begin and end. Returns: the parts that others cover, and the rest, both in order.

    Both are in any order; the ranges are disjoint, and the others may overlap.
    A part keeps the delivery count and the topic id of its range.
    """
    inside: list[Range] = []
    outside: list[Range] = []
    covers = sorted(others)
    at = 0
    for entry in sorted(ranges):
        first = entry.first_offset
        while at < len(covers) and covers[at][:2] <= entry[:2] and first <= entry.last_offset:
            cover = covers[at]
            if cover[:2] == entry[:2] and cover.first_offset > entry.last_offset:
                break
            if cover[:2] == entry[:2] and cover.last_offset >= first:
                if cover.first_offset > first:
                    outside.append(entry._replace(first_offset=first, last_offset=cover.first_offset - 1))
                last = min(entry.last_offset, cover.last_offset)
                inside.append(entry._replace(first_offset=max(first, cover.first_offset), last_offset=last))
                first = last + 1
                if cover.last_offset > entry.last_offset:
                    break  # it may cover the next range too
            at += 1
        if first <= entry.last_offset:
            outside.append(entry._replace(first_offset=first))
    return inside, outside


def encode(ranges: Sequence[Range]) -> dict[str, dict[str, str]]:
    """Ranges as JSON: `{"orders/4799b8f4-…":{"0":"17-2016:1,3000-3001:2"}}`, by topic and topic id: first offset, last
    offset, delivery count."""
    texts: dict[str, dict[str, list[str]]] = {}
    for topic, partition, first, last, count, topic_id in ranges:
        texts.setdefault(f"{topic}/{topic_id}", {}).setdefault(str(partition), []).append(f"{first}-{last}:{count}")
    return {topic: {name: ",".join(parts) for name, parts in found.items()} for topic, found in texts.items()}


def decode(encoded: dict[str, Any]) -> list[Range]:
    """The inverse of `encode`."""
    ranges = []
    for name, partitions in encoded.items():
        topic, _, topic_id = name.partition("/")
        for partition, text in partitions.items():
            for part in text.split(","):
                offsets, _, count = part.partition(":")
                first, _, last = offsets.partition("-")
                ranges.append(Range(topic, int(partition), int(first), int(last), int(count), topic_id))
    return ranges


def by_topic(places: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Numbers of partitions as JSON: `{"orders":{"0":17}}`."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(places.items()):
        found.setdefault(topic, {})[str(partition)] = number
    return found


def by_place(numbers: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    """The inverse of `by_topic`."""
    return {(topic, int(name)): number for topic, found in numbers.items() for name, number in found.items()}


def split(ranges: Sequence[Range], parts: int) -> list[list[Range]]:
    """Share the offsets among at most `parts` tasks, in order. Sizes differ by at most one offset."""
    total = sum(entry.size for entry in ranges)
    parts = min(parts, total)
    shares: list[list[Range]] = []
    remaining = (entry for entry in ranges if entry.size > 0)
    piece = next(remaining, None)
    for index in range(parts):
        room = total * (index + 1) // parts - total * index // parts
        share: list[Range] = []
        while room and piece is not None:
            taken = min(room, piece.size)
            share.append(piece._replace(last_offset=piece.first_offset + taken - 1))
            room -= taken
            rest = piece._replace(first_offset=piece.first_offset + taken)
            piece = rest if rest.size else next(remaining, None)
        shares.append(share)
    return shares
