"""The group coordinator's settings, read from the environment with the prefix SHAREQUEUE_COORDINATOR_."""

from sharequeue.http.limits import HttpLimits
from sharequeue.service.settings import Port, Positive, check_cluster_token, check_log_level

PREFIX = "SHAREQUEUE_COORDINATOR_"


class Settings(HttpLimits, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    share_coordinator_url: str
    cluster_token: str

    host: str = "127.0.0.1"
    port: Port = 8081
    node_id: str = ""
    """Empty: made of the host name and the port. A process with the same name takes over at once."""
    url: str = ""
    """Where the other services reach this instance. Empty: made of host and port."""
    shards: int = 16
    """The number of shards that groups are spread over. The first start stores it in the database."""
    lease_ms: int = 3000
    """The other instances take the shards of one that has not renewed its lease for this long."""
    log_level: str = "info"
    allow_unauthenticated: bool = False
    kafka_defaults: bool = False
    """Use Kafka's defaults and bounds of group settings instead of ours."""
    max_partitions_per_topic: Positive = 10_000
    deletion_retry_ms: Positive = 1000
    group_max_size: int = 200
    """The most members of a group; Kafka's group.share.max.size."""
    initialize_retry_interval_ms: Positive = 30_000
    """After this time an initialisation that was not answered is requested again."""
    gateway_lease_ms: int = 3000
    """A gateway that has not renewed its lease for this long is out of the generation."""

    def check(self) -> None:
        """Raises: ValueError: a value out of its bounds, or a lease too short to be renewed."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
        if not 1 <= self.group_max_size <= 1000:
            raise ValueError("group_max_size must be in the range 1 to 1000")
        if self.gateway_lease_ms < 300 or self.lease_ms < 300:
            raise ValueError("a lease must be at least 300 ms")
        if not 1 <= self.shards <= 1024:
            raise ValueError("shards must be in the range 1 to 1024")
