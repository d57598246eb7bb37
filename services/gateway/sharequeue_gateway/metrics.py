"""The gateway's metrics, under Kafka's meanings (KIP-932, metrics) and Prometheus names. docs/metrics.md lists them."""

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from sharequeue.service.series import Counts, Labels

SHARE_PARTITION = ("group", "topic", "partition")

RECORD_ACKNOWLEDGEMENTS = Counts[str](
    "sharequeue_record_acknowledgements",
    "Records acknowledged, by type (RecordAcknowledgementsPerSec); gaps and failures are not counted.",
    ["ack_type"],
)
PARTITION_LOAD_SECONDS = Histogram(
    "sharequeue_partition_load_seconds", "Time to load share-partitions (PartitionLoadTimeMs)."
)
FETCH_RATIO = Histogram(
    "sharequeue_request_topic_partitions_fetch_ratio",
    "Percent of the partitions of a fetch that gave it records (RequestTopicPartitionsFetchRatio).",
    buckets=(0, 10, 25, 50, 75, 90, 100),
)
ACQUIRE_SECONDS = Histogram(
    "sharequeue_topic_partitions_acquire_seconds",
    "Time from a fetch's arrival to its acquisition (TopicPartitionsAcquireTimeMs).",
)
LOCK_TIMEOUTS = Counts[Labels](
    "sharequeue_acquisition_lock_timeouts",
    "Records whose acquisition lock ended (AcquisitionLockTimeoutPerSec).",
    SHARE_PARTITION,
)
IN_FLIGHT_BATCH_RECORDS = Histogram(
    "sharequeue_in_flight_batch_message_count",
    "Records of an acquired batch (InFlightBatchMessageCount).",
    buckets=(1, 5, 10, 50, 100, 500, 1000, 5000),
)
FETCH_LOCK_SECONDS = Histogram(
    "sharequeue_fetch_lock_seconds",
    "Time a fetch kept a share-partition for itself (FetchLockTimeMs).",
    buckets=(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
)
FETCH_LOCK_RATIO = Histogram(
    "sharequeue_fetch_lock_ratio",
    "Percent of the time since the previous fetch in which a fetch kept a share-partition for itself (FetchLockRatio).",
    buckets=(0, 1, 5, 10, 25, 50, 75, 90, 100),
)
SHARE_FETCHES = Counts[str](
    "sharequeue_share_fetch_requests", "Fetches, by topic (TotalShareFetchRequestsPerSec).", ["topic"]
)
FAILED_SHARE_FETCHES = Counts[str](
    "sharequeue_failed_share_fetch_requests",
    "Fetches of which a partition failed, by topic (FailedShareFetchRequestsPerSec).",
    ["topic"],
)
SHARE_ACKNOWLEDGES = Counts[str](
    "sharequeue_share_acknowledgement_requests",
    "Acknowledgements, by topic (TotalShareAcknowledgementRequestsPerSec).",
    ["topic"],
)
FAILED_SHARE_ACKNOWLEDGES = Counts[str](
    "sharequeue_failed_share_acknowledgement_requests",
    "Acknowledgements that failed, by topic (FailedShareAcknowledgementRequestsPerSec).",
    ["topic"],
)
DELAYED_FETCHES_EXPIRED = Counter(
    "sharequeue_delayed_share_fetch_expires",
    "Waiting fetches that ended without records (DelayedShareFetch ExpiresPerSec).",
)
WAITING_FETCHES = Gauge("sharequeue_waiting_fetches", "Fetches that wait for records.")
PRODUCE_BYTES = Gauge("sharequeue_produce_bytes", "Bytes of produce requests in hand, until they are answered.")
LED_SHARE_PARTITIONS = Gauge("sharequeue_led_share_partitions", "Share-partitions this gateway has loaded.")
SHARE_SESSIONS = Gauge("sharequeue_share_sessions", "Open share sessions (ShareSessionsCount).")
SHARE_SESSION_PARTITIONS = Gauge(
    "sharequeue_share_session_partitions", "Partitions in open share sessions (SharePartitionsCount)."
)
SHARE_SESSION_EVICTIONS = Counter(
    "sharequeue_share_session_evictions", "Share sessions dropped because they were idle (ShareSessionEvictionsPerSec)."
)
DEAD_LETTERS = Counts[str](
    "sharequeue_dead_letter_records", "Dead letters written (DeadLetterQueueRecordCount).", ["group"]
)
DEAD_LETTER_WRITES = Counts[str](
    "sharequeue_dead_letter_writes",
    "Tries to write dead letters (DeadLetterQueueTotalProduceRequestsPerSec).",
    ["group"],
)
FAILED_DEAD_LETTER_WRITES = Counts[str](
    "sharequeue_failed_dead_letter_writes",
    "Tries to write dead letters that failed (DeadLetterQueueFailedProduceRequestsPerSec).",
    ["group"],
)
PARKED_DEAD_LETTERS = Counts[str](
    "sharequeue_parked_dead_letter_records",
    "Dead letters whose topic refuses them, kept in the parking table.",
    ["group"],
)
REMOVED_UNFINISHED = Counts[str](
    "sharequeue_removed_unfinished_records",
    "Offsets that retention removed although the group had not finished them.",
    ["group"],
)
ENDING_HOLDS = Gauge(
    "sharequeue_ending_holds",
    "Groups and topics in which retention stops sparing unfinished records within half of the group's hold time.",
)
DEAD_LETTERS_PENDING = Gauge("sharequeue_dead_letters_pending", "Records on their way to a dead-letter queue.")
SHARE_COORDINATORS_FAILING = Gauge(
    "sharequeue_share_coordinators_failing",
    "Share coordinators that take no state writes; nothing is acquired from their share-partitions.",
)
CLOCK_JUMPS = Counter(
    "sharequeue_clock_jumps", "Times at which the distance to PostgreSQL's clock changed by more than a second."
)
LOCK_TIMERS_DEGRADED = Gauge("sharequeue_lock_timers_degraded", "1 while Redis does not answer, or refuses.")

OF_GROUP = (DEAD_LETTERS, DEAD_LETTER_WRITES, FAILED_DEAD_LETTER_WRITES, PARKED_DEAD_LETTERS)
OF_TOPIC = (SHARE_FETCHES, FAILED_SHARE_FETCHES, SHARE_ACKNOWLEDGES, FAILED_SHARE_ACKNOWLEDGES)


def forget_groups(is_led: Callable[[str], object]) -> None:
    """Drop the series of groups of which this gateway leads no share-partition. `is_led`: whether it leads any of a
    group."""
    for counts in OF_GROUP:
        for group_id in [group_id for group_id in counts if not is_led(group_id)]:
            counts.forget(group_id)


def forget_group(group_id: str) -> None:
    """Drop the series of a deleted group."""
    for counts in (*OF_GROUP, REMOVED_UNFINISHED):
        counts.forget(group_id)


def forget_topic(name: str) -> None:
    """Drop the series of a deleted topic."""
    for counts in OF_TOPIC:
        counts.forget(name)
