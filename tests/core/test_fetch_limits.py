"""How a fetch's limits are shared out: scenarios SS-027, SS-029 and DF-017, and records within bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.fetch_limits import (
    fitting,
    records_within,
    rotate,
    split_bytes,
    whole_batches_within,
)

from sharequeue.protocol.types import MAX_INT32, AcquireMode

RECORD_LIMIT, BATCH_OPTIMIZED = AcquireMode.RECORD_LIMIT, AcquireMode.BATCH_OPTIMIZED


@pytest.mark.parametrize(("epoch", "places"), [(1, 1), (5, 2), (MAX_INT32, 1), (3, 0), (0, 0), (-1, 0)])
def test_ss_027_partitions_are_rotated_left_by_the_epoch(epoch: int, places: int) -> None:
    partitions = [0, 1, 2]
    assert rotate(partitions, epoch) == partitions[places:] + partitions[:places]


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
def test_fewer_than_two_partitions_are_not_rotated(epoch: int) -> None:
    assert rotate([], epoch) == []
    assert rotate([4], epoch) == [4]


@pytest.mark.parametrize(
    ("max_bytes", "parts", "split"),
    [
        pytest.param(100, 3, [34, 33, 33], id="SS-029 100 over 3"),
        pytest.param(100, 5, [20] * 5, id="SS-029 100 over 5"),
        pytest.param(9, 3, [3, 3, 3], id="SS-029 9 over 3"),
        pytest.param(10, 3, [4, 3, 3], id="SS-029 10 over 3"),
        pytest.param(2, 3, [1, 1, 0], id="SS-029 2 over 3"),
        pytest.param(1 << 20, 2, [512 << 10] * 2, id="DF-017"),
    ],
)
def test_ss_029_bytes_are_split_evenly(max_bytes: int, parts: int, split: list[int]) -> None:
    assert split_bytes(max_bytes, parts) == split


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_no_byte_of_a_split_is_lost(max_bytes: int, parts: int) -> None:
    split = split_bytes(max_bytes, parts)
    assert (len(split), sum(split)) == (parts, max_bytes)
    assert max(split) - min(split) <= 1


def batch(base: int, *sizes: int) -> RecordBatch:
    """Records whose JSON has these sizes, the comma not counted."""
    head = len(b'{"offset":%d' % base)
    return RecordBatch.encode(base, [b"x" * (size - head) for size in sizes], 0)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "max_records", "count"),
    [
        (10, 10_000, 500, 6),
        (10, 10_000, 4, 4),
        (10, 101, 500, 1),
        (10, 201, 500, 1),
        (10, 202, 500, 2),
        (10, 1, 500, 1),
        (10, 303, 500, 3),
        (10, 352, 500, 3),
        (10, 356, 500, 4),
        (12, 101, 500, 1),
        (12, 155, 500, 2),
        (13, 100, 500, 1),
        (11, 1, 500, 1),
        (15, 1, 500, 1),
        (15, 10_000, 1, 1),
    ],
)
def test_records_within_bytes_counts_records_that_fit(
    offset: int, max_bytes: int, max_records: int, count: int
) -> None:
    batches = [batch(10, 100, 100, 100), batch(13, 50, 50, 50)]  # a comma each: 101 and 51 bytes
    wanted = [b for b in batches if b.last_offset >= offset]
    assert records_within(wanted, offset, max_bytes, max_records) == count


@given(
    st.lists(st.lists(st.integers(20, 60), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(1, 800),
    st.integers(1, 20),
)
def test_records_within_takes_as_many_as_fit_and_no_more(
    sizes: list[list[int]], skipped: int, max_bytes: int, max_records: int
) -> None:
    batches, base = [], 100
    for records in sizes:
        batches.append(batch(base, *records))
        base += len(records)
    offset = 100 + min(skipped, len(sizes[0]) - 1)
    costs = [size + 1 for records in sizes for size in records][offset - 100 :]
    expected, left = 0, max_bytes
    for cost in costs:
        if cost > left:
            break
        left -= cost
        expected += 1
    assert records_within(batches, offset, max_bytes, max_records) == max(1, min(expected, max_records))


def test_whole_batches_within_bytes_are_at_least_one() -> None:
    batches = [batch(0, 100), batch(1, 100), batch(2, 100)]
    assert whole_batches_within(batches, 1) == batches[:1]
    assert whole_batches_within(batches, 100) == batches[:1]
    assert whole_batches_within(batches, 199) == batches[:1]
    assert whole_batches_within(batches, 200) == batches[:2]
    assert whole_batches_within(batches, 10_000) == batches


@pytest.mark.parametrize(
    ("mode", "max_bytes", "batches", "most", "size"),
    [
        (RECORD_LIMIT, 300, 3, 50, 300),
        (RECORD_LIMIT, 250, 3, 2, 250),
        (RECORD_LIMIT, 99, 3, 1, 101),
        (BATCH_OPTIMIZED, 300, 3, 50, 300),
        (BATCH_OPTIMIZED, 250, 2, 50, 250),
        (BATCH_OPTIMIZED, 99, 1, 50, 100),
    ],
)
def test_a_batch_that_does_not_fit_uses_up_the_bytes(
    mode: AcquireMode, max_bytes: int, batches: int, most: int, size: int
) -> None:
    """More bytes than there may be: not even the first fits."""
    found = [batch(offset, 100) for offset in range(3)]
    assert fitting(found, 0, mode, max_bytes, 50) == (found[:batches], most, size)
