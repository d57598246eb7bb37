"""What waits is bounded, and new records wait for it: delays and releases never give way to a bound."""

import pytest
from sharequeue_gateway.share_partition.bounds import equal_part, limited_by

from tests.core.share_partition_driver import Driver, fetched


def bounded(held: int, waiting: int) -> Driver:
    """20 records in flight; 0 to 9 were released, half of them with a delay, and 10 to 19 are held."""
    d = Driver(partition_max_record_locks=held, partition_max_delayed_records=waiting)
    assert d.fetch("[0-19]") == "0-19×1"
    d.ack("0-4 Rel", delay_ms=5_000)
    d.ack("5-9 Rel")
    return d


def test_new_records_wait_when_too_many_wait_already() -> None:
    d = bounded(20, 0)
    assert limited_by(d.machine) == "share.partition.max.delayed.records"
    assert d.fetch("[5-19][20-29]") == "5-9×2"
    assert limited_by(d.machine) == "share.partition.max.delayed.records"
    assert d.fetch("[20-29]") == ""
    d.ack("5-9 Acc")
    assert limited_by(d.machine) is None
    assert d.fetch("[20-39]", rl=True) == "20-24×1"


def test_a_fetch_gets_as_many_new_records_as_may_wait_afterwards() -> None:
    d = bounded(20, 3)
    assert d.fetch("[5-19][20-39]", rl=True) == "5-9×2, 20-22×1"


def test_waiting_records_are_delivered_whatever_waits() -> None:
    d = bounded(20, 0)
    d.configure(partition_max_record_locks=12)
    assert limited_by(d.machine) == "share.partition.max.delayed.records"
    assert d.fetch("[5-19][20-29]", rl=True) == "5-6×2"
    assert limited_by(d.machine) == "share.partition.max.record.locks"
    assert d.fetch("[7-19][20-29]", rl=True) == ""


def test_an_unread_hole_is_filled_whatever_waits() -> None:
    d = Driver([(5, 9, 0, 1)], partition_max_record_locks=5, partition_max_delayed_records=0)
    assert d.fetch("[0-9]", rl=True) == "0-4×1"


@pytest.mark.parametrize(("bound", "name"), [("max_runs", "runs"), ("max_span", "span")])
def test_new_records_wait_when_the_window_has_too_many_runs_or_offsets(bound: str, name: str) -> None:
    d = fetched("[0-9]", **{bound: 3})
    assert limited_by(d.machine) == (name if bound == "max_span" else None)
    d.ack("3-4 Rel")
    assert limited_by(d.machine) == name
    assert d.fetch("[3-19]") == "3-4×2"
    d.ack("3-4 Acc")
    d.ack("0-2 Acc")
    d.ack("5-9 Acc")
    assert limited_by(d.machine) is None
    assert d.fetch("[10-19]") == "10-19×1"


def test_new_records_wait_in_a_crowded_window_that_is_not_empty() -> None:
    d = fetched("[0-9]")
    d.machine.crowded = True
    assert limited_by(d.machine) == "max_delayed_runs"
    assert d.fetch("[10-19]") == ""
    d.ack("5-9 Rel")
    assert d.fetch("[5-9][10-19]") == "5-9×2"
    d.ack("0-9 Acc")
    assert limited_by(d.machine) is None
    assert d.fetch("[10-19]") == "10-19×1"


def test_new_records_do_not_wait_for_what_is_held_below_the_log_start() -> None:
    d = fetched("[0-9]")
    d.machine.crowded = True
    d.machine.move_log_start(10, d.now_ms)
    assert d.fetch("[10-19]") == "10-19×1"


def test_records_that_the_log_has_lost_unread_are_counted() -> None:
    d = fetched("[0-4]")
    d.ack("0-1 Acc", "2-3 Rel")
    d.machine.move_log_start(8, d.now_ms)
    assert d.machine.removed_unread == 5, "2-3 waited, 5-7 are new; 0-1 are finished, and 4 is held"
    d.machine.move_log_start(8, d.now_ms)
    assert d.machine.removed_unread == 5
    d.machine.move_log_start(9, d.now_ms)
    assert d.machine.removed_unread == 6


def test_locks_of_lost_records_are_bounded_too() -> None:
    d = fetched("[0-9]", partition_max_record_locks=10, max_runs=2)
    d.machine.move_log_start(10, d.now_ms)
    assert d.fetch("[10-19]") == "10-19×1"
    d.machine.move_log_start(20, d.now_ms)
    assert limited_by(d.machine) == "share.partition.max.record.locks"


@pytest.mark.parametrize(
    ("runs", "most", "part"), [([], 5, None), ([3, 2], 5, None), ([3, 3], 5, 2), ([9, 1, 1], 10, 3)]
)
def test_windows_above_their_equal_part_are_crowded(runs: list[int], most: int, part: int | None) -> None:
    assert equal_part(runs, most) == part


def test_ten_thousand_single_records_that_wait_between_finished_ones_leave_room() -> None:
    d = Driver([(offset, offset, 2 * (offset % 2), 1) for offset in range(20_001)])
    assert len(d.machine.runs) == 20_001
    assert limited_by(d.machine) is None
    assert d.fetch("[20001-20010]") == "20001-20010×1"
