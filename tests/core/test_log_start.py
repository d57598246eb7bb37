"""Scenarios of a log that loses its head or its middle: families LS and CP on the pure machine."""

import pytest

from tests.core.share_partition_driver import Driver, fetched, fives

# LS: the log start moves


def test_ls_001_available_records_are_gone_and_held_ones_stay() -> None:
    d = fetched(*fives(2, 36), start=2)
    for acknowledgement in ("2-6 Acc", "12-16 Rel", "22-26 Rel", "27-31 Rej"):
        d.ack(acknowledgement)
    assert d.machine.move_log_start(20, d.now_ms)
    assert d.where() == (20, 36, 22, 5)
    assert d.states() == "7-11 AQ×1 | 12-16 AR×1 | 17-21 AQ×1 | 22-26 AV×1 | 27-31 AR×1 | 32-36 AQ×1"


def test_ls_003_finished_records_below_the_log_start_leave_the_count() -> None:
    d = fetched(*fives(2, 36), start=2)
    for acknowledgement in ("7-11 Acc", "12-16 Rel", "22-26 Rel", "27-31 Rej", "19-21 Rej"):
        d.ack(acknowledgement)
    assert d.where()[3] == 13
    d.machine.move_log_start(20, d.now_ms)
    assert d.where() == (20, 36, 22, 7)
    assert "17-18 AQ×1 | 19-21 AR×1 | 22-26 AV×1" in d.states()


def test_ls_005_the_log_start_cuts_an_available_batch() -> None:
    d = fetched(*fives(1, 40), start=1)
    d.ack("31-40 Rel")
    d.machine.move_log_start(36, d.now_ms)
    assert d.where() == (36, 40, 36, 0)
    assert d.states().endswith("31-35 AR×1 | 36-40 AV×1")


def test_ls_007_the_log_start_may_move_twice() -> None:
    d = fetched("[2-6]", "[7-11]", start=2)
    d.machine.move_log_start(4, d.now_ms)
    d.ack("7-8 Rel")
    d.machine.move_log_start(7, d.now_ms)
    assert d.where() == (7, 11, 7, 0)
    assert d.states() == "2-6 AQ×1 | 7-8 AV×1 | 9-11 AQ×1"


def test_ls_009_the_log_start_may_move_to_the_last_record() -> None:
    d = fetched("[2-6]", "[7-11]", start=2)
    d.ack("7-8 Rel", "11 Rel")
    d.machine.move_log_start(11, d.now_ms)
    assert d.where() == (11, 11, 11, 0)
    assert d.states() == "2-6 AQ×1 | 7-8 AR×1 | 9-10 AQ×1 | 11-11 AV×1"


def test_ls_011_the_log_start_may_move_beyond_the_window() -> None:
    d = fetched("[2-6]", start=2)
    d.machine.move_log_start(7, d.now_ms)
    assert (d.where(), d.states()) == ((7, 7, 7, 0), "2-6 AQ×1")
    d.later()
    assert (d.where(), d.states()) == ((7, 7, 7, 0), "")
    assert d.fetch("[10-14]") == "10-14×1"
    assert d.where()[:2] == (10, 14)
    d.ack("2-14 Rel")
    assert (d.where(), d.states()) == ((10, 14, 10, 0), "10-14 AV×1")


def test_ls_013_the_log_start_may_move_into_a_hole() -> None:
    d = fetched("[2-6]", "[10-14]", "[20-24]", start=2)
    d.machine.move_log_start(18, d.now_ms)
    assert d.where() == (18, 24, 25, 0)
    assert d.states() == "2-6 AQ×1 | 10-14 AQ×1 | 20-24 AQ×1"


def test_ls_015_a_held_record_below_the_log_start_stays_until_its_lock_ends() -> None:
    d = fetched("[2-6]", "[10-14]", "[20-24]", start=2)
    d.machine.move_log_start(14, d.now_ms)
    d.ack("2-14 Acc")
    assert d.written == [[(14, 14, 2, 1)]]
    assert d.where() == (14, 24, 25, 1)
    assert d.states() == "2-6 AQ×1 | 10-13 AQ×1 | 14-14 AK×1 | 20-24 AQ×1"
    d.later()
    assert d.where() == (20, 24, 20, 0)


@pytest.mark.parametrize("closing", [True, False])
def test_ls_017_a_record_released_below_the_log_start_is_archived(closing: bool) -> None:
    d = fetched("[2-6]", "[10-14]", "[15-19]", "[20-24]", start=2)
    d.machine.move_log_start(17, d.now_ms)
    d.hold_writes = True
    if closing:
        d.close()
    else:
        assert d.later() == 20
    assert d.states() == "2-6 AR×1 | 10-16 AR×1 | 17-24 AV×1"
    assert d.written == [[(17, 19, 0, 1), (20, 24, 0, 1)]]
    d.finish()
    assert d.where() == (17, 24, 17, 0)


def test_ls_019_a_failed_write_below_the_log_start_does_not_restore_its_records() -> None:
    d = fetched("[2-6]", "[7-11]", start=2, hold_writes=True)
    d.ack("2-6 Rel")
    d.ack("7-11 Acc")
    d.machine.move_log_start(7, d.now_ms)
    assert d.where()[3] == 5
    d.finish(ok=False)
    d.finish(ok=False)
    assert (d.states(), d.where()) == ("7-11 AQ×1", (7, 11, 12, 0))


def test_ls_021_the_log_start_may_move_into_a_loaded_batch() -> None:
    d = Driver([(11, 20, 0, 1), (21, 30, 0, 1)], start=11)
    assert d.fetch("[11-20]") == "11-20×2"
    d.machine.move_log_start(16, d.now_ms)
    d.ack("11-20 Rel")
    assert (d.states(), d.where()) == ("11-15 AQ×2 | 16-20 AV×2 | 21-30 AV×1", (16, 30, 16, 0))
    d.hold_writes = True
    d.later()
    assert (d.states(), d.where()[3]) == ("11-15 AR×2 | 16-20 AV×2 | 21-30 AV×1", 0)
    d.finish()
    assert d.states() == "16-20 AV×2 | 21-30 AV×1"


def test_ls_023_the_next_fetch_begins_at_the_log_start() -> None:
    d = Driver()
    assert d.machine.move_log_start(100, d.now_ms)
    assert d.where() == (100, 100, 100, 0)
    assert d.fetch("[95-104]") == "100-104×1"


def test_a_delay_below_the_log_start_ends_with_its_record() -> None:
    d = fetched("[0-4]", "[5-9]")
    d.ack("5-9 Rel", delay_ms=1_000)
    d.machine.move_log_start(10, d.now_ms)
    assert d.later(1_000) == 0
    assert (d.machine.delayed_count, d.machine.waiting_count, d.where()[2]) == (0, 0, 10)


def test_a_dead_letter_is_written_to_the_state_from_the_log_start_on() -> None:
    d = fetched("[0-9]", dead_letter_topic_name="dlq")
    d.ack("0-9 Rej")
    d.machine.move_log_start(5, d.now_ms)
    d.archived(0, 9)
    assert d.written[-1] == [(5, 9, 4, 1)]
    assert d.where() == (10, 10, 10, 0)


# CP: compaction and holes


def test_cp_001_batches_removed_by_compaction_are_archived() -> None:
    d = fetched("[0-4]", "[5-9]", "[10-24]")
    d.close()
    assert d.fetch("[5-9]", at=0) == "5-9×2"
    assert (d.states(), d.where()) == ("0-4 AR×1 | 5-9 AQ×2 | 10-24 AV×1", (0, 24, 10, 5))
    assert len(d.written) == 1
    d.close()
    assert d.where() == (5, 24, 5, 0)


def test_cp_003_offsets_removed_from_a_batch_are_archived() -> None:
    d = Driver()
    d.fetch("[0-4][5-19][20-34]")
    d.close()
    assert d.fetch("[5-9]", at=0) == "5-9×2"
    assert d.where() == (0, 34, 10, 5)
    d.close()
    assert (d.states(), d.where()[0]) == ("5-9 AV×2 | 10-34 AV×1", 5)


def test_cp_005_a_loaded_batch_removed_by_compaction_is_archived() -> None:
    d = Driver([(11, 20, 0, 1), (21, 30, 0, 1)], start=11)
    assert d.fetch("[21-30]", at=11) == "21-30×2"
    assert (d.states(), d.where()) == ("11-20 AR×1 | 21-30 AQ×2", (11, 30, 31, 10))


def test_the_start_offset_passes_a_hole_made_by_compaction() -> None:
    d = Driver([(5, 9, 2, 1), (15, 19, 0, 1)], start=0)
    assert d.fetch("[3-7]", at=0) == "3-4×1"
    assert d.where() == (3, 19, 10, 5)
    assert d.fetch("[12-13]", at=10) == "12-13×1"
    d.ack("3-4 Acc")
    assert d.where() == (12, 19, 14, 0)


def test_a_log_start_behind_the_start_offset_is_ignored() -> None:
    d = fetched("[0-9]")
    d.ack("0-4 Acc")
    for log_start_offset in (0, 5):
        assert not d.machine.move_log_start(log_start_offset, d.now_ms)
    assert d.where() == (5, 9, 10, 0)


def test_a_release_above_the_log_start_is_acquirable_once_it_is_durable() -> None:
    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Rel")
    d.machine.move_log_start(5, d.now_ms)
    assert d.where()[2] == 10
    d.finish()
    assert d.where()[2] == 5
    assert d.fetch("[0-9]") == "5-9×2"
