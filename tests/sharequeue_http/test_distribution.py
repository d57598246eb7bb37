"""Histograms on the hot path: what Prometheus reads of them."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Reference
from prometheus_client.registry import Collector

from sharequeue_http.distribution import Histogram, Histograms, registry_of

BOUNDS = (0.001, 0.5, 1, 10)
VALUES = (0, 0.001, 0.002, 0.5, 1, 1.5, 10, 10.5, 1e9)


def scraped(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if "_created" not in line)


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> CollectorRegistry:
    return registry_of(request.node.name)


def test_prometheus_reads_a_histogram_as_one_of_its_own_client(registry: CollectorRegistry) -> None:
    ours = Histogram("distribution_test", "Values.", BOUNDS, registry=registry)
    theirs = Reference("distribution_test", "Values.", buckets=BOUNDS, registry=None)
    assert scraped(ours) == scraped(theirs), "before the first value"
    for value in VALUES:
        ours.observe(value)
        theirs.observe(value)
    assert scraped(ours) == scraped(theirs)


def test_prometheus_reads_labelled_histograms_as_those_of_its_own_client(registry: CollectorRegistry) -> None:
    ours = Histograms("distributions_test", "Values.", ("operation", "status"), BOUNDS, registry=registry)
    theirs = Reference("distributions_test", "Values.", ["operation", "status"], buckets=BOUNDS, registry=None)
    assert scraped(ours) == scraped(theirs), "before the first series"
    for value, labels in zip(VALUES, [("a", "200"), ('b"\\\n', "200"), ("a", "503")] * 3, strict=True):
        ours.of(*labels).observe(value)
        theirs.labels(*labels).observe(value)
    assert scraped(ours) == scraped(theirs)


def test_a_name_that_is_taken_is_refused(registry: CollectorRegistry) -> None:
    Histogram("distribution_taken", "Values.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Histogram("distribution_taken", "Values.", registry=registry)
