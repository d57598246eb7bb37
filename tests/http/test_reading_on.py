"""A fetch reads on behind held and finished records, until its limits are met or the log ends."""

import pytest

from tests.http.calls import LONG_MS, Gateway, acknowledge_range, good, offsets, ranges, woken


def test_released_records_far_apart_come_in_one_fetch(gateway: Gateway, name: str) -> None:
    """Each tenth of 2,000 records was released: two fetches get them, not twenty."""
    gateway.produce_batches(name, *[20] * 100)
    assert len(offsets(gateway.fetch(name, name, max_records=2000))) == 2000
    released = list(range(5, 2000, 10))
    acknowledgements = [acknowledge_range(name, offset, offset, "release") for offset in released]
    assert good(gateway.try_acknowledge(name, acknowledgements))["failed_count"] == 0
    for part in (released[:100], released[100:]):
        answer = gateway.fetch(name, name, member="m2", max_records=100)
        assert offsets(answer) == part
        assert {batch["delivery_count"] for batch in answer["batches"]} == {2}
    assert gateway.acquire(name, name, member="m2") == []


@pytest.mark.parametrize("mode", ["record_limit", "batch_optimized"])
def test_a_fetch_reads_on_behind_the_window(gateway: Gateway, name: str, mode: str) -> None:
    """Released records behind a long finished stretch, and new ones."""
    gateway.configure(name, share_partition_max_record_locks=10_000)
    gateway.produce_batches(name, 1, 3000, 1, 4)
    assert ranges(gateway.fetch(name, name, max_records=3002)) == ["0-3001×1"]
    assert gateway.settle(name, name, 1, 3000, "accept") == "applied"
    assert gateway.settle(name, name, 0, 0, "release") == "applied"
    assert gateway.settle(name, name, 3001, 3001, "release") == "applied"
    assert gateway.acquire(name, name, max_records=6, acquire_mode=mode) == ["0-0×2", "3001-3001×2", "3002-3005×1"]


def test_max_bytes_holds_over_all_reads_of_a_fetch(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, *[1] * 3)
    gateway.produce(name, *["x" * 1000] * 300)
    gateway.produce(name, "y" * 5000)
    gateway.produce(name, "z" * 5000)
    gateway.fetch(name, name)
    assert gateway.settle(name, name, 1, 302, "accept") == "applied"
    for offset in (0, 303, 304):
        assert gateway.settle(name, name, offset, offset, "release") == "applied"
    assert gateway.acquire(name, name, max_bytes=8000) == ["0-0×2", "303-303×2"]
    assert gateway.acquire(name, name, max_bytes=8000) == ["304-304×2"]


# min_bytes


@pytest.mark.parametrize("mode", ["record_limit", "batch_optimized"])
def test_a_fetch_that_is_full_does_not_wait_for_min_bytes(gateway: Gateway, name: str, mode: str) -> None:
    for _ in range(50):
        gateway.produce(name, *["x" * 1000] * 10)
    limits = {"max_records": 10, "min_bytes": 30_000, "max_wait_ms": LONG_MS, "acquire_mode": mode}
    with woken(gateway):
        for turn in range(2):
            assert gateway.acquire(name, name, **limits) == [f"{10 * turn}-{10 * turn + 9}×1"]
