"""The group coordinator's settings, read from the environment with the prefix SHAREQUEUE_COORDINATOR_."""

from typing import Annotated

from msgspec import Meta

from sharequeue.http.limits import HttpLimits
from sharequeue.service.settings import LeaseMs, Port, Positive, Shards, check_cluster_token, check_log_level

PREFIX = "SHAREQUEUE_COORDINATOR_"


class Settings(HttpLimits, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    database_url: str
    """PostgreSQL with the schema `groups`."""
    share_coordinator_url: str
    """The URL of one share coordinator, or of several, separated by commas."""
    cluster_token: str
    """The secret that services show each other, as for the gateway."""

    host: str = "127.0.0.1"
    """The address to bind."""
    port: Port = 8081
    """The port to bind; 0 takes any free one."""
    node_id: str = ""
    """This instance's name, which must be unique. A process takes over from an earlier one of its name: at once if that
    had the same `url`, otherwise when its lease has ended. If it renews its lease, the later process does not start. If
    `node_id` is empty, the name is made of the host's name and the port."""
    url: str = ""
    """The URL at which others reach this instance. If it is empty, it is made of `host` and `port`; an instance that
    binds all addresses uses the host's name."""
    shards: Shards = 16
    """The number of shards that groups are spread over. The first start stores it in the database, and a start with
    another number is refused."""
    lease_ms: LeaseMs = 3000
    """How long the other instances wait for a silent one before they take its shards."""
    log_level: str = "info"
    """debug, info, warning or error."""
    allow_unauthenticated: bool = False
    """True lets the service bind an address that is not loopback. Its calls need the cluster token in any case, so it
    takes any `Host`."""
    kafka_defaults: bool = False
    """True gives [group settings](configuration.md#group-settings) Kafka's defaults and bounds. Set it at the gateways
    too."""
    max_partitions_per_topic: Positive = 10_000
    """The most partitions that a topic may have."""
    deletion_retry_ms: Positive = 1000
    """The pause before an unfinished deletion of a topic is tried again."""
    group_max_size: Annotated[int, Meta(ge=1, le=1000)] = 200
    """The most members of a group. Kafka: group.share.max.size."""
    initialize_retry_interval_ms: Positive = 30_000
    """The pause before the initialisation of a share-partition that got no answer is tried again. Kafka:
    group.share.initialize.retry.interval.ms."""
    gateway_lease_ms: LeaseMs = 3000
    """A gateway that is silent for this time leads no share-partitions until it reports again."""

    def check(self) -> None:
        """Raises: ValueError: there is no such log level, or the token can be guessed."""
        check_log_level(self.log_level, PREFIX)
        check_cluster_token(self.cluster_token, PREFIX)
