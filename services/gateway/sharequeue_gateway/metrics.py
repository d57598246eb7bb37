"""The gateway's metrics, under Kafka's meanings (KIP-932, metrics) and Prometheus names. docs/metrics.md lists them."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from sharequeue_gateway.fetch import Fetcher
    from sharequeue_gateway.led_share_partition import LedSharePartition

SHARE_PARTITION = ("group", "topic", "partition")
UNSERVED_FROM_MS = 1000
"""Each share-partition with records waits for a moment between two fetches: that is not worth a series."""

Metric = TypeVar("Metric", Counter, Histogram)


class Series(dict[str, Metric]):
    """The series of a family that has one label, by the label's value. They are kept: `labels` takes longer than `inc`."""

    def __init__(self, family: Metric) -> None:
        self.family: Metric = family

    def __missing__(self, value: str) -> Metric:
        series: Metric = self.family.labels(value)
        self[value] = series
        return series

    def forget(self, value: str) -> None:
        """Drop a series, so that series do not pile up."""
        if self.pop(value, None) is not None:
            self.family.remove(value)


RECORD_ACKNOWLEDGEMENTS = Series(
    Counter(
        "sharequeue_record_acknowledgements",
        "Records acknowledged, by type (RecordAcknowledgementsPerSec); gaps are not counted, failures neither.",
        ["ack_type"],
    )
)
PARTITION_LOAD_SECONDS = Histogram(
    "sharequeue_partition_load_seconds", "Time to load share-partitions (PartitionLoadTimeMs)."
)
FETCH_RATIO = Series(
    Histogram(
        "sharequeue_request_topic_partitions_fetch_ratio",
        "Percent of a fetch's partitions that were acquired from (RequestTopicPartitionsFetchRatio).",
        ["group"],
        buckets=(0, 10, 25, 50, 75, 90, 100),
    )
)
ACQUIRE_SECONDS = Series(
    Histogram(
        "sharequeue_topic_partitions_acquire_seconds",
        "Time from a fetch's arrival to its acquisition (TopicPartitionsAcquireTimeMs).",
        ["group"],
    )
)
LOCK_TIMEOUTS = Counter(
    "sharequeue_acquisition_lock_timeouts",
    "Records whose acquisition lock ended (AcquisitionLockTimeoutPerSec).",
    SHARE_PARTITION,
)
IN_FLIGHT_BATCH_RECORDS = Series(
    Histogram(
        "sharequeue_in_flight_batch_message_count",
        "Records of an acquired batch (InFlightBatchMessageCount).",
        ["group"],
        buckets=(1, 5, 10, 50, 100, 500, 1000, 5000),
    )
)
FETCH_LOCK_SECONDS = Series(
    Histogram(
        "sharequeue_fetch_lock_seconds",
        "Time a fetch kept a share-partition for itself (FetchLockTimeMs).",
        ["group"],
        buckets=(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
    )
)
FETCH_LOCK_RATIO = Series(
    Histogram(
        "sharequeue_fetch_lock_ratio",
        "Percent of the time since the fetch before that a fetch kept a share-partition for itself (FetchLockRatio).",
        ["group"],
        buckets=(0, 1, 5, 10, 25, 50, 75, 90, 100),
    )
)
SHARE_FETCHES = Series(
    Counter("sharequeue_share_fetch_requests", "Fetches, by topic (TotalShareFetchRequestsPerSec).", ["topic"])
)
FAILED_SHARE_FETCHES = Series(
    Counter(
        "sharequeue_failed_share_fetch_requests",
        "Fetches of which a partition failed, by topic (FailedShareFetchRequestsPerSec).",
        ["topic"],
    )
)
SHARE_ACKNOWLEDGES = Series(
    Counter(
        "sharequeue_share_acknowledgement_requests",
        "Acknowledgements, by topic (TotalShareAcknowledgementRequestsPerSec).",
        ["topic"],
    )
)
FAILED_SHARE_ACKNOWLEDGES = Series(
    Counter(
        "sharequeue_failed_share_acknowledgement_requests",
        "Acknowledgements of which something failed, by topic (FailedShareAcknowledgementRequestsPerSec).",
        ["topic"],
    )
)
DELAYED_FETCHES_EXPIRED = Counter(
    "sharequeue_delayed_share_fetch_expires",
    "Waiting fetches that ended without records (DelayedShareFetch ExpiresPerSec).",
)
WAITING_FETCHES = Gauge("sharequeue_waiting_fetches", "Fetches that wait for records.")
LED_SHARE_PARTITIONS = Gauge("sharequeue_led_share_partitions", "Share-partitions this gateway has loaded.")
SHARE_SESSIONS = Gauge("sharequeue_share_sessions", "Open share sessions (ShareSessionsCount).")
SHARE_SESSION_PARTITIONS = Gauge(
    "sharequeue_share_session_partitions", "Partitions in open share sessions (SharePartitionsCount)."
)
SHARE_SESSION_EVICTIONS = Counter(
    "sharequeue_share_session_evictions", "Share sessions dropped because they were idle (ShareSessionEvictionsPerSec)."
)
DEAD_LETTERS = Series(
    Counter("sharequeue_dead_letter_records", "Dead letters written (DeadLetterQueueRecordCount).", ["group"])
)
DEAD_LETTER_WRITES = Series(
    Counter(
        "sharequeue_dead_letter_writes",
        "Tries to write dead letters (DeadLetterQueueTotalProduceRequestsPerSec).",
        ["group"],
    )
)
FAILED_DEAD_LETTER_WRITES = Series(
    Counter(
        "sharequeue_failed_dead_letter_writes",
        "Tries to write dead letters that failed (DeadLetterQueueFailedProduceRequestsPerSec).",
        ["group"],
    )
)
PARKED_DEAD_LETTERS = Series(
    Counter(
        "sharequeue_parked_dead_letter_records",
        "Dead letters whose topic refuses them, kept in the parking table.",
        ["group"],
    )
)
DEAD_LETTERS_PENDING = Gauge("sharequeue_dead_letters_pending", "Records on their way to a dead-letter queue.")
LOCK_TIMERS_DEGRADED = Gauge("sharequeue_lock_timers_degraded", "1 while Redis does not answer, or refuses.")

OF_GROUP = (
    FETCH_RATIO,
    ACQUIRE_SECONDS,
    IN_FLIGHT_BATCH_RECORDS,
    FETCH_LOCK_SECONDS,
    FETCH_LOCK_RATIO,
    DEAD_LETTERS,
    DEAD_LETTER_WRITES,
    FAILED_DEAD_LETTER_WRITES,
    PARKED_DEAD_LETTERS,
)
OF_TOPIC = (SHARE_FETCHES, FAILED_SHARE_FETCHES, SHARE_ACKNOWLEDGES, FAILED_SHARE_ACKNOWLEDGES)


class InFlightCollector(Collector):
    """InFlightMessageCount (the span) and InFlightBatchCount of share-partitions with a window, made at the scrape."""

    def __init__(self, leds: "Callable[[], Iterable[LedSharePartition]]") -> None:
        self._leds = leds

    def collect(self) -> Iterator[GaugeMetricFamily]:
        records = GaugeMetricFamily(
            "sharequeue_in_flight_message_count",
            "Offsets from start to end (InFlightMessageCount).",
            labels=SHARE_PARTITION,
        )
        batches = GaugeMetricFamily(
            "sharequeue_in_flight_batch_count", "Batches in flight (InFlightBatchCount).", labels=SHARE_PARTITION
        )
        for led in list(self._leds()):
            if led.machine.window_empty:
                continue
            labels = (led.key.group_id, led.topic_name, str(led.key.partition))
            records.add_metric(labels, led.machine.span)
            batches.add_metric(labels, len({run.batch_first for run in led.machine.in_flight()}))
        yield records
        yield batches


class UnservedCollector(Collector):
    """For how long each group's share-partition that waits longest was not served, made at the scrape."""

    def __init__(self, longest_ms: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._longest_ms = longest_ms

    def collect(self) -> Iterator[GaugeMetricFamily]:
        seconds = GaugeMetricFamily(
            "sharequeue_share_partition_unserved_seconds",
            "Time since a share-partition with records last gave any, the longest of the group's; from a second on.",
            labels=["group"],
        )
        for group_id, unserved_ms in self._longest_ms():
            if unserved_ms >= UNSERVED_FROM_MS:
                seconds.add_metric((group_id,), unserved_ms / 1000)
        yield seconds


def watch(
    leds: "Callable[[], Iterable[LedSharePartition]]",
    fetcher: "Fetcher",
    unserved_ms: Callable[[], Iterable[tuple[str, int]]],
) -> None:
    """Have the gauges read what they show. `unserved_ms`: as Unserved.longest_ms."""
    REGISTRY.register(InFlightCollector(leds))
    REGISTRY.register(UnservedCollector(unserved_ms))
    WAITING_FETCHES.set_function(lambda: fetcher.waiting)
    LED_SHARE_PARTITIONS.set_function(lambda: sum(1 for _ in leds()))


def observe_fetch_lock(led: "LedSharePartition", since_s: float) -> None:
    """Note that a fetch had a share-partition for itself from `since_s`, of `time.perf_counter()`, until now."""
    if led.fenced:
        return  # its group may be deleted by now
    now_s = time.perf_counter()
    locked_s = now_s - since_s
    FETCH_LOCK_SECONDS[led.key.group_id].observe(locked_s)
    if led.fetch_lock_ended_s:
        FETCH_LOCK_RATIO[led.key.group_id].observe(100 * locked_s / (now_s - led.fetch_lock_ended_s))
    led.fetch_lock_ended_s = now_s


def forget_share_partition(led: "LedSharePartition") -> None:
    """Drop the series of a share-partition that is no longer led, so that series do not pile up."""
    with suppress(KeyError):
        LOCK_TIMEOUTS.remove(led.key.group_id, led.topic_name, str(led.key.partition))


def forget_group(group_id: str) -> None:
    """Drop the series of a group that is deleted."""
    for series in OF_GROUP:
        series.forget(group_id)


def forget_topic(name: str) -> None:
    """Drop the series of a topic that is deleted."""
    for series in OF_TOPIC:
        series.forget(name)
