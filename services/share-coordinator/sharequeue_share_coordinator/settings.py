"""The share coordinator's settings, read from the environment with the prefix SHAREQUEUE_SHARE_COORDINATOR_."""

from sharequeue.http.limits import HttpLimits
from sharequeue.service.settings import Port, Positive, check_cluster_token, check_log_level

PREFIX = "SHAREQUEUE_SHARE_COORDINATOR_"


class Settings(HttpLimits, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    coordinator_url: str
    cluster_token: str

    host: str = "127.0.0.1"
    port: Port = 8082
    node_id: str = ""
    """Empty: made of the host name and the port. A process with the same name takes over at once."""
    url: str = ""
    """Where the other services reach this instance. Empty: made of host and port."""
    shards: int = 16
    """The number of shards that share-partitions are spread over. The first start stores it in the database."""
    lease_ms: int = 3000
    """The other instances take the shards of one that has not renewed its lease for this long."""
    log_level: str = "info"
    allow_unauthenticated: bool = False
    snapshot_update_records_per_snapshot: int = 500
    kafka_defaults: bool = False
    """Snapshots are due by the number of updates alone, as in Kafka."""
    cold_partition_snapshot_interval_ms: Positive = 300_000
    prune_interval_ms: Positive = 30_000
    max_cached_share_partitions: Positive = 200_000

    def check(self) -> None:
        """Raises: ValueError: a value out of Kafka's bounds."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
        if not 0 <= self.snapshot_update_records_per_snapshot <= 500:
            raise ValueError("snapshot_update_records_per_snapshot must be in the range 0 to 500 inclusive")
        if not 1 <= self.shards <= 1024:
            raise ValueError("shards must be in the range 1 to 1024")
        if self.lease_ms < 300:
            raise ValueError("a lease must be at least 300 ms")
