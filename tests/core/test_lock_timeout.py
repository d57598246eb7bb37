"""Scenarios of locks that end and of poison records: families LT and TH on the pure machine."""

from itertools import pairwise

import pytest

from sharequeue.protocol.errors import InvalidRecordState
from tests.core.share_partition_driver import Driver, fetched, fives

# LT: locks that end


def test_lt_001_an_expired_lock_frees_its_records() -> None:
    d = fetched("[5-9]", start=5)
    assert d.later() == 5
    assert (d.states(), d.where()) == ("5-9 AV×1", (5, 9, 5, 0))
    assert d.written == [[(5, 9, 0, 1)]]
    for acknowledgement in ("5-9 Acc", "5-9 Rej"):
        with pytest.raises(InvalidRecordState):
            d.ack(acknowledgement)
    assert d.states() == "5-9 AV×1"


def test_lt_003_an_expired_lock_at_the_limit_archives() -> None:
    d = fetched("[0-9]", delivery_count_limit=2)
    d.later()
    assert d.fetch("[0-9]", max=5, rl=True) == "0-4×2"
    assert d.later() == 5
    assert d.written[-1] == [(0, 4, 4, 2)]
    assert (d.states(), d.where()) == ("5-9 AV×1", (5, 9, 5, 0))


def test_lt_005_only_due_locks_expire() -> None:
    d = fetched("[10-17]", start=10)
    assert d.later() == 8
    assert d.fetch("[12-14]", at=12) == "12-14×2"
    assert d.later() == 3
    assert (d.states(), d.where()[2]) == ("10-11 AV×1 | 12-14 AV×2 | 15-17 AV×1", 10)


def test_lt_007_locks_between_finished_records_expire() -> None:
    d = fetched("[5-6]", "[10-20]", start=5)
    d.ack("6-18 Acc Acc Acc Acc Acc Acc Gap Gap Acc Gap Acc Gap Acc")
    assert d.later() == 3
    assert d.where() == (5, 20, 5, 10)
    assert [run.first for run in d.machine.runs if run.acquirable] == [5, 19]


def test_lt_009_a_running_lock_keeps_its_duration() -> None:
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


def test_a_deadline_survives_many_outdated_ones() -> None:
    d = fetched("[0]")
    for _ in range(500):
        d.ack("0 Ren")
        d.now_ms += 1
    d.fetch("[1]")
    assert d.later(29_998) == 0
    assert d.later(1) == 1
    assert d.states() == "0-0 AV×1 | 1-1 AQ×1"
    assert d.later(1) == 1


# TH: throttled redelivery


def test_th_001_a_throttled_batch_waits_for_a_call_of_its_own() -> None:
    d = Driver([(15, 19, 0, 2), (20, 22, 4, 3), (26, 30, 0, 3)], start=5)
    assert d.fetch("[7-19][20-27]") == "7-14×1, 15-19×3, 23-25×1"
    assert d.where()[2:] == (26, 3)
    assert d.fetch("[20-27]") == "26-27×4"
    assert d.where()[3] == 3


def test_th_003_a_record_is_alone_in_its_last_delivery() -> None:
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


def test_th_005_records_with_a_pending_write_are_skipped() -> None:
    """The counts differ from the scenario's: neighbours of one state and count are one batch here."""
    state = [(15, 19, 0, 1), (40, 44, 4, 5), (45, 49, 0, 1)]
    state += [(first, first + 4, 0, count) for first, count in ((20, 2), (25, 1), (30, 2), (35, 1))]
    d = Driver(sorted(state), start=15, hold_writes=True)
    assert d.fetch("[20-24]", at=20) == "20-24×3"
    assert d.fetch("[36-37]", at=36) == "36-37×2"
    d.close()
    data = "".join(fives(15, 50))
    assert d.fetch(data, max=10) == "15-19×2, 25-29×2"
    assert d.fetch(data, at=30) == "30-34×3, 35-35×2, 38-39×2, 45-49×2"


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
    assert not d.machine.runs
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
def test_throttled_portions_halve_until_the_last_delivery(limit: int, records: int, sizes: list[int]) -> None:
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


def test_with_a_limit_of_two_the_last_delivery_is_not_split() -> None:
    d = fetched("[0-9]")
    for _ in range(2):
        d.ack("5-9 Rel")
        d.fetch("[0-9]")
    d.close()
    d.configure(delivery_count_limit=2)
    assert d.states() == "0-4 AV×1 | 5-9 AV×3"
    assert d.fetch("[0-9]") == "0-4×2"


def test_record_limit_holds_for_a_throttled_portion() -> None:
    d = Driver([(0, 19, 0, 3)])
    assert d.fetch("[0-19]", max=4, rl=True) == "0-3×4"
    assert d.fetch("[0-19]", max=4) == "4-13×4"


def test_a_throttled_batch_ends_the_call() -> None:
    d = Driver([(0, 3, 0, 3), (4, 7, 0, 1)])
    assert d.fetch("[0-3][4-7][8-9]") == "0-1×4"
    assert [first for first, _ in pairwise([run.first for run in d.machine.runs])] == [0, 2]
