"""The share coordinator's metrics; docs/metrics.md lists them. Source: KIP-932, share-coordinator-metrics."""

from sharequeue_http.distribution import kinds_of

Counter, Gauge, Histogram = kinds_of("share coordinator")

WRITES = Counter(
    "sharequeue_share_coordinator_writes",
    "Writes, and reads that recorded a leader epoch (write-rate, write-total).",
)
WRITE_SECONDS = Histogram(
    "sharequeue_share_coordinator_write_seconds",
    "Time of one commit (write-latency-avg).",
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
)
WRITE_SECONDS_MAX = Gauge(
    "sharequeue_share_coordinator_write_seconds_max", "Longest commit of the last 30 to 60 seconds (write-latency-max)."
)
WRITE_SECONDS_MAX.set_function(WRITE_SECONDS.highest)
COMMIT_ROWS = Histogram(
    "sharequeue_share_coordinator_commit_rows",
    "Rows that shared one commit.",
    (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024),
)
LAST_PRUNED = Gauge(
    "sharequeue_share_coordinator_last_pruned_offset", "Rows below this sequence number are gone (last-pruned-offset)."
)
PRUNED_ROWS = Counter("sharequeue_share_coordinator_pruned_rows", "Rows removed because a newer snapshot covers them.")
CACHED = Gauge("sharequeue_share_coordinator_cached_share_partitions", "Share-partitions whose state is in memory.")
