"""Kafka's hash of keys, murmur2, which gives a keyed record its partition. Pure."""

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

LONGEST_KNOWN: Final = 256
"""The longest key, in bytes, whose hash is kept in memory: keys may be as large as records."""

LEAST_TOGETHER: Final = 32
"""So many keys of one length are hashed together, on a little-endian machine; fewer are hashed one by one."""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def key_hash(key: bytes) -> int:
    """Kafka's positive murmur2 of `key`. Kafka clients use the same hash, so they choose the same partition for a
    key."""
    return _known_hash(key) if len(key) <= LONGEST_KNOWN else _hash(key)


def key_hashes(keys: Sequence[bytes]) -> list[int]:
    """`key_hash` of each key. Many keys of one length take a tenth of the time of as many calls."""
    if len(keys) < LEAST_TOGETHER or sys.byteorder != "little":
        return list(map(key_hash, keys))
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(len(key), []).append(place)
    hashes = [0] * len(keys)
    for length, of_length in places.items():
        some = [keys[place] for place in of_length]
        together = len(some) >= LEAST_TOGETHER and length <= LONGEST_KNOWN
        found = _hashes(some, length) if together else map(key_hash, some)
        for place, found_hash in zip(of_length, found, strict=True):
            hashes[place] = found_hash
    return hashes


def _hashes(keys: Sequence[bytes], length: int) -> Sequence[int]:
    """The hashes of keys of one length: one long integer has 64 bits for each key, so a step is one operation for all.

    No product of 32-bit numbers is larger than its 64 bits. `& low` keeps the lower half of each.
    """
    count = len(keys)
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    words = -(-length // 4)
    padded = array("I", b"".join(keys) if length % 4 == 0 else b"".join([key.ljust(4 * words, b"\0") for key in keys]))
    value = int.from_bytes((0x9747B28C ^ length).to_bytes(8, "little") * count, "little")
    for word in range(length // 4):
        k = _wide(padded[word::words]) * _M & low
        k ^= k >> 24 & low
        value = (value * _M & low) ^ (k * _M & low)
    if length % 4:
        value = (value ^ _wide(padded[words - 1 :: words])) * _M & low
    value = (value ^ value >> 13 & low) * _M & low
    value ^= value >> 15 & low
    return [each & 0x7FFFFFFF for each in array("Q", value.to_bytes(8 * count, "little"))]


def _wide(words: "array[int]") -> int:
    return int.from_bytes(array("Q", words).tobytes(), "little")


def _hash(key: bytes) -> int:
    length = len(key)
    value = 0x9747B28C ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        k ^= k >> 24
        value = (value * _M & _MASK) ^ (k * _M & _MASK)
    rest = key[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    value ^= value >> 15
    return value & 0x7FFFFFFF


_known_hash: Final = lru_cache(maxsize=65_536)(_hash)
