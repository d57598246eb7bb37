"""Buckets of durations: every duration has one, and none is wider than an eighth of its lower bound."""

from hypothesis import example, given
from hypothesis import strategies as st

from sharequeue.protocol.histogram import MAX_MS, bounds_of, bucket_of


@given(st.integers(0, MAX_MS))
@example(15)
@example(16)
@example(17)
@example(MAX_MS)
def test_a_duration_lies_within_a_narrow_bucket(duration_ms: int) -> None:
    first, behind = bounds_of(bucket_of(duration_ms))
    assert first <= duration_ms < behind
    assert behind - first <= max(1, first / 8)


def test_buckets_have_no_gaps() -> None:
    behind = 0
    for bucket in range(bucket_of(MAX_MS) + 1):
        first, following = bounds_of(bucket)
        assert first == behind
        behind = following


def test_a_duration_out_of_range_counts_in_the_nearest_bucket() -> None:
    assert bucket_of(-5) == bucket_of(0)
    assert bucket_of(MAX_MS * 9) == bucket_of(MAX_MS)
