"""The group coordinator's settings, read from the environment with the prefix SHAREQUEUE_COORDINATOR_."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, defstruct

from sharequeue.ownership.settings import CoordinatorSettings
from sharequeue.protocol.configs import LONGEST_HOLD_MS
from sharequeue.protocol.service_configs import NAMES, service_config
from sharequeue.service.kafka_settings import check_record_log
from sharequeue.service.settings import LeaseMs, Port, Positive, SettingsError
from sharequeue_kafka.settings import Mechanism, SecurityProtocol

PREFIX = "SHAREQUEUE_COORDINATOR_"


if TYPE_CHECKING:
    _WithServiceWide = CoordinatorSettings
else:
    _SERVICE_WIDE = [(name.replace(".", "_"), int | None, None) for names in NAMES.values() for name in names]
    _WithServiceWide = defstruct("_WithServiceWide", _SERVICE_WIDE, bases=(CoordinatorSettings,), kw_only=True)


class Settings(_WithServiceWide, frozen=True, kw_only=True):
    """Durations in milliseconds. The service-wide settings of groups are fields too, such as
    `group_share_max_record_lock_duration_ms`; None: the default or the bound of the group setting's row."""

    database_url: str
    """PostgreSQL with the schema `groups`."""
    share_coordinator_url: str
    """The URL of one share coordinator, or of several, separated by commas."""
    record_log: Literal["postgres", "kafka"] = "postgres"
    """Where the records are. With `kafka` the topics are those of a Kafka cluster: [kafka.md](kafka.md). Set it and the
    settings that begin with `kafka_` at the gateways too."""
    kafka_bootstrap_servers: str = ""
    """Brokers of the cluster, `host:port`, separated by commas. One that answers is enough."""
    kafka_security_protocol: SecurityProtocol = "PLAINTEXT"
    """How the brokers are called: with or without TLS (`SSL`), and with or without a user (`SASL`)."""
    kafka_ca_file: str = ""
    """A file in PEM: the authorities that signed the certificates of the brokers. If it is empty, those of the system
    decide."""
    kafka_sasl_mechanism: Mechanism = "PLAIN"
    """How a user is shown to the brokers, if the security protocol has `SASL`."""
    kafka_user: str = ""
    """The user of PLAIN and SCRAM."""
    kafka_password: str = ""
    """The password of the user; with OAUTHBEARER the token."""
    kafka_password_file: str = ""
    """A file that has it. It is read again for each connection, so that a token can be renewed."""
    kafka_topics: str = "*"
    """Which topics of Kafka are shown: names, also with `*` and `?`, separated by commas. Internal ones never are. A
    topic that was shown once stays until it is deleted in Kafka."""
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
    group_share_empty_retention_ms: Annotated[int, Meta(ge=-1, le=LONGEST_HOLD_MS)] = -1
    """How long a group stays that has no members and is not used; then it is deleted
    [with its settings](configuration.md#empty-groups). −1: always."""

    def service_config(self) -> dict[str, int]:
        """The settings whose names begin with `group_share_`, by Kafka's names. Raises: ValueError."""
        names = [name for name in self.__struct_fields__ if name.startswith("group_share_")]
        return service_config({name.replace("_", "."): getattr(self, name) for name in names}, self.kafka_defaults)

    def check(self, prefix: str) -> None:
        """Raises: SettingsError: settings that contradict each other."""
        super().check(prefix)
        check_record_log(self, prefix)
        try:
            self.service_config()
        except ValueError as fault:
            raise SettingsError(f"{prefix}GROUP_SHARE_…: {fault}") from None
