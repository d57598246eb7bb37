"""The cache of recent record batches: bounded in bytes, true about the ends, never a hole in what it answers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.record_log.reading.cache import OVERHEAD, BatchCache, KnownLog
from sharequeue_gateway.record_log.record_batch import RecordBatch

from tests.storage.record_logs import Heard

PLACE = ("t", 0)


def batch(base: int, count: int = 10, size: int = 100) -> RecordBatch:
    head = len(b'{"offset":%d' % base)
    return RecordBatch.encode(base, [b"x" * max(1, size - head)] * count, 0)


def cost(of: RecordBatch) -> int:
    return len(of.stored) + 4 * of.record_count + OVERHEAD


def filled(*bases: int, max_bytes: int = 1 << 20, count: int = 10) -> BatchCache:
    cache = BatchCache(max_bytes)
    for base in bases:
        cache.add(PLACE, batch(base, count))
    return cache


def bases(cache: BatchCache, place: tuple[str, int] = PLACE) -> list[int]:
    known = cache.partition(place)
    return [] if known is None else known.bases


def read(cache: BatchCache, offset: int, max_bytes: int = 1 << 20, max_records: int = 10_000) -> list[int] | None:
    found = cache.read(PLACE, offset, max_bytes, max_records)
    return None if found is None else [b.base_offset for b in found]


def test_the_oldest_batches_are_evicted_when_the_bytes_are_used_up() -> None:
    each = cost(batch(0))
    cache = filled(max_bytes=3 * each)
    for base in range(0, 100, 10):
        cache.add(PLACE, batch(base))
        assert cache.bytes <= 3 * each + 10
    assert bases(cache) == [80, 90] or bases(cache) == [70, 80, 90]
    assert read(cache, 0) is None


def test_a_batch_that_was_read_stays_longer() -> None:
    cache = filled(0, 10, 20, max_bytes=3 * cost(batch(20)))
    assert read(cache, 0, max_bytes=1) == [0]
    cache.add(PLACE, batch(30))
    assert bases(cache) == [0, 20, 30]


def test_the_bound_holds_over_all_partitions() -> None:
    cache = BatchCache(4 * cost(batch(10)))
    for partition, base in itertools.product(range(3), range(10, 40, 10)):
        cache.add(("t", partition), batch(base))
    assert [len(bases(cache, ("t", partition))) for partition in range(3)] == [0, 1, 3]
    assert cache.bytes == 4 * cost(batch(10))


def test_a_batch_larger_than_the_bound_is_kept_alone() -> None:
    cache = filled(0, max_bytes=100)
    assert bases(cache) == [0]
    cache.add(PLACE, batch(10))
    assert bases(cache) == [10]


@pytest.mark.parametrize(
    ("offset", "max_bytes", "max_records", "found"),
    [
        (0, 1 << 20, 10_000, [0, 10, 20]),
        (9, 1 << 20, 10_000, [0, 10, 20]),
        (10, 1 << 20, 10_000, [10, 20]),
        (15, 1, 10_000, [10]),
        (0, 1 << 20, 10, [0]),
        (0, 1 << 20, 11, [0, 10]),
        (5, 1 << 20, 5, [0]),
        (5, 1 << 20, 6, [0, 10]),
        (30, 1 << 20, 10_000, None),
        (39, 1 << 20, 10_000, None),
        (40, 1 << 20, 10_000, [40]),
        (50, 1 << 20, 10_000, None),
    ],
)
def test_reading_stops_at_a_limit_and_before_a_hole(
    offset: int, max_bytes: int, max_records: int, found: list[int] | None
) -> None:
    assert read(filled(0, 10, 20, 40), offset, max_bytes, max_records) == found


def test_log_ends_never_go_back() -> None:
    cache = BatchCache(1 << 20)
    assert cache.set_ends(PLACE, 5, 20)
    assert not cache.set_ends(PLACE, 5, 20)
    assert not cache.set_ends(PLACE, 3, 10)
    known = cache.partition(PLACE)
    assert known is not None
    assert (known.log_start_offset, known.log_end_offset) == (5, 20)
    assert cache.set_ends(PLACE, -1, 21)
    assert (known.log_start_offset, known.log_end_offset) == (5, 21)


def test_a_moved_log_start_drops_batches_below_it() -> None:
    cache = filled(0, 10, 20)
    cache.set_ends(PLACE, 15, 30)
    assert bases(cache) == [10, 20]
    assert cache.bytes == cost(batch(10)) + cost(batch(20))
    cache.set_ends(PLACE, 30, 30)
    assert (bases(cache), cache.bytes) == ([], 0)


def test_a_dropped_partition_leaves_nothing_behind() -> None:
    cache = filled(0, 10)
    cache.drop(PLACE)
    assert (cache.partition(PLACE), cache.bytes, cache.places()) == (None, 0, [])
    cache.drop(PLACE)
    cache.add(PLACE, batch(0))
    assert bases(cache) == [0]


places = st.tuples(st.sampled_from("ab"), st.integers(0, 1))
steps = st.lists(
    st.tuples(places, st.sampled_from(("add", "read", "start", "drop")), st.integers(0, 9)), min_size=1, max_size=60
)


@given(steps, st.integers(500, 8000))
def test_bytes_are_the_sum_of_the_kept_batches(
    sequence: list[tuple[tuple[str, int], str, int]], max_bytes: int
) -> None:
    cache = BatchCache(max_bytes)
    for place, step, number in sequence:
        if step == "add":
            cache.add(place, batch(10 * number))
        elif step == "start":
            cache.set_ends(place, 10 * number, 100)
        elif step == "drop":
            cache.drop(place)
        elif cache.partition(place) is not None:
            found = cache.read(place, 10 * number, 2000, 30)
            assert found is None or found[0].base_offset == 10 * number
        kept = [known for known in map(cache.partition, cache.places()) if known is not None]
        assert cache.bytes == sum(cost(b) for known in kept for b in known.batches)
        assert cache.bytes <= max_bytes or sum(len(known.batches) for known in kept) == 1
        assert all(known.bases == sorted(b.base_offset for b in known.batches) for known in kept)


def test_an_unused_partition_is_forgotten() -> None:
    cache = filled(0, 10)
    cache.set_ends(("u", 0), 0, 5)
    assert cache.forget_unused() == []
    assert bases(cache) == [0, 10], "asked for since it came"
    assert cache.forget_unused() == [("u", 0)]
    assert cache.places() == [PLACE]
    assert cache.forget_unused(interest={PLACE}) == []
    assert cache.forget_unused() == [PLACE]
    assert cache.places() == []
    assert cache.bytes == 0


def test_appends_of_others_do_not_keep_a_partition_nobody_asks_for() -> None:
    cache = BatchCache(1 << 20)
    heard = Heard()
    known = KnownLog(cache, heard)
    known.learn(("u", 0), 0, 5)
    cache.forget_unused()
    known.learn(("u", 0), 0, 6)
    assert heard.take_changes() == [("u", 0), ("u", 0)]
    assert cache.forget_unused() == [("u", 0)]
