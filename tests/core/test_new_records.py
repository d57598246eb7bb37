"""New records get their share of the fetches beside records that are delivered again and again."""

import pytest
from sharequeue_gateway.share_partition.acquisition import Acquisition
from sharequeue_gateway.share_partition.new_records import begin_at_new

from sharequeue.protocol.types import AcquireMode
from tests.core.share_partition_driver import Batch, Driver, fetched


def begins(d: Driver, fetches: int) -> list[int | None]:
    return [begin_at_new(d.machine) for _ in range(fetches)]


@pytest.mark.parametrize(
    ("percent", "at_new"),
    [(75, "...n...n...n"), (100, "............"), (0, "nnnnnnnnnnnn"), (50, ".n.n.n.n.n.n"), (90, ".........n..")],
)
def test_a_share_of_the_fetches_begins_at_new_records(percent: int, at_new: str) -> None:
    d = fetched("[0-9]", redelivery_percent=percent)
    d.ack("0-9 Rel")
    assert begins(d, 12) == [10 if at == "n" else None for at in at_new]


def test_fetches_that_find_no_retried_records_are_not_counted() -> None:
    d = fetched("[0-9]")
    assert begins(d, 3) == [None] * 3
    d.ack("0-9 Rel", delay_ms=5_000)
    assert begins(d, 3) == [None] * 3
    d.later(5_000)
    assert begins(d, 4) == [None, None, None, 10]


def test_new_records_that_are_left_of_a_batch_come_before_those_behind_it() -> None:
    d = Driver(redelivery_percent=0)
    assert d.fetch("[0-99]", max=10, rl=True) == "0-9×1"
    assert begin_at_new(d.machine) is None
    d.ack("0-9 Rel")
    assert begin_at_new(d.machine) == 10
    assert d.fetch("[0-99]", max=10, rl=True, at=10) == "10-19×1"
    assert begin_at_new(d.machine) == 20
    assert d.fetch("[0-99][100-149]", max=100, rl=True, at=20) == "20-99×1, 100-119×1"
    assert begin_at_new(d.machine) == 120
    d.ack("30-39 Rel")
    assert d.fetch("[100-149]", max=100, rl=True, at=120) == "120-149×1"
    d.ack("120-149 Rel")
    assert begin_at_new(d.machine) == 150


def test_a_fetch_that_begins_at_new_records_leaves_the_others_of_their_batch() -> None:
    d = fetched("[0-9]")
    d.ack("0-9 Rel")
    assert d.fetch("[0-19]", at=10) == "10-19×1"
    assert d.fetch("[0-19]") == "0-9×2"


def test_no_fetch_begins_at_new_records_while_a_gap_is_unread() -> None:
    """What lies in the gap comes first: new records behind it would end it."""
    d = Driver([(0, 4, 0, 1), (10, 14, 0, 1)], redelivery_percent=0)
    assert begin_at_new(d.machine) is None
    assert d.fetch("[0-4][5-9]", max=10) == "0-4×2, 5-9×1"
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) == 15


def test_no_fetch_begins_at_new_records_without_room_for_one() -> None:
    d = fetched("[0-9]", redelivery_percent=0, partition_max_record_locks=10, partition_max_delayed_records=0)
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) is None
    d.configure(partition_max_delayed_records=1)
    assert begin_at_new(d.machine) == 10


def test_what_is_left_of_a_new_batch_needs_no_room_for_new_records() -> None:
    """It is in the window already: the bound of what waits stops only records behind the end."""
    d = Driver(redelivery_percent=0, partition_max_record_locks=10, partition_max_delayed_records=0)
    assert d.fetch("[0-99]", max=10, rl=True) == "0-9×1"
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) == 10
    assert d.fetch("[0-99]", rl=True, at=10) == "10-14×1"


def test_kafkas_span_leaves_no_room_for_new_records() -> None:
    d = fetched("[0-9]", redelivery_percent=0, partition_max_record_locks=10, count_span=True)
    d.ack("0-4 Rel")
    assert begin_at_new(d.machine) is None


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
