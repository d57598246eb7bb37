"""An audit of a stretch of the log: no fault in a whole one, and each planted fault by its offsets."""

import pytest
from sharequeue_pipeline.jobs.log_check import batch_faults, record_faults

from sharequeue.protocol.messages.audit import LogBatch


def batch(first: int, last: int, count: int | None = None) -> LogBatch:
    return LogBatch(
        base_offset=first, last_offset=last, record_count=last - first + 1 if count is None else count, generation=0
    )


WHOLE = [batch(0, 9), batch(10, 10), batch(11, 29, 5), batch(30, 39, 0)]


@pytest.mark.parametrize(("begin", "end", "log_start"), [(0, 40, 0), (5, 40, 0), (0, 35, 0), (0, 40, 7), (0, 40, 40)])
def test_a_whole_log_has_no_faults(begin: int, end: int, log_start: int) -> None:
    assert list(batch_faults(WHOLE, begin, end, log_start)) == []


def test_a_stretch_may_begin_within_a_batch() -> None:
    assert list(batch_faults(WHOLE[2:], 15, 40, 0)) == []
    assert list(batch_faults(WHOLE[1:], 11, 40, 0)) == []


@pytest.mark.parametrize(
    ("batches", "fault"),
    [
        (WHOLE[1:], "the log has no batch with the offsets 0 to 9"),
        ([*WHOLE[:1], *WHOLE[2:]], "the log has no batch with the offsets 10 to 10"),
        (WHOLE[:-1], "the log has no batch with the offsets 30 to 39"),
        ([], "the log has no batch with the offsets 0 to 39"),
        ([batch(0, 12), *WHOLE[1:]], "the batch 10-10 overlaps the batch 0-12"),
        ([batch(0, 10), *WHOLE[1:]], "the batch 10-10 overlaps the batch 0-10"),
        ([*WHOLE[:-1], batch(30, 39, 11)], "the batch 30-39 has the record count 11, with 10 offsets"),
        ([*WHOLE[:-1], batch(30, 39, -1)], "the batch 30-39 has the record count -1, with 10 offsets"),
        ([*WHOLE, batch(40, 38)], "the batch 40-38 ends before it begins"),
        ([*WHOLE, batch(40, 39)], "the batch 40-39 ends before it begins"),
    ],
)
def test_each_fault_of_the_log_is_named(batches: list[LogBatch], fault: str) -> None:
    assert fault in list(batch_faults(batches, 0, 40, 0))


def test_batches_below_the_log_start_may_be_missing() -> None:
    assert list(batch_faults(WHOLE[2:], 0, 40, 11)) == []
    assert list(record_faults(WHOLE[:1], {}, 5)) == []


def test_the_record_count_of_each_batch_is_checked() -> None:
    assert list(record_faults(WHOLE, {0: 10, 10: 1, 11: 5}, 0)) == []
    assert list(record_faults(WHOLE, {0: 9, 10: 1, 11: 5}, 0)) == [
        "the batch 0-9 has the record count 10, but 9 records can be read"
    ]
    assert list(record_faults(WHOLE, {0: 10, 10: 1, 11: 5, -1: 2}, 0)) == ["2 records lie in no batch"]


def test_a_hole_is_named_up_to_the_end_of_the_stretch() -> None:
    apart = [batch(0, 9), batch(20, 29)]
    assert list(batch_faults(apart, 0, 15, 0)) == ["the log has no batch with the offsets 10 to 14"]
    assert list(batch_faults(apart, 0, 10, 0)) == []
    assert list(batch_faults(WHOLE, 0, 41, 0)) == ["the log has no batch with the offsets 40 to 40"]


def test_a_batch_within_another_makes_no_hole() -> None:
    within = [batch(0, 39), batch(10, 19)]
    assert list(batch_faults(within, 0, 40, 0)) == ["the batch 10-19 overlaps the batch 0-39"]


def test_batches_below_the_log_start_are_not_counted() -> None:
    assert list(record_faults(WHOLE, {10: 1, 11: 5}, 10)) == []
    assert list(record_faults(WHOLE, {11: 5}, 10)) == [
        "the batch 10-10 has the record count 1, but 0 records can be read"
    ]
