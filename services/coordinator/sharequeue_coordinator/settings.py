"""The group coordinator's settings, read from the environment with the prefix SHAREQUEUE_COORDINATOR_."""

from typing import Annotated

from msgspec import Meta

from sharequeue.ownership.settings import CoordinatorSettings
from sharequeue.service.settings import LeaseMs, Port, Positive

PREFIX = "SHAREQUEUE_COORDINATOR_"


class Settings(CoordinatorSettings, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    """PostgreSQL with the schema `groups`."""
    share_coordinator_url: str
    """The URL of one share coordinator, or of several, separated by commas."""
    port: Port = 8081
    """The port to bind; 0 takes any free one."""
    kafka_defaults: bool = False
    """True gives [group settings](configuration.md#group-settings) Kafka's defaults and bounds. Set it at the gateways
    too."""
    max_partitions_per_topic: Positive = 10_000
    """The most partitions that a topic may have."""
    max_topics: Positive = 10_000
    """The most topics; a further one is refused with 429."""
    max_groups: Positive = 100_000
    """The most share groups; a further one is refused with 429."""
    max_share_partitions: Positive = 20_000_000
    """The most share-partitions of all groups; further ones are refused with 429. Each has rows in PostgreSQL."""
    group_max_size: Annotated[int, Meta(ge=1, le=1000)] = 200
    """The most members of a group. Kafka: group.share.max.size."""
    initialize_retry_interval_ms: Positive = 30_000
    """The pause before the initialisation of a share-partition that got no answer is tried again. Kafka:
    group.share.initialize.retry.interval.ms."""
    gateway_lease_ms: LeaseMs = 3000
    """A gateway that is silent for this time leads no share-partitions until it reports again."""
