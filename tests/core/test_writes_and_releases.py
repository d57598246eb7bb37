"""Scenarios of releases and of writes: families SR, DY and PW on the pure machine."""

import pytest
from sharequeue_gateway.share_partition.runs import IllegalTransition

from sharequeue.protocol.types import DeliveryState
from tests.core.share_partition_driver import Driver, fetched, refused

# SR: a member's records are released


def test_sr_001_closing_releases_held_records() -> None:
    d = fetched("[0-9]")
    d.ack("0-9 Acc")
    assert d.fetch("[10-19]") == "10-19×1"
    d.close()
    assert d.written[-1] == [(10, 19, 0, 1)]
    assert d.fetch("[10-19]") == "10-19×2"


def test_sr_003_closing_keeps_the_delivery_counts() -> None:
    d = fetched("[0-1]")
    d.ack("0 Rel")
    d.close()
    assert d.fetch("[0-1]", "M2") == "0-1×2"


def test_sr_005_closing_archives_at_the_delivery_limit() -> None:
    d = fetched("[0-9]", "[10-14]", delivery_count_limit=2)
    d.ack("10-14 Rel")
    assert d.fetch("[10-14]") == "10-14×2"
    d.close()
    assert d.states() == "0-9 AV×1 | 10-14 AR×2"
    assert d.where() == (0, 14, 0, 5)


def test_sr_007_other_members_keep_their_records() -> None:
    d = fetched("[5]", start=5, member="M2")
    d.fetch("[10-20]")
    d.ack("10-18 Acc Acc Gap Gap Acc Gap Acc Gap Acc")
    d.close("M1")
    assert d.where() == (5, 20, 19, 9)
    assert [(run.first, run.member_id) for run in d.machine.runs if run.member_id] == [(5, "M2")]
    d.close("M2")
    assert d.where() == (5, 20, 5, 9)
    assert d.states().startswith("5-5 AV×1 | 10-11 AK×1")


def test_sr_009_closing_releases_one_members_part_of_a_shared_batch() -> None:
    d = fetched("[5-14]", start=5)
    d.ack("5-6 Acc")
    d.ack("10-12 Rel")
    assert d.fetch("[5-14]", "M2") == "10-12×2"
    d.close("M1")
    assert d.states() == "7-9 AV×1 | 10-12 AQ×2 | 13-14 AV×1"
    assert d.where()[2] == 7


# DY: dynamic limits


def test_dy_001_the_limit_is_read_when_a_record_is_released() -> None:
    d = fetched("[5-14]", start=5, delivery_count_limit=10)
    d.ack("5-14 Rel")
    d.fetch("[5-14]")
    d.configure(delivery_count_limit=2)
    d.ack("5-14 Rel")
    assert d.written[-1] == [(5, 14, 4, 2)]
    assert d.where() == (15, 15, 15, 0)


def test_dy_003_beyond_a_lowered_limit_records_come_in_throttled_portions() -> None:
    d = Driver([(0, 9, 0, 3)], delivery_count_limit=5)
    d.configure(delivery_count_limit=2)
    assert d.fetch("[0-9]") == "0-1×4"
    d.ack("0-1 Rel")
    assert d.written[-1] == [(0, 1, 4, 4)]


def test_dy_005_the_lock_duration_is_read_when_a_record_is_acquired() -> None:
    d = Driver(record_lock_duration_ms=500)
    d.fetch("[0]")
    d.configure(record_lock_duration_ms=1000)
    d.fetch("[1]")
    assert [run.lock_expires_at_ms - d.now_ms for run in d.machine.runs] == [500, 1000]
    assert d.later(500) == 1
    assert d.later(500) == 1


# PW: writes that are pending or fail


def test_pw_001_a_pending_write_blocks_fetch_acknowledgement_and_start_offset() -> None:
    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Acc")
    assert d.fetch("[0-9]", at=0) == ""
    refused(d, "0-9 Rel")
    assert d.where() == (0, 9, 10, 10)
    d.finish()
    assert d.where() == (10, 10, 10, 0)


def test_pw_003_the_start_offset_moves_when_the_write_is_durable() -> None:
    d = fetched("[21-30]", start=21, hold_writes=True)
    d.ack("21-23 Acc")
    assert d.where()[0] == 21
    d.finish()
    assert d.where() == (24, 30, 31, 0)
    assert d.states() == "24-30 AQ×1"


def test_pw_005_writes_finish_in_any_order() -> None:
    d = fetched("[0-9]", "[10-19]", hold_writes=True)
    d.ack("0-9 Rel")
    d.ack("10-19 Rel")
    d.finish(d.pending[1])
    assert d.where()[2] == 10
    d.finish()
    assert d.where()[2] == 0


def test_pw_007_a_failed_write_gives_the_lock_back() -> None:
    d = fetched("[5-14]", start=5, hold_writes=True)
    deadline_ms = d.now_ms + 30_000
    d.now_ms += 1000
    d.ack("5-14 Acc")
    d.finish(ok=False)
    assert d.machine.held_by("M1", 5, 14) == [(5, 14, 1, deadline_ms, 30_000, 0)]
    assert d.where() == (5, 14, 15, 0)
    d.ack("5-14 Acc")
    d.finish()
    assert d.where()[0] == 15


def test_pw_009_two_failed_writes_give_both_locks_back() -> None:
    d = fetched("[2-6]", "[7-11]", start=2, hold_writes=True)
    d.ack("3 Acc")
    d.ack("7-11 Acc")
    assert d.where()[3] == 6
    d.finish(ok=False)
    assert (d.states(), d.where()[3]) == ("2-6 AQ×1 | 7-11 AK×1", 5)
    d.finish(ok=False)
    assert (d.states(), d.where()[3]) == ("2-11 AQ×1", 0)


def test_pw_011_a_failed_write_after_the_last_lock_expired_archives() -> None:
    d = fetched("[2-6]", "[7-11]", start=2, delivery_count_limit=2)
    d.close()
    assert d.fetch("[2-6][7-11]") == "2-6×2, 7-11×2"
    d.hold_writes = True
    d.ack("3 Acc")
    d.ack("7-11 Acc")
    assert d.where()[3] == 6
    third, seventh = d.pending
    assert d.later() == 4
    assert d.states() == "2-2 AR×2 | 3-3 AK×2 | 4-6 AR×2 | 7-11 AK×2"
    assert d.where()[3] == 10
    d.finish(third, ok=False)
    assert (d.states(), d.where()[3]) == ("3-6 AR×2 | 7-11 AK×2", 9)
    d.finish(seventh, ok=False)
    assert (d.states(), d.where()[3]) == ("7-11 AR×2", 5)
    while d.pending:
        d.finish()
    assert not d.machine.runs
    assert d.where() == (12, 12, 12, 0)


def test_a_failed_write_frees_records_above_the_log_start_only() -> None:
    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Acc")
    d.machine.move_log_start(5, d.now_ms)
    d.later()
    d.finish(ok=False)
    assert (d.states(), d.where()) == ("0-4 AR×1 | 5-9 AV×1", (5, 9, 5, 0))


# Delays, and what is not to be changed


def test_a_delay_that_ends_before_its_write_ends_with_the_next_expiry() -> None:
    d = fetched("[0-4]", hold_writes=True)
    d.ack("0-4 Rel", delay_ms=1_000)
    assert d.later() == 0
    assert (d.where()[2], d.machine.held_count) == (5, 5)
    d.finish()
    assert (d.where()[2], d.machine.delayed_count) == (5, 5)
    d.later(0)
    assert (d.where()[2], d.machine.delayed_count) == (0, 0)


def test_a_change_under_way_can_only_be_taken_back() -> None:
    d = fetched("[0-4]", hold_writes=True)
    d.ack("0-4 Acc")
    (run,) = d.machine.runs
    for state in DeliveryState:
        if state is not DeliveryState.ACQUIRED:
            with pytest.raises(IllegalTransition):
                run.become(state)
    d.finish(ok=False)
    assert d.states() == "0-4 AQ×1"


def test_a_settled_record_stays_settled() -> None:
    d = fetched("[0-4]", "[5-9]")
    d.ack("5-9 Acc")
    _, run = d.machine.runs
    with pytest.raises(IllegalTransition):
        run.become(DeliveryState.ACQUIRED)
