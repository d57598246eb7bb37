"""The gateway's knobs. Read from the environment with the prefix SHAREQUEUE_GATEWAY_."""

from msgspec import Struct

from sharequeue_gateway.cross_origin import origins_of

PREFIX = "SHAREQUEUE_GATEWAY_"


class Settings(Struct, frozen=True, kw_only=True):
    """Durations in milliseconds, sizes in bytes."""

    database_url: str
    redis_url: str
    coordinator_url: str
    share_coordinator_url: str
    cluster_token: str

    host: str = "127.0.0.1"
    port: int = 8080
    node_id: str = ""
    """This gateway's name; made of the host's name and the port when empty."""
    url: str = ""
    """Where other services reach this gateway; made of host (the host's name if it binds all) and port when empty."""
    log_level: str = "info"
    allow_unauthenticated: bool = False
    """Serve a public address although no caller has to say who it is."""
    allow_origins: str = ""
    """Origins whose pages may call from a browser, with commas between; `*`: all."""
    kafka_defaults: bool = False
    """Kafka's defaults and bounds of group settings instead of ours, and its in-flight limit that counts the span."""
    auto_create_topics: bool = True
    auto_create_dead_letter_topics: bool = True

    max_request_bytes: int = 10 * 1024 * 1024
    max_waiting_fetches: int = 10_000
    max_share_sessions: int = 2000
    share_session_idle_ms: int = 60_000
    share_partition_idle_ms: int = 60_000
    max_share_partitions: int = 200_000
    record_cache_bytes: int = 64 * 1024 * 1024
    state_write_deadline_ms: int = 10_000
    redis_timeout_ms: int = 50
    dead_letter_retry_max_ms: int = 30_000
    activity_flush_ms: int = 5000
    """How often what went through the queue is written down; a crash loses what was counted since."""
    activity_retention_ms: int = 2_592_000_000
    retention_interval_ms: int = 60_000
    """How often log starts are moved up as retention.ms and retention.bytes ask."""

    def check(self) -> None:
        """Raises: ValueError: settings that contradict each other."""
        if self.redis_timeout_ms >= self.state_write_deadline_ms:
            raise ValueError("redis_timeout_ms must be below state_write_deadline_ms")
        if self.max_share_sessions < 1 or self.max_waiting_fetches < 1 or self.max_share_partitions < 1:
            raise ValueError("limits must be at least 1")
        try:
            origins_of(self.allow_origins)
        except ValueError as fault:
            raise ValueError(f"{PREFIX}ALLOW_ORIGINS: {fault}") from None
        if self.activity_flush_ms < 100:
            raise ValueError("activity_flush_ms must be at least 100")
