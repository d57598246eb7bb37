"""The highest of the late values, which Kafka's `…-max` metrics are."""

import pytest
from prometheus_client import CollectorRegistry

from sharequeue_http.distribution import Histogram


def test_the_highest_value_of_two_windows_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("sharequeue_http.distribution.time.monotonic", lambda: now_s)
    latencies = Histogram("test_seconds", "A test.", (1, 2), registry=CollectorRegistry())
    assert latencies.highest() == 0
    for value in (0.5, 3, 1):
        latencies.observe(value)
    assert (latencies.highest(), latencies.counts, latencies.sum) == (3, [2, 0, 1], 4.5)
    now_s += 30
    assert latencies.highest() == 3
    latencies.observe(2)
    now_s += 29
    assert latencies.highest() == 3, "for at least 30 seconds"
    now_s += 1
    assert latencies.highest() == 2, "for at most 60 seconds if it is read often enough"
    now_s += 1000
    latencies.observe(7)
    assert latencies.highest() == 7, "nothing between two readings is missed"
