"""What memory tells a read_committed fetch, beside a model of the log: never a record too many, and none too few.

The model is a list of batches and markers. The cache learns of it as a gateway does, in any order: it sees batches that
it appended or read, hears of ends, and gets snapshots of the database.
"""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sharequeue_gateway.delivery.partition_reader import absent_ranges
from sharequeue_gateway.record_log.log import OffsetOutOfRange
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.record_batch import RecordBatch

from tests.core.share_partition_driver import Driver
from tests.examples import examples

PLACE = ("t", 0)


class Entry(NamedTuple):
    """A row of the log: records of a transaction (or of none), or the marker that ends it."""

    first: int
    last: int
    transaction: str | None = None
    marker: bool = False

    def batch(self) -> RecordBatch:
        if self.marker:
            return RecordBatch.marker(self.first, 0, self.transaction or "")
        tails = [b',"value":1}'] * (self.last - self.first + 1)
        return RecordBatch.encode(self.first, tails, 0, transaction_id=self.transaction)


class CommittedCache(RuleBasedStateMachine):
    """The cache of one gateway, and the log as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = BatchCache(1 << 30)
        self.cache.set_ends(PLACE, 0, 0, 0)
        self.log: list[Entry] = []
        self.start = 0
        self.aborted: dict[str, bool] = {}
        """What became of each ended transaction."""

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    @property
    def open_since(self) -> list[int]:
        """The first offset of each open transaction."""
        firsts: dict[str, int] = {}
        for entry in self.log:
            if entry.transaction is not None and entry.transaction not in self.aborted:
                firsts.setdefault(entry.transaction, entry.first)
        return list(firsts.values())

    @property
    def last_stable(self) -> int:
        """As the database answers it."""
        return max(self.start, min([self.end, *self.open_since]))

    @property
    def undecided(self) -> int:
        """The first record above the log start whose transaction is open; the log end if there is none."""
        still_open = [e for e in self.log if e.transaction is not None and e.transaction not in self.aborted]
        return min([max(e.first, self.start) for e in still_open if e.last >= self.start] + [self.end])

    def append(self, entry: Entry, seen: bool) -> None:
        self.log.append(entry)
        if seen:
            self.cache.add(PLACE, entry.batch(), self.end)

    @rule(records=st.integers(1, 3), transaction=st.sampled_from([None, "a", "b", "c"]), seen=st.booleans())
    def produce(self, records: int, transaction: str | None, seen: bool) -> None:
        """`seen`: this gateway appends. Otherwise another one does, and this one may hear of it later."""
        name = transaction and next(f"{transaction}{n}" for n in range(1000) if f"{transaction}{n}" not in self.aborted)
        self.append(Entry(self.end, self.end + records - 1, name), seen)

    @precondition(lambda self: self.open_since)
    @rule(data=st.data(), abort=st.booleans(), seen=st.booleans())
    def end_transaction(self, data: st.DataObject, abort: bool, seen: bool) -> None:
        still_open = sorted({e.transaction for e in self.log if e.transaction and e.transaction not in self.aborted})
        ended = data.draw(st.sampled_from(still_open))
        self.aborted[ended] = abort
        self.append(Entry(self.end, self.end, ended, marker=True), seen)

    @precondition(lambda self: self.log)
    @rule(data=st.data(), records=st.integers(1, 5))
    def read(self, data: st.DataObject, records: int) -> None:
        """An uncommitted read brings batches into memory."""
        entry = data.draw(st.sampled_from(self.log))
        index = self.log.index(entry)
        for each in self.log[index : index + records]:
            if each.last >= self.start:
                self.cache.add(PLACE, each.batch())
                self.cache.set_ends(PLACE, -1, each.last + 1)

    @rule()
    def hear_of_the_end(self) -> None:
        self.cache.set_ends(PLACE, -1, self.end)

    @rule()
    def look(self) -> None:
        self.cache.set_ends(PLACE, self.start, self.end, self.last_stable)

    @rule()
    def ask(self) -> None:
        """As a committed read asks about what it has read."""
        known = self.cache.partition(PLACE)
        assert known is not None
        for batch in known.batches:
            if not batch.decided and self.start <= batch.last_offset < self.last_stable:
                batch.aborted = self.aborted[batch.transaction_id or ""]
        self.look()

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), told=st.booleans())
    def trim(self, data: st.DataObject, told: bool) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        if told:
            self.cache.set_ends(PLACE, self.start, self.end)

    @invariant()
    def nothing_undecided_is_stable(self) -> None:
        known = self.cache.partition(PLACE)
        assert known is not None
        assert known.stable_offset <= max(self.undecided, self.start)
        if known.settled and known.log_end_offset == self.end:
            assert known.stable_offset >= max(known.log_start_offset, min([self.end, *self.open_since]))

    @invariant()
    def a_committed_read_tells_the_truth(self) -> None:
        known = self.cache.partition(PLACE)
        assert known is not None
        for offset in range(max(self.start, known.log_start_offset), self.end + 1):
            try:
                read = self.cache.read_cached(*PLACE, offset, 1 << 20, 1000, True)
            except OffsetOutOfRange:
                continue
            if read is None:
                continue
            for batch in read.batches:
                assert batch.last_offset < self.undecided
                if batch.transaction_id is not None and not batch.control:
                    assert batch.aborted is self.aborted[batch.transaction_id]
            if not read.batches:
                assert known.settled
                assert offset >= known.stable_offset


TestCommittedCache = CommittedCache.TestCase
TestCommittedCache.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)


def delivered(log: list[Entry], aborted: set[str], max_records: int, batch_size: int) -> tuple[Driver, str]:
    """What a read_committed group acquires from a log without open transactions."""
    driver = Driver(start=log[0].first)
    batches = [entry.batch() for entry in log]
    for batch in batches:
        if batch.transaction_id is not None and not batch.control:
            batch.aborted = batch.transaction_id in aborted
    gone = absent_ranges(batches, log[0].first, "g", committed=True)
    extents = "".join(f"[{entry.first}-{entry.last}]" for entry in log)
    return driver, driver.fetch(extents, max=max_records, bs=batch_size, absent=gone)


def test_tx_001_aborted_batches_and_markers_are_cut_out() -> None:
    log = [
        Entry(10, 14, "a"),
        Entry(15, 19),
        Entry(20, 34),
        Entry(35, 35, "a", marker=True),
        Entry(50, 57),
        Entry(58, 67, "b"),
        Entry(68, 69, "b", marker=True),
        Entry(70, 74, "c"),
    ]
    driver, acquired = delivered(log, {"a", "b", "c"}, 100, 10)
    assert acquired == "15-19×1, 20-34×1, 50-57×1"
    assert driver.machine.next_fetch_offset() == 75


def test_tx_003_an_aborted_batch_between_commits_is_archived() -> None:
    log = [
        Entry(0, 1, "a"),
        Entry(2, 2, "a", marker=True),
        Entry(3, 4, "b"),
        Entry(5, 5, "b", marker=True),
        Entry(6, 7, "c"),
        Entry(8, 8, "c", marker=True),
    ]
    driver, acquired = delivered(log, {"b"}, 500, 500)
    assert acquired == "0-1×1, 6-7×1"
    assert driver.states().startswith("0-1 AQ×1 | 2-5 AR")
    assert driver.machine.delivery_complete_count == 5


def test_memory_answers_up_to_a_transaction_that_is_open() -> None:
    cache = BatchCache(1 << 20)
    cache.set_ends(PLACE, 0, 0, 0)
    for entry in (Entry(0, 1), Entry(2, 3, "a"), Entry(4, 5)):
        cache.add(PLACE, entry.batch(), entry.last + 1)
    read = cache.read_cached(*PLACE, 0, 1 << 20, 1000, True)
    assert read is not None
    assert [(batch.base_offset, batch.last_offset) for batch in read.batches] == [(0, 1)]
    assert read.end_offset == 2


@pytest.mark.parametrize("outcome", [None, False, True])
def test_an_uncommitted_group_receives_everything_but_markers(outcome: bool | None) -> None:
    """A read_committed group of the same gateway may have asked what became of the transaction."""
    batches = [Entry(0, 1, "a").batch(), Entry(2, 2, "a", marker=True).batch()]
    batches[0].aborted = outcome
    assert absent_ranges(batches, 0, "g") == [(2, 2)]
