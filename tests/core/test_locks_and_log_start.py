"""Scenarios of time and of the log: families LT, LS, CP, TH and DQ on the pure machine."""

from itertools import pairwise

import pytest

from sharequeue.protocol.errors import InvalidRecordState
from tests.core.share_partition_driver import Driver

REJECTED = "Offset rejected by client."
LIMIT = "Offset delivery count exceeded the threshold."


def fetched(*batches: str, start: int = 0, **config: object) -> Driver:
    """A share-partition whose batches were fetched one by one by M1."""
    d = Driver(start=start, **config)  # type: ignore[arg-type]
    for batch in batches:
        d.fetch(batch)
    return d


def fives(first: int, last: int) -> list[str]:
    return [f"[{offset}-{offset + 4}]" for offset in range(first, last, 5)]


# LT: locks that end


def test_lt_001_an_expired_lock() -> None:
    d = fetched("[5-9]", start=5)
    assert d.later() == 5
    assert (d.states(), d.where()) == ("5-9 AV×1", (5, 9, 5, 0))
    assert d.written == [[(5, 9, 0, 1)]]
    for acknowledgement in ("5-9 Acc", "5-9 Rej"):
        with pytest.raises(InvalidRecordState):
            d.ack(acknowledgement)
    assert d.states() == "5-9 AV×1"


def test_lt_003_an_expired_lock_at_the_limit() -> None:
    d = fetched("[0-9]", delivery_count_limit=2)
    d.later()
    assert d.fetch("[0-9]", max=5, rl=True) == "0-4×2"
    assert d.later() == 5
    assert d.written[-1] == [(0, 4, 4, 2)]
    assert (d.states(), d.where()) == ("5-9 AV×1", (5, 9, 5, 0))


def test_lt_005_only_what_is_due_expires() -> None:
    d = fetched("[10-17]", start=10)
    assert d.later() == 8
    assert d.fetch("[12-14]", at=12) == "12-14×2"
    assert d.later() == 3
    assert (d.states(), d.where()[2]) == ("10-11 AV×1 | 12-14 AV×2 | 15-17 AV×1", 10)


def test_lt_007_locks_between_finished_records() -> None:
    d = fetched("[5-6]", "[10-20]", start=5)
    d.ack("6-18 Acc Acc Acc Acc Acc Acc Gap Gap Acc Gap Acc Gap Acc")
    assert d.later() == 3
    assert d.where() == (5, 20, 5, 10)
    assert [run.first for run in d.machine.in_flight() if run.acquirable] == [5, 19]


def test_lt_009_a_running_lock_keeps_its_length() -> None:
    d = fetched("[0]")
    d.configure(record_lock_duration_ms=60_000)
    assert d.later(29_999) == 0
    assert d.later(1) == 1
    d.fetch("[0]")
    assert d.later(59_999) == 0
    assert d.later(1) == 1


def test_lt_011_an_expiry_stands_though_its_write_fails() -> None:
    d = fetched("[0-4]", hold_writes=True)
    d.later()
    d.finish(ok=False)
    assert (d.states(), d.where()) == ("0-4 AV×1", (0, 4, 0, 0))
    assert d.fetch("[0-4]") == "0-4×2"


def test_lt_013_an_acknowledgement_on_its_way_beats_the_lock() -> None:
    d = fetched("[0-4]", "[5-19]", hold_writes=True)
    d.ack("0-1 Rel Acc")
    d.ack("5-19 Acc")
    assert d.later() == 3
    assert (d.states(), d.where()[3]) == ("0-0 AV×1 | 1-1 AK×1 | 2-4 AV×1 | 5-19 AK×1", 16)
    assert d.where()[2] == 2
    d.finish()
    assert d.where()[2] == 0


def test_a_lock_ends_at_its_deadline_and_not_before() -> None:
    d = fetched("[0-4]")
    assert d.machine.next_deadline_ms() == d.now_ms + 30_000
    assert d.later(29_999) == 0
    assert (d.states(), d.machine.held_count) == ("0-4 AQ×1", 5)
    assert d.later(1) == 5
    assert (d.machine.next_deadline_ms(), d.machine.held_count) == (None, 0)
    assert [(run.member_id, run.lock_expires_at_ms) for run in d.machine.in_flight()] == [(None, 0)]


def test_deadlines_are_not_lost_among_many_that_are_over() -> None:
    d = fetched("[0]")
    for _ in range(500):
        d.ack("0 Ren")
        d.now_ms += 1
    d.fetch("[1]")
    assert d.later(29_998) == 0
    assert d.later(1) == 1
    assert d.states() == "0-0 AV×1 | 1-1 AQ×1"
    assert d.later(1) == 1


# LS: the log start moves


def test_ls_001_available_records_are_gone_and_held_ones_stay() -> None:
    d = fetched(*fives(2, 36), start=2)
    for acknowledgement in ("2-6 Acc", "12-16 Rel", "22-26 Rel", "27-31 Rej"):
        d.ack(acknowledgement)
    assert d.machine.move_log_start(20, d.now_ms)
    assert d.where() == (20, 36, 22, 5)
    assert d.states() == "7-11 AQ×1 | 12-16 AR×1 | 17-21 AQ×1 | 22-26 AV×1 | 27-31 AR×1 | 32-36 AQ×1"


def test_ls_003_finished_records_below_it_are_counted_no_more() -> None:
    d = fetched(*fives(2, 36), start=2)
    for acknowledgement in ("7-11 Acc", "12-16 Rel", "22-26 Rel", "27-31 Rej", "19-21 Rej"):
        d.ack(acknowledgement)
    assert d.where()[3] == 13
    d.machine.move_log_start(20, d.now_ms)
    assert d.where() == (20, 36, 22, 7)
    assert "17-18 AQ×1 | 19-21 AR×1 | 22-26 AV×1" in d.states()


def test_ls_005_it_cuts_an_available_batch() -> None:
    d = fetched(*fives(1, 40), start=1)
    d.ack("31-40 Rel")
    d.machine.move_log_start(36, d.now_ms)
    assert d.where() == (36, 40, 36, 0)
    assert d.states().endswith("31-35 AR×1 | 36-40 AV×1")


def test_ls_007_twice() -> None:
    d = fetched("[2-6]", "[7-11]", start=2)
    d.machine.move_log_start(4, d.now_ms)
    d.ack("7-8 Rel")
    d.machine.move_log_start(7, d.now_ms)
    assert d.where() == (7, 11, 7, 0)
    assert d.states() == "2-6 AQ×1 | 7-8 AV×1 | 9-11 AQ×1"


def test_ls_009_to_the_last_record() -> None:
    d = fetched("[2-6]", "[7-11]", start=2)
    d.ack("7-8 Rel", "11 Rel")
    d.machine.move_log_start(11, d.now_ms)
    assert d.where() == (11, 11, 11, 0)
    assert d.states() == "2-6 AQ×1 | 7-8 AR×1 | 9-10 AQ×1 | 11-11 AV×1"


def test_ls_011_beyond_the_window() -> None:
    d = fetched("[2-6]", start=2)
    d.machine.move_log_start(7, d.now_ms)
    assert (d.where(), d.states()) == ((7, 7, 7, 0), "2-6 AQ×1")
    d.later()
    assert (d.where(), d.states()) == ((7, 7, 7, 0), "")
    assert d.fetch("[10-14]") == "10-14×1"
    assert d.where()[:2] == (10, 14)
    d.ack("2-14 Rel")
    assert (d.where(), d.states()) == ((10, 14, 10, 0), "10-14 AV×1")


def test_ls_013_into_a_hole() -> None:
    d = fetched("[2-6]", "[10-14]", "[20-24]", start=2)
    d.machine.move_log_start(18, d.now_ms)
    assert d.where() == (18, 24, 25, 0)
    assert d.states() == "2-6 AQ×1 | 10-14 AQ×1 | 20-24 AQ×1"


def test_ls_015_a_held_record_below_it_blocks_until_its_lock_ends() -> None:
    d = fetched("[2-6]", "[10-14]", "[20-24]", start=2)
    d.machine.move_log_start(14, d.now_ms)
    d.ack("2-14 Acc")
    assert d.written == [[(14, 14, 2, 1)]]
    assert d.where() == (14, 24, 25, 1)
    assert d.states() == "2-6 AQ×1 | 10-13 AQ×1 | 14-14 AK×1 | 20-24 AQ×1"
    d.later()
    assert d.where() == (20, 24, 20, 0)


@pytest.mark.parametrize("closing", [True, False])
def test_ls_017_what_ends_below_it_is_archived(closing: bool) -> None:
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


def test_ls_019_failing_writes_across_it() -> None:
    d = fetched("[2-6]", "[7-11]", start=2, hold_writes=True)
    d.ack("2-6 Rel")
    d.ack("7-11 Acc")
    d.machine.move_log_start(7, d.now_ms)
    assert d.where()[3] == 5
    d.finish(ok=False)
    d.finish(ok=False)
    assert (d.states(), d.where()) == ("7-11 AQ×1", (7, 11, 12, 0))


def test_ls_021_inside_a_loaded_batch() -> None:
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


def test_ls_023_the_next_fetch_begins_at_it() -> None:
    d = Driver()
    assert d.machine.move_log_start(100, d.now_ms)
    assert d.where() == (100, 100, 100, 0)
    assert d.fetch("[95-104]") == "100-104×1"


def test_a_log_start_behind_the_start_offset_is_ignored() -> None:
    d = fetched("[0-9]")
    d.ack("0-4 Acc")
    for log_start_offset in (0, 5):
        assert not d.machine.move_log_start(log_start_offset, d.now_ms)
    assert d.where() == (5, 9, 10, 0)


def test_what_ends_before_it_does_not_move_the_start_back() -> None:
    d = fetched("[0-2]")
    d.fetch("[3-9]", "M2")
    d.machine.move_log_start(5, d.now_ms)
    d.close("M1")
    assert (d.states(), d.where()) == ("3-9 AQ×1", (5, 9, 10, 0))


def test_a_delayed_record_below_it_is_gone() -> None:
    d = fetched("[0-4]", "[5-9]")
    d.ack("0-4 Rel", delay_ms=1_000)
    d.machine.move_log_start(5, d.now_ms)
    assert (d.states(), d.machine.held_count, d.where()) == ("5-9 AQ×1", 5, (5, 9, 10, 0))
    assert d.later(1_000) == 0


# CP: compaction and holes


def test_cp_001_batches_that_compaction_removed() -> None:
    d = fetched("[0-4]", "[5-9]", "[10-24]")
    d.close()
    assert d.fetch("[5-9]", at=0) == "5-9×2"
    assert (d.states(), d.where()) == ("0-4 AR×1 | 5-9 AQ×2 | 10-24 AV×1", (0, 24, 10, 5))
    assert len(d.written) == 1
    d.close()
    assert d.where() == (5, 24, 5, 0)


def test_cp_003_a_part_of_a_batch() -> None:
    d = Driver()
    d.fetch("[0-4][5-19][20-34]")
    d.close()
    assert d.fetch("[5-9]", at=0) == "5-9×2"
    assert d.where() == (0, 34, 10, 5)
    d.close()
    assert (d.states(), d.where()[0]) == ("5-9 AV×2 | 10-34 AV×1", 5)


def test_cp_005_a_loaded_batch() -> None:
    d = Driver([(11, 20, 0, 1), (21, 30, 0, 1)], start=11)
    assert d.fetch("[21-30]", at=11) == "21-30×2"
    assert (d.states(), d.where()) == ("11-20 AR×1 | 21-30 AQ×2", (11, 30, 31, 10))


def test_a_natural_hole_is_left_alone() -> None:
    d = fetched("[0-4]", "[10-14]")
    d.close()
    assert d.fetch("[0-14]") == "0-4×2, 10-14×2"


def test_a_hole_that_compaction_made_is_passed() -> None:
    d = Driver([(5, 9, 2, 1), (15, 19, 0, 1)], start=0)
    assert d.fetch("[3-7]", at=0) == "3-4×1"
    assert d.where() == (3, 19, 10, 5)
    assert d.fetch("[12-13]", at=10) == "12-13×1"
    d.ack("3-4 Acc")
    assert d.where() == (12, 19, 14, 0)


# TH: throttled redelivery


def test_th_001_a_throttled_batch_waits_for_a_call_of_its_own() -> None:
    d = Driver([(15, 19, 0, 2), (20, 22, 4, 3), (26, 30, 0, 3)], start=5)
    assert d.fetch("[7-19][20-27]") == "7-14×1, 15-19×3, 23-25×1"
    assert d.where()[2:] == (26, 3)
    assert d.fetch("[20-27]") == "26-27×4"
    assert d.where()[3] == 3


def test_th_003_the_last_delivery_comes_alone() -> None:
    d = Driver([(15, 34, 0, 2)], start=15)
    data = "[15-34]"
    assert d.fetch(data) == "15-34×3"
    d.ack("17 Rel", "20 Rel")
    assert d.fetch(data) == "17-17×4, 20-20×4"
    d.ack("15-34 Rel")
    assert d.fetch(data) == "15-16×4"
    assert d.fetch(data) == "17-17×5"
    assert d.fetch(data) == "18-19×4"
    assert d.fetch(data) == "20-20×5"
    assert d.fetch(data) == "21-30×4"
    assert d.fetch(data) == "31-34×4"


def test_th_005_what_is_pending_is_skipped() -> None:
    state = [(15, 19, 0, 1), (40, 44, 4, 5), (45, 49, 0, 1)]
    state += [(first, first + 4, 0, 2) for first in (20, 25, 30, 35)]
    # Neighbours of one count stay batches of their own: they are loaded as they were persisted.
    d = Driver(sorted(state), start=15, hold_writes=True)
    assert d.fetch("[20-24]", at=20) == "20-24×3"
    assert d.fetch("[36-37]", at=36) == "36-37×3"
    d.close()
    data = "".join(fives(15, 50))
    assert d.fetch(data, max=10) == "15-19×2, 25-29×3"
    assert d.fetch(data, at=30) == "30-34×3, 35-35×3, 38-39×3, 45-49×2"


def released_until_gone(limit: int, records: int) -> list[tuple[int, int]]:
    """(first offset, size) of each fetch when everything is released each time."""
    d = Driver(delivery_count_limit=limit)
    fetches = []
    deliveries = [0] * records
    while ranges := d.fetch(f"[0-{records - 1}]", max=records):
        offsets = []
        for acquired in ranges.split(", "):
            first, last = acquired.partition("×")[0].split("-")
            offsets += list(range(int(first), int(last) + 1))
        fetches.append((offsets[0], len(offsets)))
        for offset in offsets:
            deliveries[offset] += 1
        d.ack(f"{offsets[0]}-{offsets[-1]} Rel")
        if d.where()[0] == records:
            break
    assert deliveries == [limit] * records
    assert d.machine.window_empty
    return fetches


def test_th_007_a_poison_record_is_isolated_step_by_step() -> None:
    fetches = released_until_gone(10, 512)
    sizes = [size for _, size in fetches]
    assert sizes[:9] == [512] * 5 + [256, 128, 64, 32]
    assert fetches[9:41] == [(offset, 1) for offset in range(32)]
    assert fetches[41] == (32, 32)
    assert fetches[42:74] == [(offset, 1) for offset in range(32, 64)]
    assert fetches[74:76] == [(64, 64), (64, 32)]
    assert fetches[76:108] == [(offset, 1) for offset in range(64, 96)]
    assert fetches[108] == (96, 32)


def test_th_009_a_limit_of_two_does_not_throttle() -> None:
    assert released_until_gone(2, 512) == [(0, 512), (0, 512)]


@pytest.mark.parametrize(
    ("limit", "records", "sizes"),
    [
        pytest.param(5, 20, [20, 20, 20, 10, 1], id="5-20"),
        pytest.param(7, 20, [20, 20, 20, 20, 10, 5, 1], id="7-20"),
        pytest.param(10, 500, [500, 500, 500, 500, 500, 250, 125, 62, 31, 1], id="10-500"),
        pytest.param(5, 100, [100, 100, 100, 50, 1], id="5-100"),
        pytest.param(3, 8, [8, 8, 1], id="3-8"),
        pytest.param(1, 8, [8], id="1-8"),
    ],
)
def test_portions(limit: int, records: int, sizes: list[int]) -> None:
    fetches = released_until_gone(limit, records)
    head = [size for _, size in fetches[: len(sizes)]]
    assert head == sizes
    assert sum(size for _, size in fetches) == limit * records


def test_a_throttled_portion_counts_every_record_of_its_batch() -> None:
    d = fetched("[0-9]")
    for _ in range(2):
        d.ack("4-9 Rel")
        d.fetch("[0-9]")
    d.close()
    assert d.states() == "0-3 AV×1 | 4-9 AV×3"
    assert d.fetch("[0-9]") == "0-3×2, 4-4×4"


def test_record_limit_holds_for_a_throttled_portion() -> None:
    d = Driver([(0, 19, 0, 3)])
    assert d.fetch("[0-19]", max=4, rl=True) == "0-3×4"
    assert d.fetch("[0-19]", max=4) == "4-13×4"


def test_a_throttled_batch_ends_the_call() -> None:
    d = Driver([(0, 3, 0, 3), (4, 7, 0, 1)])
    assert d.fetch("[0-3][4-7][8-9]") == "0-1×4"
    assert [first for first, _ in pairwise([run.first for run in d.machine.in_flight()])] == [0, 2]


# DQ: dead letters


def dead(d: Driver) -> list[tuple[int, int, int, str, str | None]]:
    return [tuple(letter) for letter in d.dead_letters]  # type: ignore[misc]


def with_dead_letters(*batches: str, **config: object) -> Driver:
    return fetched(*batches, dead_letter_topic_name="dlq", **config)


def test_dq_001_rejected_records_wait_for_their_dead_letters() -> None:
    d = with_dead_letters("[0-4]")
    d.ack("0-4 Rej", reason="malformed")
    assert d.written == [[(0, 4, 3, 1)]]
    assert d.writes[0].annotations[0].reason == "malformed"
    assert dead(d) == [(0, 4, 1, REJECTED, "malformed")]
    assert (d.states(), d.where(), d.machine.held_count) == ("0-4 ARCHIVING×1", (0, 4, 5, 0), 5)
    d.archived(0, 4)
    assert d.written[-1] == [(0, 4, 4, 1)]
    assert (d.where(), d.machine.held_count) == ((5, 5, 5, 0), 0)


def test_dq_003_rejected_and_released_to_the_limit() -> None:
    d = with_dead_letters("[0-5]", delivery_count_limit=2)
    d.ack("0-5 Rej Rel Acc Rej Rel Acc")
    d.fetch("[0-5]")
    d.ack("1 Rel", "4 Rel")
    assert sorted(dead(d)) == [
        (0, 0, 1, REJECTED, None),
        (1, 1, 2, LIMIT, None),
        (3, 3, 1, REJECTED, None),
        (4, 4, 2, LIMIT, None),
    ]


def test_dq_013_only_the_rejected_of_a_batch() -> None:
    d = with_dead_letters("[0-4]", "[5-9]")
    d.ack("0-4 Acc Acc Acc Rej Rej")
    # One range with one cause is one entry; Kafka enqueues offsets one by one once a batch is split.
    assert dead(d) == [(3, 4, 1, REJECTED, None)]
    assert d.where() == (3, 9, 10, 0)
    d.archived(3, 4)
    assert d.where() == (5, 9, 10, 0)


def test_dq_015_locks_that_end_at_the_limit() -> None:
    d = with_dead_letters("[0-9]", delivery_count_limit=2)
    d.later()
    assert d.fetch("[0-9]", max=5, rl=True) == "0-4×2"
    d.ack("0-4 Acc")
    assert d.fetch("[0-9]") == "5-9×2"
    d.hold_writes = True
    assert d.later() == 5
    assert dead(d) == [(5, 9, 2, LIMIT, None)]
    assert d.written[-1] == [(5, 9, 3, 2)]
    d.finish(ok=False)
    assert d.states() == "5-9 ARCHIVING×2"
    for offset in range(5, 10):
        d.archived(offset, offset)
        d.finish()
    assert d.where() == (10, 10, 10, 0)


def test_dq_017_archiving_is_neither_delivered_nor_finished() -> None:
    d = with_dead_letters("[0-4]")
    d.ack("0-4 Rej")
    assert d.fetch("[0-4]", at=0) == ""
    assert d.where()[0] == 0
    with pytest.raises(InvalidRecordState):
        d.ack("0-4 Acc")
    assert d.later() == 0
    assert d.states() == "0-4 ARCHIVING×1"


def test_dq_017_a_dead_letter_is_due_when_the_first_phase_is_durable() -> None:
    d = with_dead_letters("[0-4]", hold_writes=True)
    d.ack("0-4 Rej")
    assert d.dead_letters == []
    assert d.machine.complete_dead_letter(0, 4, d.now_ms) is None
    d.finish(ok=False)
    assert (d.dead_letters, d.states()) == ([], "0-4 AQ×1")
    d.ack("0-4 Rej")
    d.finish()
    assert dead(d) == [(0, 4, 1, REJECTED, None)]


def test_of_a_dead_letter_across_the_log_start_the_rest_is_written() -> None:
    d = with_dead_letters("[0-9]")
    d.ack("0-9 Rej")
    d.machine.move_log_start(5, d.now_ms)
    d.archived(0, 9)
    assert d.written[-1] == [(5, 9, 4, 1)]
    assert d.where() == (10, 10, 10, 0)


def test_the_write_that_archives_a_dead_letter_is_best_effort() -> None:
    d = with_dead_letters("[0-4]")
    d.ack("0-4 Rej")
    d.hold_writes = True
    d.archived(0, 4)
    assert d.writes[-1].delivery_complete_count == 5
    d.finish(ok=False)
    assert d.where() == (5, 5, 5, 0)


def test_dq_021_archiving_is_resumed() -> None:
    d = Driver([(5, 9, 0, 2), (10, 14, 3, 5)], start=5, dead_letter_topic_name="dlq")
    assert dead(d) == [(10, 14, 5, LIMIT, None)]
    assert d.where() == (5, 14, 5, 0)
    d.archived(10, 14)
    assert d.written == [[(10, 14, 4, 5)]]
    assert d.where() == (5, 14, 5, 5)


def test_dq_023_causes_are_inferred() -> None:
    d = Driver([(0, 4, 0, 1), (5, 9, 3, 2), (10, 14, 3, 5)])
    assert dead(d) == [(5, 9, 2, REJECTED, None), (10, 14, 5, LIMIT, None)]
    d.archived(5, 9)
    d.archived(10, 14)
    assert len(d.written) == 2
    assert d.where() == (0, 14, 0, 10)


@pytest.mark.parametrize("how", ["gap", "compaction", "log start", "rollback"])
def test_what_makes_no_dead_letter(how: str) -> None:
    d = with_dead_letters("[0-4]", delivery_count_limit=1, hold_writes=True)
    if how == "gap":
        d.ack("0-4 Gap")
        d.finish()
    elif how == "compaction":
        d.configure(delivery_count_limit=2)
        d.close()
        d.finish()
        d.fetch("[5-9]", at=0)
    elif how == "log start":
        d.machine.move_log_start(5, d.now_ms)
        d.later()
    else:
        d.ack("0-4 Acc")
        d.later()
        d.finish(ok=False)
    assert d.dead_letters == []
    assert d.where()[0] == (0 if how == "compaction" else 5)


def test_closing_at_the_limit_makes_dead_letters() -> None:
    d = with_dead_letters("[0-4]", delivery_count_limit=1)
    d.close()
    assert dead(d) == [(0, 4, 1, LIMIT, None)]
