"""The share coordinator's settings, read from the environment with the prefix SHAREQUEUE_SHARE_COORDINATOR_."""

from typing import Annotated

from msgspec import Meta

from sharequeue.http.limits import HttpLimits
from sharequeue.service.settings import LeaseMs, Port, Positive, Shards, check_cluster_token, check_log_level

PREFIX = "SHAREQUEUE_SHARE_COORDINATOR_"


class Settings(HttpLimits, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    """PostgreSQL with the schema `share_state`."""
    coordinator_url: str
    """The URL of one group coordinator, or of several, separated by commas."""
    cluster_token: str
    """The secret that services show each other, as for the gateway."""

    host: str = "127.0.0.1"
    """The address to bind."""
    port: Port = 8082
    """The port to bind; 0 takes any free one."""
    node_id: str = ""
    """This instance's name, which must be unique. A process takes over from an earlier one of its name: at once if that
    had the same `url`, otherwise when its lease has ended. If it renews its lease, the later process does not start. If
    `node_id` is empty, the name is made of the host's name and the port."""
    url: str = ""
    """The URL at which others reach this instance. If it is empty, it is made of `host` and `port`; an instance that
    binds all addresses uses the host's name."""
    shards: Shards = 16
    """The number of shards that share-partitions are spread over. The first start stores it in the database, and a
    start with another number is refused."""
    lease_ms: LeaseMs = 3000
    """How long the other instances wait for a silent one before they take its shards."""
    log_level: str = "info"
    """debug, info, warning or error."""
    allow_unauthenticated: bool = False
    """True lets the service bind an address that is not loopback. Its calls need the cluster token in any case, so it
    takes any `Host`."""
    snapshot_update_records_per_snapshot: Annotated[int, Meta(ge=0, le=500)] = 500
    """After this many updates of a share-partition, a snapshot is due. If the last snapshot has more than 16 KiB, the
    updates must also have twice its bytes, or half of its bytes after 20,000 updates. The size of a snapshot of more
    than 1,000 batches is that of what has changed since one was stored whole. Kafka:
    share.coordinator.snapshot.update.records.per.snapshot."""
    kafka_defaults: bool = False
    """True: only the number of updates decides when a snapshot is due."""
    cold_partition_snapshot_interval_ms: Positive = 300_000
    """A share-partition without writes for this time gets a snapshot, so that its rows can be removed. Kafka:
    share.coordinator.cold.partition.snapshot.interval.ms."""
    prune_interval_ms: Positive = 30_000
    """How often the service removes rows that a newer snapshot covers. Every 20th time, and after a start, it looks at
    all share-partitions. Kafka: share.coordinator.state.topic.prune.interval.ms, 300000."""
    max_cached_share_partitions: Positive = 200_000
    """Share-partitions whose state stays in memory. The state of others is replayed when it is needed."""

    def check(self) -> None:
        """Raises: ValueError: there is no such log level, or the token can be guessed."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
