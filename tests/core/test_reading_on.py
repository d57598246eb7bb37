"""A fetch out of several reads of the log, on the pure machine: the records it may acquire and the reads it needs."""

import pytest
from sharequeue_gateway.share_partition.acquisition import Acquisition

from sharequeue.protocol.types import AcquireMode
from tests.core.share_partition_driver import Driver, fetched, fives, log, shown


def begin(d: Driver, member: str = "M2", *, rl: bool = True) -> Acquisition:
    mode = AcquireMode.RECORD_LIMIT if rl else AcquireMode.BATCH_OPTIMIZED
    return Acquisition(d.machine, member, mode, 500, d.now_ms)


def read(
    d: Driver, acquisition: Acquisition, data: str, max: int = 500, absent: list[tuple[int, int]] | None = None
) -> int:
    """Acquire out of one more read. Returns: how many records."""
    gone = [log(f"[{first}-{last}]")[0] for first, last in absent or ()]
    offset = d.machine.next_fetch_offset()
    return acquisition.acquire(log(data), fetch_offset=offset, max_records=max, absent=gone)  # type: ignore[arg-type]


def test_two_reads_of_one_batch_make_one_range() -> None:
    d = fetched("[0-9][10-19]")
    d.ack("5-14 Rel")
    acquisition = begin(d)
    read(d, acquisition, "[0-9]")
    read(d, acquisition, "[10-19]")
    assert shown(acquisition.acquired) == "5-14×2"


def test_offsets_without_a_record_are_cut_out_of_a_range_of_two_reads() -> None:
    d = fetched("[0-9][10-19]")
    d.ack("5-14 Rel")
    acquisition = begin(d)
    assert read(d, acquisition, "[0-9]", absent=[(6, 6)]) == 4
    assert read(d, acquisition, "[10-19]", absent=[(10, 11), (14, 14)]) == 2
    assert shown(acquisition.acquired) == "5-5×2, 7-9×2, 12-13×2"
    assert d.machine.held_count == 16


def test_offsets_without_a_record_do_not_use_up_the_limit() -> None:
    d = Driver()
    acquisition = begin(d)
    assert read(d, acquisition, "[0-9]", max=10, absent=[(2, 7)]) == 4
    assert (acquisition.left, acquisition.over) == (6, False)
    assert read(d, acquisition, "[10-19]", max=6) == 6
    assert shown(acquisition.acquired) == "0-1×1, 8-9×1, 10-15×1"
    assert acquisition.over


def test_a_record_in_its_last_delivery_ends_the_fetch() -> None:
    d = Driver([(0, 9, 0, 4), (10, 19, 0, 1)])
    acquisition = begin(d)
    assert read(d, acquisition, "[0-9]") == 1
    assert acquisition.over
    assert shown(acquisition.acquired) == "0-0×5"


def test_a_throttled_batch_is_not_added_to_an_earlier_read() -> None:
    d = Driver([(0, 4, 0, 1), (5, 9, 0, 3)])
    acquisition = begin(d)
    assert read(d, acquisition, "[0-4]") == 5
    assert not acquisition.over
    assert read(d, acquisition, "[5-9]") == 0
    assert acquisition.over
    assert shown(acquisition.acquired) == "0-4×2"


# What is worth reading


@pytest.mark.parametrize(
    ("released", "most", "offsets"),
    [
        ("0 Rel", 500, 1),
        ("0-4 Rel", 500, 5),
        ("0-4 Rel", 3, 5),
        ("0 Rel, 32 Rel", 500, 33),
        ("0 Rel, 33 Rel", 500, 1),
        ("0 Rel, 20 Rel, 40 Rel, 60 Rel", 500, 61),
        ("0 Rel, 20 Rel, 40 Rel, 60 Rel", 3, 41),
        ("168-169 Rel", 500, 530),
        ("0 Rel, 168-169 Rel", 500, 1),
    ],
)
def test_a_read_covers_available_records_that_are_near(released: str, most: int, offsets: int) -> None:
    """Up to as many records as are wanted; behind the window what is left of them."""
    d = Driver()
    d.fetch("".join(fives(0, 200)))
    for one in released.split(", "):
        d.ack(one)
    assert d.machine.reach(d.machine.next_fetch_offset(), most) == offsets


def test_a_read_after_a_load_covers_unread_offsets() -> None:
    d = Driver([(5, 9, 2, 1)])
    assert d.machine.reach(d.machine.next_fetch_offset(), 500) == 500
