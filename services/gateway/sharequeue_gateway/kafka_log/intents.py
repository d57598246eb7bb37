"""Intents: an append to Kafka that must happen once notes one in PostgreSQL before it begins. Pure."""

import hashlib
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

FAR: Final = 10**13
"""More records than a partition ever has. Multiples of it stand for base offsets that are not known yet."""
_FAR_OFFSET: Final = re.compile(rb'(?<=offset":)\d{14,}')


class Kind(IntEnum):
    """The outcome that is written when the records are in Kafka."""

    KEYED = 1
    LETTERS = 2
    REDRIVEN = 3


class Part(NamedTuple):
    """The records of an intent for one partition. They lie at or behind `end`, the log end before the append, which a
    leader of `leader_epoch` told; -1: none told."""

    partition: int
    end: int
    leader_epoch: int
    records: int


class Intent(NamedTuple):
    """An append that must happen once.

    `subject`: what must not happen twice, as `subject_of` makes it: there is one intent for it at a time.
    `intent_id`: the header `sharequeue.append` of its records.
    `transactional_id`, `producer_id`, `epoch`: the producer that appends. A later life of it fences this one.
    `outcome`: what is written when the records are in Kafka; its form depends on the kind.
    """

    subject: int
    intent_id: str
    transactional_id: str
    producer_id: int
    epoch: int
    topic_id: str
    parts: Sequence[Part]
    kind: Kind
    outcome: bytes


def subject_of(*names: object) -> int:
    """A number for what must not happen twice. Two subjects with one number only wait for each other."""
    name = hashlib.blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(name, "big", signed=True)


def far_offsets(parts: int) -> list[int]:
    """Base offsets that stand for unknown ones in an answer: `with_offsets` replaces them."""
    return [FAR * number for number in range(1, parts + 1)]


def with_offsets(answer: bytes, base_offsets: Sequence[int]) -> bytes:
    """An answer that was made from `far_offsets`, with the offsets of the records."""

    def offset(found: re.Match[bytes]) -> bytes:
        number, index = divmod(int(found[0]), FAR)
        return b"%d" % (base_offsets[number - 1] + index)

    return _FAR_OFFSET.sub(offset, answer)
