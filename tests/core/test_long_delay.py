"""One record with a long delay pins the start offset: 20,000,000 records are accepted behind it at the same cost."""

import time

import msgspec

from sharequeue.protocol.types import StateAnnotation, StateBatch
from tests.core.share_partition_driver import Driver, fetched

DELAY_MS = 12 * 3_600_000
BATCH = 1000
RECORDS = 20_000_000
MILLION = 1_000_000


def accept_million(d: Driver, first: int) -> float:
    """Fetch and accept a million records from `first` on. Returns: the CPU seconds that it took."""
    d.writes.clear()
    d.written.clear()
    started_s = time.process_time()
    for base in range(first, first + MILLION, BATCH):
        last = base + BATCH - 1
        assert d.fetch(f"[{base}-{last}]", max=BATCH, bs=BATCH) == f"{base}-{last}×1"
        d.ack(f"{base}-{last} Acc")
    return time.process_time() - started_s


def test_a_record_delayed_by_twelve_hours_slows_nothing_and_ends_on_time() -> None:
    d = fetched("[0]")
    d.ack("0 Rel", delay_ms=DELAY_MS)
    due_ms = d.now_ms + DELAY_MS
    (released,) = d.writes
    took_s = [accept_million(d, first) for first in range(1, RECORDS, MILLION)]
    assert d.states() == f"0-0 AV×1 | 1-{RECORDS} AK×1"
    assert len(list(d.machine.in_flight())) == 2, "finished neighbours are one run"
    assert min(took_s[-5:]) <= min(took_s[:5]) / 0.95 + 0.02
    assert d.machine.span == RECORDS + 1

    state = [StateBatch(0, 0, 0, 1), StateBatch(1, RECORDS, 2, 1)]
    notes = released.annotations
    assert len(msgspec.json.encode((state, notes))) < 1024
    (note,) = notes
    kept = StateAnnotation(0, 0, 1, available_at_ms=note.available_at_ms)
    next_leader = Driver([(0, 0, 0, 1), (1, RECORDS, 2, 1)], annotations=[kept], now_ms=due_ms - 1)
    assert next_leader.fetch("[0]") == ""
    next_leader.later(101)
    assert next_leader.fetch("[0]") == "0-0×2"
    next_leader.ack("0 Acc")
    assert next_leader.where()[0] == RECORDS + 1
