"""The gateway's settings, read from environment variables with the prefix SHAREQUEUE_GATEWAY_."""

from typing import Annotated

from msgspec import Meta

from sharequeue.http.limits import HttpLimits
from sharequeue.http.origins import host_of_url, hosts_of, origins_of
from sharequeue.service.settings import Port, Positive, check_cluster_token, check_log_level

PREFIX = "SHAREQUEUE_GATEWAY_"


class Settings(HttpLimits, frozen=True, kw_only=True):
    """Durations in milliseconds, sizes in bytes."""

    database_url: str
    redis_url: str
    coordinator_url: str
    share_coordinator_url: str
    cluster_token: str

    host: str = "127.0.0.1"
    port: Port = 8080
    node_id: str = ""
    """The name of this gateway. If it is empty, the name is made of the host's name and the port."""
    url: str = ""
    """The URL at which other services reach this gateway. If it is empty, it is made of `host` and the port, or of the
    host's name and the port if `host` binds all addresses."""
    log_level: str = "info"
    allow_unauthenticated: bool = False
    """Serve a public address although callers are not authenticated."""
    allow_hosts: str = ""
    """Names that the header Host may have besides the one in `url`, separated by commas."""
    allow_origins: str = ""
    """Origins whose pages may call from a browser, separated by commas; `*`: all."""
    kafka_defaults: bool = False
    """Use Kafka's defaults and bounds for group settings, and its in-flight limit, which counts the span of the
    window."""
    auto_create_topics: bool = True
    auto_create_dead_letter_topics: bool = True

    max_request_bytes: Positive = 10 * 1024 * 1024
    max_produce_bytes: Positive = 64 * 1024 * 1024
    """Bytes of produce requests that are read and not answered; a request above it is refused with 429."""
    max_value_depth: Annotated[int, Meta(ge=1, le=500)] = 64
    """Levels of arrays and objects in a value. Decoders of many languages stop at 64 or 128."""
    max_waiting_fetches: Positive = 10_000
    max_share_sessions: Positive = 2000
    share_session_idle_ms: Positive = 60_000
    share_partition_idle_ms: Positive = 60_000
    max_share_partitions: Positive = 200_000
    max_delayed_runs: Positive = 1_000_000
    """Runs of records in flight over all share-partitions: about 250 bytes each. Above it, new records wait at those
    with more than their equal part."""
    record_cache_bytes: Positive = 64 * 1024 * 1024
    state_write_deadline_ms: Positive = 10_000
    redis_timeout_ms: Positive = 50
    dead_letter_retry_max_ms: Positive = 30_000
    activity_flush_ms: int = 5000
    """The pause between two writes of the counts for reports. A crash loses the counts since the last write."""
    backlog_interval_ms: Positive = 15_000
    """The pause between two looks at the backlog of every group, for metrics."""
    max_metric_pairs: Positive = 2000
    """Pairs of group and topic with metrics of their own; the others are added up."""
    activity_retention_ms: Positive = 2_592_000_000
    floor_interval_ms: Positive = 10_000
    """The pause between two raises of floors: how far each group has finished, which retention goes by."""
    retention_interval_ms: Positive = 60_000
    """The pause between two runs of retention, which moves log starts up."""

    def check(self) -> None:
        """Raises: ValueError: settings that contradict each other."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
        if self.redis_timeout_ms >= self.state_write_deadline_ms:
            raise ValueError("redis_timeout_ms must be below state_write_deadline_ms")
        for parse, name in (host_of_url, "url"), (hosts_of, "allow_hosts"), (origins_of, "allow_origins"):
            try:
                if given := getattr(self, name):
                    parse(given)
            except ValueError as fault:
                raise ValueError(f"{PREFIX}{name.upper()}: {fault}") from None
        if self.activity_flush_ms < 100:
            raise ValueError("activity_flush_ms must be at least 100")
