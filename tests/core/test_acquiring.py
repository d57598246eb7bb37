"""Scenarios of acquiring: families FA, AQ, RL, IF and TX on the pure machine."""

import pytest
from sharequeue_gateway.share_partition.acquisition import AcquiredRange, can_acquire, cut

from sharequeue.protocol.types import OffsetRange
from tests.core.share_partition_driver import Driver


def small(locks: int = 20, **config: object) -> Driver:
    """A share-partition whose limit counts the span from start to end, as Kafka's does."""
    return Driver(count_span=True, partition_max_record_locks=locks, **config)


# FA: the cycle


def test_fa_001_a_fetch_acquires_the_produced_records() -> None:
    d = Driver()
    assert d.fetch("[0-9]") == "0-9×1"
    assert [run.lock_expires_at_ms for run in d.machine.runs] == [d.now_ms + 30_000]
    assert d.machine.held_by("M1", 0, 9) == [(0, 9, 1, d.now_ms + 30_000, 30_000, 0)]


@pytest.mark.parametrize("acknowledgement", [pytest.param("Acc", id="FA-003"), pytest.param("Rej", id="FA-007")])
def test_fa_003_007_a_settled_record_is_never_delivered_again(acknowledgement: str) -> None:
    d = Driver()
    d.fetch("[0-9]")
    d.ack(f"0-9 {acknowledgement}")
    assert d.where() == (10, 10, 10, 0)
    assert d.fetch("[0-9][10-19]") == "10-19×1"


def test_fa_005_a_released_record_is_delivered_again() -> None:
    d = Driver()
    d.fetch("[0-9]")
    d.ack("0-9 Rel")
    assert d.fetch("[0-9][10-19]") == "0-9×2, 10-19×1"


def test_fa_011_groups_are_independent() -> None:
    for member in ("M1", "M2"):
        d = Driver()
        assert d.fetch("[0-9]", member) == "0-9×1"
        assert d.fetch("[10-19]", member) == "10-19×1"


def test_fa_013_a_limit_of_one_takes_one_batch_of_one_record() -> None:
    assert Driver().fetch("".join(f"[{offset}]" for offset in range(10)), max=1, bs=1) == "0-0×1"


@pytest.mark.parametrize(
    ("rl", "acquired"), [pytest.param(False, "0-9×1", id="bo"), pytest.param(True, "0-4×1", id="rl")]
)
def test_fa_015_max_records_is_soft_for_batches_and_hard_for_records(rl: bool, acquired: str) -> None:
    assert Driver().fetch("[0-9]", max=5, rl=rl) == acquired


def test_fa_017_each_record_is_delivered_once_and_in_order() -> None:
    d = Driver()
    seen = []
    while len(seen) < 1000:
        start = d.where()[0]
        assert d.fetch("".join(f"[{start + index}]" for index in range(5)), max=2) == f"{start}-{start + 1}×1"
        seen += [start, start + 1]
        d.ack(f"{start}-{start + 1} Acc")
    assert seen == list(range(1000))


# AQ: batch_optimized


def test_aq_001_a_whole_batch_beats_the_soft_limit() -> None:
    d = Driver()
    assert d.fetch("[0-4]", max=10) == "0-4×1"
    assert d.fetch("[5-24]", max=10) == "5-24×1"
    assert d.where() == (0, 24, 25, 0)


@pytest.mark.parametrize(
    ("start", "data", "limit", "batch_size", "acquired", "where"),
    [
        pytest.param(0, "[0-4][5-19][20-34]", 10, 2, "0-4×1, 5-19×1", (0, 19, 20, 0), id="AQ-003"),
        pytest.param(0, "[0-4]", 10, 2, "0-4×1", (0, 4, 5, 0), id="AQ-005"),
        pytest.param(4, "[2-9][10-16]", 500, 5, "4-9×1, 10-16×1", (4, 16, 17, 0), id="AQ-007"),
        pytest.param(0, "[5-14]", 500, 500, "5-14×1", (5, 14, 15, 0), id="AQ-009"),
        pytest.param(0, "[0-9][20-29]", 500, 500, "0-29×1", (0, 29, 30, 0), id="a-hole-in-one-read-is-acquired"),
        pytest.param(0, "[0-2][3-4][5-9]", 500, 3, "0-2×1, 3-9×1", (0, 9, 10, 0), id="entries-are-not-cut-early"),
        pytest.param(0, "[0-9][20-29]", 15, 500, "0-14×1", (0, 14, 15, 0), id="a-limit-that-ends-in-a-hole"),
    ],
)
def test_aq_003_to_009_new_batches_are_acquired_whole(
    start: int, data: str, limit: int, batch_size: int, acquired: str, where: tuple[int, int, int, int]
) -> None:
    d = Driver(start=start)
    assert d.fetch(data, max=limit, bs=batch_size) == acquired
    assert d.where() == where


def test_aq_011_held_records_are_skipped() -> None:
    d = Driver()
    d.fetch("[0-4]")
    assert d.fetch("[0-4][5-9]") == "5-9×1"


def test_aq_013_a_release_may_span_batches_and_a_natural_hole() -> None:
    d = Driver(start=10)
    for batch in ("[10-14]", "[15-19]", "[23-27]", "[28-32]"):
        d.fetch(batch)
    d.ack("12-30 Rel")
    assert d.states() == "10-11 AQ×1 | 12-19 AV×1 | 23-30 AV×1 | 31-32 AQ×1"
    assert d.where() == (10, 32, 12, 0)
    assert d.written == [[(12, 14, 0, 1), (15, 19, 0, 1), (23, 27, 0, 1), (28, 30, 0, 1)]]


def test_aq_015_two_members_may_hold_parts_of_one_batch() -> None:
    d = Driver(start=5)
    d.fetch("[5-9]")
    d.fetch("[10-21]")
    for acknowledgement in ("5-11 Rel", "12-13 Gap", "14-15 Rel", "17-20 Rel"):
        d.ack(acknowledgement)
    assert d.fetch("[5-9]", "M2") == "5-9×2"
    assert d.where() == (5, 21, 10, 2)
    assert d.fetch("[10-16]", "M2") == "10-11×2, 14-15×2"
    assert d.where() == (5, 21, 17, 2)
    assert d.states() == "5-11 AQ×2 | 12-13 AR×1 | 14-15 AQ×2 | 16-16 AQ×1 | 17-20 AV×1 | 21-21 AQ×1"
    assert [(r[0], r[1]) for r in d.machine.held_by("M1", 0, 99)] == [(16, 16), (21, 21)]


def test_aq_017_only_released_records_are_acquired() -> None:
    d = Driver()
    d.fetch("[0-9]")
    d.fetch("[10-19]", "M2")
    d.ack("5-9 Rel")
    assert d.fetch("[0-9][10-19]") == "5-9×2"
    assert d.where() == (0, 19, 20, 0)


def test_aq_019_data_below_the_start_offset_is_not_acquired() -> None:
    d = Driver([(5, 99, 0, 1)], start=5)
    assert d.fetch("[0-4]", max=10, rl=True) == ""
    assert d.where() == (5, 99, 5, 0)
    assert d.states() == "5-99 AV×1"


def test_a_batch_across_the_start_is_acquired_from_the_start_where_a_load_left_a_hole() -> None:
    d = Driver([(10, 14, 2, 1)], start=5)
    assert d.fetch("[3-7]") == "5-7×1"
    assert d.where() == (5, 14, 8, 5)


def test_a_hole_that_another_fetch_has_read_is_not_filled() -> None:
    d = Driver([(0, 4, 0, 1), (8, 9, 0, 1)])
    assert d.fetch("[0-4]") == "0-4×2"
    assert d.fetch("[8-9]", at=5) == "8-9×2"  # the log has lost 5-7
    assert d.fetch("[5-9]", "M2", at=5) == ""  # read before it lost them
    assert d.where() == (0, 9, 10, 0)


# RL: record_limit


def test_rl_001_the_rest_of_the_batch_is_available_at_count_0() -> None:
    d = Driver()
    assert d.fetch("[0-9]", max=5, rl=True) == "0-4×1"
    assert d.where() == (0, 9, 5, 0)
    assert (d.machine.span, d.states()) == (10, "0-4 AQ×1 | 5-9 AV×0")
    assert d.fetch("[0-9]", "M2", max=5, rl=True) == "5-9×1"
    assert d.where() == (0, 9, 10, 0)


def test_rl_003_the_batch_size_is_ignored() -> None:
    d = Driver(start=10)
    assert d.fetch("[10-14][15-19][20-24]", max=20, rl=True, bs=2) == "10-24×1"
    assert d.where() == (10, 24, 25, 0)


def test_rl_005_records_can_be_acquired_one_by_one() -> None:
    d = Driver()
    assert d.fetch("[0-9]", max=1, rl=True) == "0-0×1"
    d.ack("0 Acc")
    assert d.where() == (1, 9, 1, 0)
    assert d.fetch("[0-9]", max=2, rl=True) == "1-2×1"
    d.ack("1 Acc")
    assert d.where() == (2, 9, 3, 0)
    assert d.states() == "2-2 AQ×1 | 3-9 AV×0"


def test_rl_007_a_part_of_a_loaded_batch_can_be_acquired() -> None:
    d = Driver([(5, 99, 0, 1)], start=5)
    assert d.fetch("[0-99]", max=10, rl=True) == "5-14×2"
    d.ack("5-14 Acc")
    assert d.where() == (15, 99, 15, 0)
    assert d.fetch("[0-99]", max=10, rl=True) == "15-24×2"
    assert d.where() == (15, 99, 25, 0)


def test_rl_009_one_group_may_use_both_modes() -> None:
    d = Driver(start=10)
    data = "[10-14][15-29][30-44]"
    assert d.fetch(data, max=10) == "10-29×1"
    for acknowledgement in ("10-14 Rel", "15-20 Acc", "21-22 Rel", "23-28 Acc"):
        d.ack(acknowledgement)
    assert d.fetch(data, "M2", max=2, rl=True) == "10-11×2"
    assert d.where()[2] == 12
    assert d.fetch(data, "M3", max=10) == "12-14×2, 21-22×2, 30-44×1"
    assert d.where()[2] == 45


def test_rl_011_records_released_between_accepted_ones_come_first() -> None:
    d = Driver()
    data = [f"[{offset}]" for offset in range(20)]
    assert d.fetch("".join(data), max=10, rl=True) == "0-9×1"
    for offset in range(10):
        d.ack(f"{offset} {'Rel' if offset % 2 else 'Acc'}")
    assert d.fetch("".join(data[1:]), max=10, rl=True) == "1-1×2, 3-3×2, 5-5×2, 7-7×2, 9-9×2, 10-14×1"
    for offset in (1, 3, 5, 7, 9, *range(10, 15)):
        d.ack(f"{offset} Acc")
    assert d.fetch("".join(data[15:]), max=10, rl=True) == "15-19×1"


# IF: the limit of records in flight, Kafka's span


def test_if_001_room_is_cut_at_a_log_batch() -> None:
    d = small()
    d.fetch("[0-9]")
    assert d.fetch("[10-14][15-24][25-29][30-31]") == "10-24×1"
    assert d.machine.span == 25
    assert d.fetch("[25-29][30-31]") == ""
    assert d.where() == (0, 24, 25, 0)
    assert not can_acquire(d.machine)


def test_if_003_a_full_window_still_redelivers() -> None:
    d = small()
    d.fetch("[0-9]")
    assert d.fetch("[10-14][15-29]") == "10-29×1"
    d.ack("15-19 Rel")
    assert d.where()[2] == 15
    assert d.fetch("[15-29][30-32]") == "15-19×2"
    assert d.where()[2] == 30
    d.ack("29 Rel")
    assert d.fetch("[15-29][30-32]") == "29-29×2"


def test_if_005_redelivery_does_not_reach_behind_the_end() -> None:
    d = small()
    for batch in ("[0-4]", "[5-9]", "[10-14]", "[15-24]"):
        d.fetch(batch)
    d.ack("5-9 Rel")
    assert d.fetch("[5-9][10-14][15-24][25-30]", max=6) == "5-9×2"
    assert d.where()[2] == 25


def test_if_007_finished_records_behind_the_head_count() -> None:
    d = small()
    d.fetch("[0-14]")
    d.fetch("[15-29]")
    d.ack("10-14 Rej")
    assert d.where() == (0, 29, 30, 5)
    assert d.fetch("[30-34]") == ""


def test_if_009_a_limit_of_one_lock_allows_one_record_at_a_time() -> None:
    d = small(1)
    assert d.fetch("[0]") == "0-0×1"
    assert d.fetch("[1]") == ""


def test_if_011_the_limit_is_dynamic() -> None:
    d = small(50)
    assert d.fetch("[0-49]") == "0-49×1"
    for locks in (30, 50):
        d.configure(partition_max_record_locks=locks)
        assert d.fetch("[50-54][55-59]") == ""
    d.configure(partition_max_record_locks=51)
    assert d.fetch("[50-54][55-59]") == "50-54×1"
    d.configure(partition_max_record_locks=2000)
    assert d.fetch("[55-59]") == "55-59×1"


# Offsets without a record, and TX: aborted records


def test_offsets_without_a_record_are_archived_at_once() -> None:
    d = Driver()
    assert d.fetch("[0-9]", absent=[(0, 2), (5, 5)]) == "3-4×1, 6-9×1"
    assert d.where() == (3, 9, 10, 1)
    assert (d.machine.held_count, d.written) == (6, [])
    d.ack("3-4 Acc", "6-9 Acc")
    assert d.where() == (10, 10, 10, 0)


def test_tx_009_cut_removes_offsets_from_acquired_ranges() -> None:
    acquired = [AcquiredRange(1, 5, 1, 7, 9), AcquiredRange(10, 15, 2, 7, 9), AcquiredRange(20, 25, 1, 7, 9)]
    assert cut(acquired, [OffsetRange(2, 4), OffsetRange(12, 14)]) == [
        (1, 1, 1, 7, 9, 0),
        (5, 5, 1, 7, 9, 0),
        (10, 11, 2, 7, 9, 0),
        (15, 15, 2, 7, 9, 0),
        (20, 25, 1, 7, 9, 0),
    ]
    assert cut(acquired, [OffsetRange(0, 99)]) == []
