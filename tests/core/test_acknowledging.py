"""Scenarios of acknowledging: families AK and RN on the pure machine."""

import pytest
from sharequeue_gateway.share_partition.outcomes import Acknowledged, AcknowledgementBatch

from sharequeue.protocol.types import AcknowledgeType
from sharequeue_http.forms.errors import InvalidRequest
from tests.core.share_partition_driver import Driver, fetched, refused

# AK: rules of state


def test_ak_001_an_empty_window_holds_nothing() -> None:
    refused(Driver(), "0-15 Rej")


def test_ak_003_offsets_that_nobody_fetched_between_batches_are_refused() -> None:
    d = fetched("[0-4]", "[20-24]")
    refused(d, "0-10 Acc", "20-24 Acc", error=InvalidRequest)
    assert d.fetch("[5-10]", at=5) == "5-10×1"
    d.ack("0-10 Acc", "20-24 Acc")
    assert not d.machine.runs
    assert d.where() == (25, 25, 25, 0)


def test_ak_005_a_second_acknowledgement_is_refused() -> None:
    d = fetched("[5-9]", start=5)
    d.ack("5-9 Rel")
    refused(d, "5-9 Acc")


def test_ak_007_an_offset_twice_in_one_request_is_refused() -> None:
    d = fetched("[5-9]", "[10-14]", "[15-19]", start=5)
    refused(d, "5-9 Rel", "10-14 Acc", "15-19 Acc", "19-19 Acc")
    assert d.states() == "5-19 AQ×1"
    assert (d.where()[3], d.written) == (0, [])


def test_ak_009_a_batch_of_another_member_is_refused() -> None:
    d = fetched("[5-9]", start=5)
    d.fetch("[10-14]", "M2")
    d.fetch("[15-19]")
    refused(d, "5-9 Rel", "10-14 Acc", "15-19 Acc")
    assert d.states() == "5-19 AQ×1"


def test_equal_neighbours_with_a_hole_between_them_are_refused_as_each_alone() -> None:
    d = fetched("[0-4]", "[6-10]")
    refused(d, "3 Acc", "4 Acc", "5 Acc", "6 Acc", error=InvalidRequest)
    refused(d, "4 Acc", "4 Acc")


def test_equal_neighbours_of_one_run_are_settled_together() -> None:
    d = fetched("[0-9]", "[10-19]", delivery_count_limit=9)
    batches = [AcknowledgementBatch(offset, offset, (AcknowledgeType.ACCEPT,), 1) for offset in range(20)]
    assert [d.machine.end_of_equals(batches, begin) for begin in (0, 7, 9, 10, 19)] == [10, 10, 10, 20, 20]
    rejected = AcknowledgementBatch(2, 2, (AcknowledgeType.REJECT,), 1)
    assert d.machine.end_of_equals([*batches[:2], rejected, *batches[3:]], 0) == 2
    d.machine.start_offset = 5  # moved up by a deletion: those below are ignored, each by itself
    assert [d.machine.end_of_equals(batches, begin) for begin in (0, 4, 5)] == [1, 5, 10]


def test_neighbours_that_differ_are_settled_one_by_one() -> None:
    d = fetched("[0-9]")
    d.ack("1 Acc", "2 Gap", "4 Gap", "5 Rel", "6 Rel")
    assert d.states() == "0-0 AQ×1 | 1-1 AK×1 | 2-2 AR×1 | 3-3 AQ×1 | 4-4 AR×1 | 5-6 AV×1 | 7-9 AQ×1"
    assert {5, 6} <= {run.first for run in d.machine.runs}, "each release has a backoff of its own"


def test_ak_011_each_offset_has_its_own_type() -> None:
    d = fetched("[5-6]", "[10-20]", start=5)
    d.ack("6-18 Acc Acc Acc Acc Acc Acc Gap Gap Acc Gap Acc Gap Acc")
    assert d.states() == (
        "5-5 AQ×1 | 6-6 AK×1 | 10-11 AK×1 | 12-13 AR×1 | 14-14 AK×1 | 15-15 AR×1 | 16-16 AK×1 | 17-17 AR×1 | "
        "18-18 AK×1 | 19-20 AQ×1"
    )
    assert d.where() == (5, 20, 21, 10)


def test_ak_013_offsets_below_the_start_offset_are_ignored() -> None:
    d = fetched("[0-9]")
    d.ack("0-9 Acc")
    assert d.where()[0] == 10
    assert d.ack("0-9 Acc") == Acknowledged((), True, [])


def test_ak_015_a_write_holds_state_start_offset_and_complete_count() -> None:
    d = fetched("[0-9]")
    d.ack("5-9 Acc")
    assert d.where() == (0, 9, 10, 5)
    assert d.written == [[(5, 9, 2, 1)]]
    assert (d.writes[0].start_offset, d.writes[0].delivery_complete_count) == (0, 5)


def test_ak_017_closing_after_an_acknowledgement_writes_nothing() -> None:
    d = fetched("[2-6]", start=2)
    d.ack("2-6 Acc")
    d.close()
    assert d.written == [[(2, 6, 2, 1)]]


def test_ak_019_a_release_at_the_limit_finishes_the_window() -> None:
    d = fetched("[10-14]", "[15-19]", start=10, delivery_count_limit=2)
    d.ack("10-12 Acc", "13-16 Rel", "17-19 Acc")
    assert d.fetch("[10-14][15-19]") == "13-14×2, 15-16×2"
    d.ack("13-16 Rel")
    assert not d.machine.runs
    assert d.where() == (20, 20, 20, 0)


def test_ak_021_a_release_archives_at_the_limit_and_frees_below_it() -> None:
    d = fetched("[0-4]", delivery_count_limit=2)
    d.ack("0-1 Rel")
    assert d.fetch("[0-4]", max=2, rl=True) == "0-1×2"
    d.ack("0-4 Rel")
    assert d.written[-1] == [(0, 1, 4, 2), (2, 4, 0, 1)]
    assert d.states() == "2-4 AV×1"
    assert d.where() == (2, 4, 2, 0)


def test_ak_023_a_request_applies_whole_or_not_at_all() -> None:
    d = fetched("[0-4]")
    d.fetch("[5-9]", "M2")
    refused(d, "0-4 Acc", "5-9 Acc")
    refused(d, "0-9 Acc")


def test_types_stay_with_their_offsets_across_the_start_offset() -> None:
    d = fetched("[0-4]")
    d.ack("0-1 Acc")
    d.ack("0-4 Rej Rej Rel Acc Rel")
    assert d.states() == "2-2 AV×1 | 3-3 AK×1 | 4-4 AV×1"


# A repeat with the delivery count is recognised


@pytest.mark.parametrize("name", ["Acc", "Rel", "Rej", "Gap"])
def test_a_repeat_with_the_same_delivery_count_changes_nothing(name: str) -> None:
    d = fetched("[0-4]")
    d.ack(f"2-3 {name}", count=1)
    before = (d.states(), d.where(), list(d.written))
    assert d.ack(f"2-3 {name}", count=1) == Acknowledged((), False, [])
    assert (d.states(), d.where(), list(d.written)) == before


def test_a_repeat_waits_for_the_write_of_the_first_call() -> None:
    d = fetched("[0-4]", hold_writes=True)
    first = d.ack("2-3 Acc", count=1)
    assert d.ack("2-3 Acc", count=1).writes == first.writes
    refused(d, "2-3 Acc")
    refused(d, "2-3 Rel", count=1)
    assert len(d.writes) == 1
    both = d.ack("1-3 Acc", count=1).writes
    assert (len(both), d.written[-1]) == (2, [(1, 1, 2, 1)])


def test_a_settlement_of_an_earlier_delivery_is_refused_while_held_and_when_settled() -> None:
    d = fetched("[0-4]")
    d.ack("0-4 Rel")
    d.fetch("[0-4]")
    refused(d, "1-4 Acc", count=1)
    d.ack("1-4 Acc", count=2)
    refused(d, "1-4 Acc", count=1)


# RN: renewing locks


def test_rn_001_a_renewal_starts_a_full_lock_and_writes_nothing() -> None:
    d = fetched("[0]")
    d.later(20_000)
    acknowledged = d.ack("0 Ren")
    assert acknowledged == Acknowledged((), False, [(0, 0, 1, d.now_ms + 30_000, 30_000, 0)])
    assert d.later(29_000) == 0
    assert (d.states(), d.written) == ("0-0 AQ×1", [])
    assert d.later(1_000) == 1
    assert (d.states(), d.written) == ("0-0 AV×1", [[(0, 0, 0, 1)]])


def test_rn_003_one_request_may_renew_and_accept() -> None:
    d = fetched("[0-1]")
    d.later(10_000)
    d.ack("0-1 Ren Acc")
    assert (d.states(), d.written) == ("0-0 AQ×1 | 1-1 AK×1", [[(1, 1, 2, 1)]])
    assert d.later(29_999) == 0


def test_rn_005_renewing_can_be_off() -> None:
    d = fetched("[0]", renew_acknowledge_enable=False)
    refused(d, "0 Ren")
    assert d.machine.held_by("M1", 0, 0) == [(0, 0, 1, d.now_ms + 30_000, 30_000, 0)]


def test_rn_007_a_moved_log_start_archives_renewed_records_below_it() -> None:
    d = fetched("[0-4]")
    d.ack("0-4 Ren Acc Ren Acc Ren")
    d.machine.move_log_start(3, d.now_ms)
    assert d.where()[0] == 3
    d.hold_writes = True
    d.later()
    assert d.states() == "0-0 AR×1 | 1-1 AK×1 | 2-2 AR×1 | 3-3 AK×1 | 4-4 AV×1"
    d.finish()
    assert d.where() == (4, 4, 4, 0)
    # One event is one write here; single timers make it four.
    assert d.written == [[(1, 1, 2, 1), (3, 3, 2, 1)], [(4, 4, 0, 1)]]


def test_rn_009_a_request_that_fails_renews_nothing() -> None:
    """In Kafka the renewals stay."""
    d = fetched("[0-9]")
    d.later(10_000)
    with pytest.raises(InvalidRequest):
        d.ack("0-4 Ren", "20-25 Acc")
    assert d.later(20_000) == 10
    assert d.states() == "0-9 AV×1"


@pytest.mark.parametrize("batch", ["15-17 Acc", "10-16 Acc", "16-17 Acc", "10-21 Acc", "25-29 Acc"])
def test_acknowledging_unfetched_offsets_is_an_invalid_request(batch: str) -> None:
    refused(fetched("[10-14]", "[18-20]", start=10), batch, error=InvalidRequest)


@pytest.mark.parametrize("batch", ["2-4 Acc", "3-12 Acc", "9-10 Acc"])
def test_offsets_before_the_window_are_not_held(batch: str) -> None:
    d = Driver([(10, 14, 0, 1)], start=2)
    d.fetch("[10-14]", at=10)
    refused(d, batch)
