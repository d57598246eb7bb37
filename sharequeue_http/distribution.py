"""Distributions of measured values, for Prometheus as histograms, and which metrics belong to which service.

Counting a value is one function call without a lock.

A histogram of prometheus_client takes seven calls and two locks for each value, and every request counts several. Here
only the thread of the event loop counts and reads.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from sharequeue_http.log import SERVICE

M = TypeVar("M")
Labels = tuple[str, ...]

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


WINDOW_S: Final = 30.0


@cache
def registry_of(service: str) -> CollectorRegistry:
    """The metrics of one service. Those of the whole process are in the registry of prometheus_client."""
    return CollectorRegistry(auto_describe=True)  # so that it refuses a name that is taken


def kinds_of(service: str) -> "tuple[partial[Counter], partial[Gauge], partial[Histogram]]":
    """Return what makes the counters, gauges and histograms of a service."""
    registry = registry_of(service)
    return partial(Counter, registry=registry), partial(Gauge, registry=registry), partial(Histogram, registry=registry)


class OfEachService(Generic[M]):
    """A metric that several services have. Call it for the one of the service that runs; the first call makes it."""

    def __init__(self, kind: Callable[..., M], *form: Any) -> None:
        self._of = cache(lambda service: kind(*form, registry=registry_of(service)))

    def __call__(self) -> M:
        return self._of(SERVICE.get())


class Distribution:
    """Values by bucket. A bucket has the values up to its bound; the last one has those above all bounds.

    `peak`: the highest value since it was set to 0.
    """

    peak = 0.0

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        if value > self.peak:  # noqa: PLR1730  # max() takes longer, and every request counts some
            self.peak = value


class Histograms(Collector):
    """Distributions by the values of their labels, which Prometheus scrapes under `name`."""

    def __init__(
        self, name: str, meaning: str, labels: Labels, bounds: Sequence[float], *, registry: CollectorRegistry
    ) -> None:
        self.name = name
        self.labels = labels
        self.meaning = meaning
        self._bounds = bounds
        self._series: dict[Labels, Distribution] = {}
        registry.register(self)

    def of(self, *values: str) -> Distribution:
        """The distribution of these values of the labels, in their order."""
        distribution = self._series.get(values)
        if distribution is None:
            distribution = self._series[values] = Distribution(self._bounds)
        return distribution

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        bounds = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        for values, distribution in self._series.items():
            counts = accumulate(distribution.counts)
            family.add_metric(values, list(zip(bounds, counts, strict=True)), distribution.sum)
        yield family


class Histogram(Distribution, Histograms):
    """One distribution that Prometheus scrapes under `name`."""

    _peak_before = _turned_s = 0.0

    def __init__(
        self, name: str, meaning: str, bounds: Sequence[float] = SECONDS, *, registry: CollectorRegistry
    ) -> None:
        Distribution.__init__(self, bounds)
        Histograms.__init__(self, name, meaning, (), bounds, registry=registry)
        self._series[()] = self

    def highest(self) -> float:
        """The highest value of the last 30 to 60 seconds, or since the last but one reading if that is longer."""
        if (now_s := time.monotonic()) - self._turned_s >= WINDOW_S:
            self._peak_before, self.peak, self._turned_s = self.peak, 0.0, now_s
        return max(self._peak_before, self.peak)
