"""The group coordinator's knobs. Read from the environment with the prefix SHAREQUEUE_COORDINATOR_."""

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
    """Made of the host's name and the port when empty. A process of the same name takes over at once."""
    url: str = ""
    """Where others reach this instance; made of host and port when empty."""
    shards: int = 16
    """Over how many shards groups are spread; the first start stores it in the database."""
    lease_ms: int = 3000
    """How long others wait for an instance that is not heard of before they take its shards."""
    log_level: str = "info"
    allow_unauthenticated: bool = False
    kafka_defaults: bool = False
    """Kafka's defaults and bounds of group settings instead of ours."""
    max_partitions_per_topic: Positive = 10_000
    deletion_retry_ms: Positive = 1000
    group_max_size: int = 200
    """Members of a group; Kafka's group.share.max.size."""
    initialize_retry_interval_ms: Positive = 30_000
    """When an initialisation that was not answered is asked for again."""
    gateway_lease_ms: int = 3000
    """A gateway that is not heard of for that long leads no more."""

    def check(self) -> None:
        """Raises: ValueError: a limit out of bounds, a lease too short to be kept."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
        if not 1 <= self.group_max_size <= 1000:
            raise ValueError("group_max_size must be in the range 1 to 1000")
        if self.gateway_lease_ms < 300 or self.lease_ms < 300:
            raise ValueError("a lease must be at least 300 ms")
        if not 1 <= self.shards <= 1024:
            raise ValueError("shards must be in the range 1 to 1024")
