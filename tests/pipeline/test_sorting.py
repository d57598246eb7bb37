"""A task's records come out in one order, whatever order they came in, and however many runs they filled."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.options import SinkOptions, sink_options
from sharequeue_pipeline.sink import run_files
from sharequeue_pipeline.sink.sorting import SortedRecords
from sharequeue_pipeline.sink.writers import chunks

from tests.pipeline.peak_memory import peak_mib

RECORDS = st.lists(st.tuples(st.sampled_from(["a", "b.ü"]), st.binary(max_size=9)), max_size=60)


@given(RECORDS, st.integers(1, 200), st.integers(1, 4))
def test_runs_are_merged_into_one_order(records: list[tuple[str, bytes]], run_bytes: int, most: int) -> None:
    """`most`: the number of runs at which they are merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_files, "MAX_RUNS", most)
        with SortedRecords(run_bytes) as in_order:
            in_order.extend(records)
            assert list(in_order) == sorted(records)


def test_rows_in_another_order_make_the_same_requests() -> None:
    options: SinkOptions = sink_options({"maxRequestRecords": "7", "maxRequestBytes": "300"})
    records = [("t", str(number).encode()) for number in range(100)] + [("u", b"x" * 200)] * 3
    shuffled = random.Random(1).sample(records, len(records))
    requests = list(chunks(iter(records), options))
    assert requests == list(chunks(iter(shuffled), options))
    assert sorted((topic, record) for topic, found in requests for record in found) == sorted(records)
    assert [topic for topic, _ in requests] == sorted(topic for topic, _ in requests)


MEASURE = """
import sys
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.writers import chunks
count = int(sys.argv[1])
padding = b"x" * 1000
records = (("t", b"%020d" % (number * 7919 % count) + padding) for number in range(count))
total = 0
for _, found in chunks(records, sink_options({})):
    total += len(found)
assert total == count
"""


@pytest.mark.parametrize("count", [pytest.param(2_000_000, marks=pytest.mark.soak)])
def test_the_memory_of_a_task_is_bounded(count: int) -> None:
    """MiB of a process that sorts so many records of 1 KiB."""
    peak = peak_mib(MEASURE, str(count))
    print(f"{count} records: {peak} MiB")
    assert peak < 400
