"""New records get their share of the fetches beside records that are delivered again and again."""

import pytest
from sharequeue_gateway.share_partition.acquisition import Acquisition
from sharequeue_gateway.share_partition.new_records import begin_at_new

from sharequeue.protocol.types import AcquireMode
from tests.core.share_partition_driver import Batch, Driver, fetched


@pytest.mark.parametrize(
    ("percent", "at_new"),
    [(75, "...n...n...n"), (100, "............"), (0, "nnnnnnnnnnnn"), (50, ".n.n.n.n.n.n"), (90, ".........n..")],
)
def test_a_share_of_the_fetches_begins_at_new_records(percent: int, at_new: str) -> None:
    d = fetched("[0-9]", redelivery_percent=percent)
    d.ack("0-9 Rel")
    assert [begin_at_new(d.machine) for _ in range(12)] == [10 if at == "n" else None for at in at_new]


def test_no_fetch_begins_at_new_records_while_a_gap_is_unread() -> None:
    """What lies in the gap comes first: new records behind it would end it."""
    d = Driver([(0, 4, 0, 1), (10, 14, 0, 1)], redelivery_percent=0)
    assert begin_at_new(d.machine) is None
    assert d.fetch("[0-4][5-9]", max=10) == "0-4×2, 5-9×1"
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) == 15


def test_what_is_left_of_a_new_batch_needs_no_room_for_new_records() -> None:
    """It is in the window already: the bound of what waits stops only records behind the end."""
    d = Driver(redelivery_percent=0, partition_max_record_locks=10, partition_max_delayed_records=0)
    assert d.fetch("[0-99]", max=10, rl=True) == "0-9×1"
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) == 10
    assert d.fetch("[0-99]", rl=True, at=10) == "10-14×1"


@pytest.mark.parametrize(("batch", "most"), [(1, 100), (500, 100), (500, 10)])
def test_records_that_always_fail_leave_new_ones_a_fifth_of_the_rate(batch: int, most: int) -> None:
    """50,000 fail without a delay, 100 may be held; behind them each record is accepted."""
    failing, fetches = 50_000, 3000
    d = Driver(partition_max_record_locks=100, delivery_count_limit=100, throttle_released=False)
    machine = d.machine
    while machine.end_offset < failing - 1:
        taken = fetch(d, machine.first_new() if machine.runs else 0, batch, 100)
        d.ack(*(f"{first}-{last} Rel" for first, last, *_ in taken))
    machine.new_turn = 0
    new = 0
    for _ in range(fetches):
        offset = begin_at_new(machine)
        taken = fetch(d, machine.next_fetch_offset() if offset is None else offset, batch, most)
        for first, last, *_ in taken:
            fails = first < failing
            d.ack(f"{first}-{last} {'Rel' if fails else 'Acc'}")
            new += 0 if fails else last - first + 1
    assert new >= 0.2 * fetches * most


def fetch(d: Driver, offset: int, batch: int, most: int) -> list[tuple[int, ...]]:
    """Read up to `most` records from `offset` on, in log batches of `batch` records, and acquire them."""
    acquisition = Acquisition(d.machine, "M1", AcquireMode.RECORD_LIMIT, 500, d.now_ms)
    begin = offset - offset % batch
    extents = [Batch(first, first + batch - 1) for first in range(begin, offset + most, batch)]
    acquisition.acquire(extents, fetch_offset=offset, max_records=most)
    return list(acquisition.acquired)


def test_no_fetch_begins_at_new_records_without_room_for_one() -> None:
    d = fetched("[0-9]", redelivery_percent=0, partition_max_record_locks=10, partition_max_delayed_records=0)
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) is None
    d.configure(partition_max_delayed_records=1)
    assert begin_at_new(d.machine) == 10
