"""The cost of an event: it looks at the records it concerns, not at all there are. Counted, not timed."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sharequeue_gateway.producing.partitioner import key_hash
from sharequeue_gateway.share_partition.acquisition import Acquisition

from sharequeue.protocol import apis
from sharequeue.protocol.types import AcquireMode
from sharequeue_http.forms.api import path_of
from tests.core.share_partition_driver import Driver, log, shown


class Watched(list[Any]):
    """A list that counts how often one of its items is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        self.looks += len(self)
        return super().__iter__()


def test_a_fetch_does_not_scan_records_held_by_others() -> None:
    """Members that take one record at a time share a batch of a thousand."""
    d = Driver()
    for offset in range(800):
        assert d.fetch("[0-999]", f"M{offset}", max=1, rl=True) == f"{offset}-{offset}×1"
    assert len(d.machine.runs) == 801
    d.machine.runs = watched = Watched(d.machine.runs)
    assert d.fetch("[0-999]", max=1, rl=True) == "800-800×1"
    assert watched.looks < 100


def far_apart(between: int, settle: Callable[[Driver], object]) -> Driver:
    """Two released records, and `between` single ones between them that `settle` settles."""
    d = Driver(partition_max_record_locks=100_000)
    assert d.fetch("".join(f"[{offset}]" for offset in range(between + 2)), max=100_000, bs=1)
    assert len(d.machine.runs) == between + 2
    settle(d)
    d.ack("0 Rel")
    d.ack(f"{between + 1} Rel")
    return d


SETTLE: dict[str, Callable[[Driver], object]] = {
    "finished": lambda d: d.ack(f"1-4000 {'Acc Rej ' * 2000}"),
    "delayed": lambda d: d.ack("1-4000 Rel", delay_ms=60_000),
    "delayed each for itself": lambda d: d.ack(*(f"{offset} Rel" for offset in range(1, 3501)), delay_ms=60_000),
    "held": lambda d: None,
}


@pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE)
@pytest.mark.parametrize("reads", [["[0]", "[4001]"], ["[0-4001]"]], ids=["two reads", "one read"])
def test_a_fetch_does_not_scan_unavailable_records(settle: Callable[[Driver], object], reads: list[str]) -> None:
    d = far_apart(4000, settle)
    assert d.machine.reach(0, 500) == 1
    machine = d.machine
    machine.runs = watched = Watched(machine.runs)
    assert [machine.next_fetch_offset(), machine.acquirable_from(1)] == [0, 4001]
    acquisition = Acquisition(machine, "M2", AcquireMode.RECORD_LIMIT, 500, d.now_ms)
    for read in reads:
        acquisition.acquire(log(read), fetch_offset=machine.next_fetch_offset(), max_records=500)
    assert shown(acquisition.acquired) == "0-0×2, 4001-4001×2"
    assert machine.next_fetch_offset() == 4002
    assert watched.looks < 200


@pytest.mark.parametrize(
    "work",
    [lambda text: path_of(apis.DELETE_TOPIC, topic=text), lambda text: key_hash(text.encode())],
    ids=["path", "key"],
)
def test_long_texts_of_clients_are_not_cached(work: Callable[[str], object]) -> None:
    """Names and keys are as long as a request may be: a cache of them would take all memory there is."""
    tracemalloc.start()
    try:
        for number in range(20):
            work(f"{number}-{'x' * 10_000}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_delays_that_end_together_end_a_thousand_runs_at_a_time() -> None:
    d = far_apart(3500, SETTLE["delayed each for itself"])
    d.now_ms += 60_000
    ended, calls = 0, 0
    while (deadline_ms := d.machine.next_deadline_ms()) is not None and deadline_ms <= d.now_ms:
        before = d.machine.delayed_count
        assert d.machine.expire(d.now_ms).made_available
        assert 0 < before - d.machine.delayed_count <= 1000
        ended, calls = ended + before - d.machine.delayed_count, calls + 1
    assert (ended, calls, d.machine.delayed_count) == (3500, 4, 0)
    assert d.machine.waiting_count == 3502


def test_locks_of_one_range_that_end_together_end_a_thousand_runs_at_a_time() -> None:
    d = Driver(partition_max_record_locks=10_000)
    assert d.fetch("[0-4999]", max=10_000) == "0-4999×1"
    d.ack(*(f"{offset} Acc" for offset in range(1, 5000, 2)))
    ended = [d.later(), *(d.later(0) for _ in range(10))]
    assert max(ended) <= 1000
    assert (sum(ended), d.machine.held_count, d.machine.waiting_count) == (2500, 0, 2500)
