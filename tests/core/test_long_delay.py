"""One record with a long delay pins the start offset: 3,000,000 records are accepted behind it at the same cost."""

import msgspec

from sharequeue.protocol.state import StateBatch
from tests.core.share_partition_driver import Driver, fetched
from tests.core.states import StateAnnotation, annotations
from tests.core.test_costs import Watched

DELAY_MS = 12 * 3_600_000
BATCH = 1000
RECORDS = 3_000_000
MILLION = 1_000_000


def accept_million(d: Driver, first: int) -> None:
    """Fetch and accept a million records from `first` on."""
    d.writes.clear()
    d.written.clear()
    for base in range(first, first + MILLION, BATCH):
        last = base + BATCH - 1
        assert d.fetch(f"[{base}-{last}]", max=BATCH, bs=BATCH) == f"{base}-{last}×1"
        d.ack(f"{base}-{last} Acc")


def looks_in_a_million(d: Driver, first: int) -> int:
    """As accept_million. Returns: how often it looked at a run."""
    d.machine.runs = watched = Watched(d.machine.runs)
    accept_million(d, first)
    assert d.machine.runs is watched
    d.machine.runs = list(watched)
    return watched.looks


def test_a_record_delayed_by_twelve_hours_slows_nothing_and_ends_on_time() -> None:
    d = fetched("[0]")
    d.ack("0 Rel", delay_ms=DELAY_MS)
    due_ms = d.now_ms + DELAY_MS
    (released,) = d.writes
    accept_million(d, 1)
    looks = looks_in_a_million(d, 1 + MILLION)
    assert looks_in_a_million(d, 1 + 2 * MILLION) == looks
    assert d.states() == f"0-0 AV×1 | 1-{RECORDS} AK×1"
    assert len(list(d.machine.runs)) == 2, "finished neighbours are one run"
    assert d.machine.span == RECORDS + 1

    state = [StateBatch(0, 0, 0, 1), StateBatch(1, RECORDS, 2, 1)]
    notes = annotations(released.state)
    assert len(msgspec.json.encode((state, notes))) < 1024
    (note,) = notes
    kept = StateAnnotation(0, 0, 1, available_at_ms=note.available_at_ms)
    next_leader = Driver([(0, 0, 0, 1), (1, RECORDS, 2, 1)], annotations=[kept], now_ms=due_ms - 1)
    assert next_leader.fetch("[0]") == ""
    next_leader.later(101)
    assert next_leader.fetch("[0]") == "0-0×2"
    next_leader.ack("0 Acc")
    assert next_leader.where()[0] == RECORDS + 1
