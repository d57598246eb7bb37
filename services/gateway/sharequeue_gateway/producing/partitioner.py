"""Kafka's hash of keys, murmur2, which gives a keyed record its partition. Pure."""

from functools import lru_cache
from typing import Final

LONGEST_KNOWN: Final = 256
"""The longest key, in bytes, whose hash is kept in memory: keys may be as large as records."""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def key_hash(key: bytes) -> int:
    """Kafka's positive murmur2 of `key`. Kafka clients use the same hash, so they choose the same partition for a
    key."""
    return _known_hash(key) if len(key) <= LONGEST_KNOWN else _hash(key)


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
