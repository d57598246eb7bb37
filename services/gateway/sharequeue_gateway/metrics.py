"""The gateway's metrics, under Kafka's meanings (KIP-932, metrics) and Prometheus names. docs/metrics.md lists them."""

from collections.abc import Callable

from sharequeue.service.series import Counts, Labels
from sharequeue_http.distribution import kinds_of

Counter, Gauge, Histogram = kinds_of("gateway")
SHARE_PARTITION = ("group", "topic", "partition")

RECORD_ACKNOWLEDGEMENTS = Counts[str](
    "sharequeue_record_acknowledgements",
    "Records that were successfully acknowledged: accept, release, reject, renew; gaps are not counted "
    "(RecordAcknowledgementsPerSec).",
    ["ack_type"],
)
ANONYMOUS_CALLS = Counts[str](
    "sharequeue_anonymous_calls",
    "Calls without a key that `authentication=required` would refuse.",
    ["operation"],
)
PARTITION_LOAD_SECONDS = Histogram(
    "sharequeue_partition_load_seconds", "Time to load share-partitions (PartitionLoadTimeMs)."
)
PARTITION_LOAD_SECONDS_MAX = Gauge(
    "sharequeue_partition_load_seconds_max", "Longest load of the last 30 to 60 seconds (partition-load-time-max)."
)
PARTITION_LOAD_SECONDS_MAX.set_function(PARTITION_LOAD_SECONDS.highest)
FETCH_RATIO = Histogram(
    "sharequeue_request_topic_partitions_fetch_ratio",
    "Percentage of the named partitions from which a fetch got records (RequestTopicPartitionsFetchRatio).",
    (0, 10, 25, 50, 75, 90, 100),
)
ACQUIRE_SECONDS = Histogram(
    "sharequeue_topic_partitions_acquire_seconds",
    "Time from a fetch's arrival to its acquisition, waiting included (TopicPartitionsAcquireTimeMs).",
)
LOCK_TIMEOUTS = Counts[Labels](
    "sharequeue_acquisition_lock_timeouts",
    "Records whose lock ended: their workers died or were too slow (AcquisitionLockTimeoutPerSec).",
    SHARE_PARTITION,
)
IN_FLIGHT_BATCH_RECORDS = Histogram(
    "sharequeue_in_flight_batch_message_count",
    "Records of an acquired batch (InFlightBatchMessageCount).",
    (1, 5, 10, 50, 100, 500, 1000, 5000),
)
FETCH_LOCK_SECONDS = Histogram(
    "sharequeue_fetch_lock_seconds",
    "Time a fetch kept a share-partition for itself (FetchLockTimeMs).",
    (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
)
SHARE_FETCHES = Counts[str](
    "sharequeue_share_fetch_requests",
    "Fetches, counted once for each topic (TotalShareFetchRequestsPerSec).",
    ["topic"],
)
FAILED_SHARE_FETCHES = Counts[str](
    "sharequeue_failed_share_fetch_requests",
    "Fetches with a partition that failed (FailedShareFetchRequestsPerSec).",
    ["topic"],
)
SHARE_ACKNOWLEDGES = Counts[str](
    "sharequeue_share_acknowledgement_requests",
    "Acknowledge calls, and fetches that carry acknowledgements, counted once for each topic "
    "(TotalShareAcknowledgementRequestsPerSec).",
    ["topic"],
)
FAILED_SHARE_ACKNOWLEDGES = Counts[str](
    "sharequeue_failed_share_acknowledgement_requests",
    "Requests of `sharequeue_share_acknowledgement_requests` in which something failed "
    "(FailedShareAcknowledgementRequestsPerSec).",
    ["topic"],
)
DELAYED_FETCHES_EXPIRED = Counter(
    "sharequeue_delayed_share_fetch_expires",
    "Waiting fetches whose time ran out (DelayedShareFetch ExpiresPerSec).",
)
WAITING_FETCHES = Gauge(
    "sharequeue_waiting_fetches",
    "Fetches that wait now. A fetch that was passed on to the only leader is counted at both gateways.",
)
PRODUCE_BYTES = Gauge(
    "sharequeue_produce_bytes",
    "Bytes of the requests that produce or commit and are not answered yet; `max_produce_bytes` bounds it.",
)
STREAMS = Gauge(
    "sharequeue_streams",
    "[Streams](streams.md) that are open at this gateway. Each waits with a fetch, or for room in its window.",
)
STREAMS_RESUMED = Counter(
    "sharequeue_streams_resumed", "Streams that a member opened again after its connection was lost."
)
STREAMS_REPLACED = Counter(
    "sharequeue_streams_replaced", "Connections of streams that ended because the member opened its stream elsewhere."
)
LED_SHARE_PARTITIONS = Gauge("sharequeue_led_share_partitions", "Share-partitions this gateway has loaded.")
SHARE_SESSIONS = Gauge("sharequeue_share_sessions", "Open share sessions (ShareSessionsCount).")
SHARE_SESSION_PARTITIONS = Gauge(
    "sharequeue_share_session_partitions", "Partitions in share sessions (SharePartitionsCount)."
)
SHARE_SESSION_EVICTIONS = Counter(
    "sharequeue_share_session_evictions", "Sessions dropped because they were idle (ShareSessionEvictionsPerSec)."
)
APPENDS_ELSEWHERE = Counts[str](
    "sharequeue_appends_elsewhere",
    "Appends that this gateway sent to the one that leads their partition: `appended`, `refused`, or `unanswered`. After "
    "the latter two this gateway appends itself.",
    ["outcome"],
)
SCHEDULED_RECORDS = Gauge(
    "sharequeue_scheduled_records", "Scheduled records that wait for their time in all topics, up to 15 s ago."
)
SCHEDULED_OVERDUE_SECONDS = Gauge(
    "sharequeue_scheduled_overdue_seconds",
    "How long the earliest scheduled record has been due and is not in the log: 0 while records enter it in time.",
)
SCHEDULED_MOVED = Counter(
    "sharequeue_scheduled_moved", "Scheduled records that this gateway moved into the log when they were due."
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
    "Tries to write dead letters that failed; the gateway repeats them (DeadLetterQueueFailedProduceRequestsPerSec).",
    ["group"],
)
PARKED_DEAD_LETTERS = Counts[str](
    "sharequeue_parked_dead_letter_records",
    "Dead letters that their topic refuses, kept in a table.",
    ["group"],
)
REMOVED_UNFINISHED = Counts[str](
    "sharequeue_removed_unfinished_records",
    "Offsets that retention removed although the group had not finished them; counted by the gateway that sweeps the "
    "partition.",
    ["group"],
)
ENDING_HOLDS = Gauge(
    "sharequeue_ending_holds",
    "Pairs of group and topic in which an idle group with unfinished records has used up half of "
    "`retention.hold.idle.ms`. The sum over all gateways is the number.",
)
DEAD_LETTERS_PENDING = Gauge("sharequeue_dead_letters_pending", "Records on their way to a dead-letter topic.")
SHARE_COORDINATORS_FAILING = Gauge(
    "sharequeue_share_coordinators_failing",
    "Share coordinators that take no state writes; fetches acquire nothing from their share-partitions.",
)
CLOCK_JUMPS = Counter(
    "sharequeue_clock_jumps",
    "How often the difference to PostgreSQL's clock changed by more than a second: a clock was set, or the machine "
    "slept.",
)
OPEN_TRANSACTIONS = Gauge(
    "sharequeue_open_transactions",
    "[Transactions](transactions.md) that are open in the whole service. Each gateway has the same number: use `max`.",
)
OLDEST_OPEN_TRANSACTION_SECONDS = Gauge(
    "sharequeue_oldest_open_transaction_seconds",
    "Age of the oldest open transaction; 0 without any. Each gateway has the same number: use `max`. `/readyz` names the "
    "transaction after a minute.",
)
TRANSACTIONS_ENDED = Counts[Labels](
    "sharequeue_transactions_ended",
    "Transactions that ended, counted by the gateway that ended them: `committed` or `aborted`, by `client`, "
    "`timed_out`, `fenced`, `administrator`, or `refused` because of an acknowledgement.",
    ("state", "reason"),
)
TRANSACTION_END_SECONDS = Histogram(
    "sharequeue_transaction_end_seconds", "Time to commit or abort a transaction, until the outcome is durable."
)
PENDING_RECORDS = Gauge(
    "sharequeue_pending_records",
    "Records of share-partitions of this gateway that are [pending on a transaction](transactions.md#settle-and-produce-"
    "together).",
)
OLDEST_PENDING_SECONDS = Gauge(
    "sharequeue_oldest_pending_seconds",
    "The longest time for which records of share-partitions of this gateway have been pending on a transaction, counted "
    "from when this gateway began to lead them; 0 without any. A commit needs less than a second.",
)
OLDEST_UNAPPLIED_SECONDS = Gauge(
    "sharequeue_oldest_unapplied_settlement_seconds",
    "Age of the oldest acknowledgement that a transaction has committed and that is not in the state of its "
    "share-partition yet; 0 without one of more than five seconds. Each gateway has the same number: use `max`.",
)
RECORDS_SETTLED = Counts[str](
    "sharequeue_pending_records_resolved",
    "Records that were pending on a transaction, by what its end made of them: `accept`, `release`, `reject`, `gap`, or "
    "`none` if it was aborted or did not settle them.",
    ["ack_type"],
)
PENDING_LOADED = Counter(
    "sharequeue_pending_transactions_loaded",
    "Transactions with pending records that a load of a share-partition has found, counted for each share-partition: their "
    "leader has changed.",
)
LOCK_TIMERS_DEGRADED = Gauge(
    "sharequeue_lock_timers_degraded", "1 while Redis does not answer, or refuses; `/readyz` says which."
)

OF_GROUP = (DEAD_LETTERS, DEAD_LETTER_WRITES, FAILED_DEAD_LETTER_WRITES, PARKED_DEAD_LETTERS)
OF_TOPIC = (SHARE_FETCHES, FAILED_SHARE_FETCHES, SHARE_ACKNOWLEDGES, FAILED_SHARE_ACKNOWLEDGES)


def forget_groups(is_led: Callable[[str], object]) -> None:
    """Drop the series of groups that this gateway does not lead. `is_led`: whether it leads a part of one."""
    for counts in OF_GROUP:
        for group_id in [group_id for group_id in counts if not is_led(group_id)]:
            counts.forget(group_id)


def forget_group(group_id: str) -> None:
    for counts in (*OF_GROUP, REMOVED_UNFINISHED):
        counts.forget(group_id)


def forget_topic(name: str) -> None:
    for counts in OF_TOPIC:
        counts.forget(name)
