"""When a micro-batch begins, and how many locks its records need in a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.source.admission import Admission, locks_needed


def test_a_batch_begins_with_enough_records_or_after_the_delay() -> None:
    admission = Admission(10, 5000)
    assert admission.waits
    assert not admission.admits(9, 100)
    assert admission.admits(10, 200)
    assert not admission.admits(9, 5199)
    assert admission.admits(1, 5200)
    assert not admission.admits(9, 5201)


def test_no_batch_begins_without_records() -> None:
    admission = Admission(10, 5000)
    assert not admission.admits(0, 0)
    assert not admission.admits(0, 9000)
    assert admission.admits(1, 9001)


def test_by_default_a_batch_begins_with_one_record() -> None:
    admission = Admission(1, 5000)
    assert not admission.waits
    assert admission.admits(1, 0)
    assert admission.admits(1, 1)


@given(st.integers(1, 200), st.lists(st.integers(0, 100), max_size=6))
def test_the_locks_that_a_batch_needs_are_the_least(records: int, backlogs: list[int]) -> None:
    def batch(locks: int) -> int:
        return min(records, sum(min(locks, backlog) for backlog in backlogs))

    needed = locks_needed(records, backlogs)
    assert batch(needed) == min(records, sum(backlogs))
    assert needed == 0 or batch(needed - 1) < batch(needed)


def test_the_first_batch_waits_from_the_start_of_the_query() -> None:
    admission = Admission(10, 5000)
    assert not admission.admits(1, 1_000_000)
    assert not admission.admits(1, 1_004_999)
    assert admission.admits(1, 1_005_000)


@pytest.mark.parametrize(
    ("records", "backlogs", "locks"),
    [
        (100, [10, 10, 200], 80),
        (100, [200, 10, 10], 80),
        (3, [2, 5], 2),
        (4, [2, 2], 2),
        (10, [4, 4, 4], 4),
        (100, [10, 20], 20),
        (1, [5, 5], 1),
        (5, [], 0),
    ],
)
def test_short_backlogs_leave_their_part_to_the_others(records: int, backlogs: list[int], locks: int) -> None:
    assert locks_needed(records, backlogs) == locks
