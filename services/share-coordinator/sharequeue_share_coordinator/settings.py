"""The share coordinator's settings, read from the environment with the prefix SHAREQUEUE_SHARE_COORDINATOR_."""

from typing import Annotated

from msgspec import Meta

from sharequeue.ownership.settings import CoordinatorSettings
from sharequeue.service.settings import Port, Positive

PREFIX = "SHAREQUEUE_SHARE_COORDINATOR_"


class Settings(CoordinatorSettings, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    """PostgreSQL with the schema `share_state`."""
    coordinator_url: str
    """The URL of one group coordinator, or of several, separated by commas."""
    port: Port = 8082
    """The port to bind; 0 takes any free one."""
    snapshot_update_records_per_snapshot: Annotated[int, Meta(ge=0, le=500)] = 500
    """After this many updates of a share-partition, a snapshot is due. If the last snapshot has more than 16 KiB, the
    updates must also have its bytes, or be 8,000. Kafka:
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
