"""Delays of releases: none ends early, and many may end at the same time."""

import time

from tests.http.calls import LONG_MS, Gateway, outcomes


def test_many_delays_that_end_together_all_end(gateway: Gateway, name: str) -> None:
    count = 2400
    gateway.configure(name, share_partition_max_record_locks=3000)
    gateway.produce_batches(name, count)
    assert gateway.acquire(name, name, max_records=count) == [f"0-{count - 1}×1"]
    odd, even = (
        [
            {"topic": name, "partition": 0, "first_offset": offset, "last_offset": offset, "type": "release"}
            | {"delay_ms": delay_ms}
            for offset in range(first, count, 2)
        ]
        for first, delay_ms in ((1, 1500), (0, 1501))
    )
    begun_s = time.monotonic()
    for acknowledgements in (odd, even):
        for start in range(0, len(acknowledgements), 500):
            answer = gateway.try_acknowledge(name, acknowledgements[start : start + 500])
            assert set(outcomes(answer)) == {"applied"}
    taken = 0
    while taken < count:
        for acquired in gateway.acquire(name, name, max_records=count, max_wait_ms=LONG_MS):
            assert time.monotonic() - begun_s >= 1.5
            offsets, _, delivery_count = acquired.partition("×")
            first, _, last = offsets.partition("-")
            assert delivery_count == "2"
            taken += int(last) - int(first) + 1
    assert taken == count
