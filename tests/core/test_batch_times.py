"""The times of appends: found by offset, noted in any order, and forgotten once their batches are finished."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.share_partition import batch_times
from sharequeue_gateway.share_partition.batch_times import BatchTimes


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


BATCHES = [Batch(10 * number, 10 * number + 7, 1000 + number) for number in range(200)]  # with gaps between


@given(st.permutations(range(30)), st.integers(0, 300), st.integers(0, 60))
def test_any_order_of_appends_gives_the_same_answer(order: list[int], first: int, size: int) -> None:
    times = BatchTimes()
    for number in order[:20]:
        times.note([BATCHES[number]])
        times.note([BATCHES[number]])
    expected = []
    for number in sorted(order[:20]):
        batch = BATCHES[number]
        records = len(range(max(first, batch.base_offset), min(first + size, batch.last_offset) + 1))
        if records:
            expected.append((records, batch.max_timestamp_ms))
    assert list(times.parts(first, first + size)) == expected


def test_finished_batches_are_forgotten() -> None:
    times = BatchTimes()
    times.note(BATCHES)
    times.forget_below(BATCHES[20].base_offset)
    assert len(times) == 200  # too few to be worth it
    times.forget_below(BATCHES[150].base_offset)
    assert len(times) == 50
    assert list(times.parts(0, 1500)) == [(1, 1150)]


def test_the_number_of_kept_times_is_limited() -> None:
    times = BatchTimes()
    times.note([Batch(offset, offset, 10 * offset) for offset in range(batch_times.MOST + 1)])
    assert len(times) == batch_times.MOST // 2 + 1
    assert list(times.parts(batch_times.MOST, batch_times.MOST)) == [(1, 10 * batch_times.MOST)]


def test_small_adjacent_batches_count_as_one() -> None:
    times = BatchTimes()
    times.note([Batch(offset, offset, 1000 + offset) for offset in range(12)])
    times.note([Batch(12, 19, 1012)])
    times.note([Batch(offset, offset, 1000 + offset) for offset in range(12)])
    assert list(times.parts(0, 19)) == [(6, 1000), (6, 1006), (8, 1012)]
    assert list(times.parts(4, 7)) == [(2, 1000), (2, 1006)]
