"""When a micro-batch begins."""

from sharequeue_pipeline.source.admission import Admission


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


def test_the_first_batch_waits_from_the_start_of_the_query() -> None:
    admission = Admission(10, 5000)
    assert not admission.admits(1, 1_000_000)
    assert not admission.admits(1, 1_004_999)
    assert admission.admits(1, 1_005_000)
