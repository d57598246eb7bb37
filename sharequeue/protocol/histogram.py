"""Histograms of durations that can be added up: each bucket is at most an eighth of its durations wide.

Buckets 0 to 15 are 0 to 15 ms. Above that, each doubling of the duration has eight buckets. Pure.
"""

from typing import Final

_EXACT: Final = 16
_PER_DOUBLING: Final = 8
MAX_MS: Final = 1 << 40
"""About 35 years; a longer duration counts as this."""


def bucket_of(duration_ms: int) -> int:
    """The bucket of a duration; a negative one counts as 0."""
    if duration_ms < _EXACT:
        return max(duration_ms, 0)
    duration_ms = min(duration_ms, MAX_MS)
    shift = duration_ms.bit_length() - 4
    return _EXACT + (shift - 1) * _PER_DOUBLING + (duration_ms >> shift) - _PER_DOUBLING


SHORT_MS: Final = 4096
BUCKETS: Final = tuple(map(bucket_of, range(SHORT_MS)))
"""The buckets of durations below SHORT_MS, to look up: most records are accepted sooner."""


def bounds_of(bucket: int) -> tuple[int, int]:
    """The shortest duration of a bucket, and of the next bucket, in ms."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    doublings, place = divmod(bucket - _EXACT, _PER_DOUBLING)
    shift = doublings + 1
    return (_PER_DOUBLING + place) << shift, (_PER_DOUBLING + place + 1) << shift
