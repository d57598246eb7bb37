"""The gateway's settings, read from environment variables with the prefix SHAREQUEUE_GATEWAY_."""

from typing import Annotated, Literal

from msgspec import Meta, ValidationError, convert

from sharequeue.protocol.messages.access import PrincipalName
from sharequeue.service.addresses import check_address, check_redis_url
from sharequeue.service.kafka_settings import check_record_log
from sharequeue.service.settings import Port, Positive, ServiceSettings
from sharequeue_http.origins import host_of_url, hosts_of, origins_of
from sharequeue_kafka.settings import Mechanism, SecurityProtocol

PREFIX = "SHAREQUEUE_GATEWAY_"


def principals_of(setting: str) -> list[str]:
    """The principals that a setting lists, separated by commas. Raises: ValueError: one is not a principal."""
    principals = list(filter(None, map(str.strip, setting.split(","))))
    for principal in principals:
        try:
            convert(principal, PrincipalName)
        except ValidationError:
            raise ValueError(f"{principal!r} is not a principal: give User:name") from None
    return principals


class Settings(ServiceSettings, frozen=True, kw_only=True):
    """Durations in milliseconds, sizes in bytes."""

    database_url: str
    """PostgreSQL with the schema `log`: `postgresql://user:password@host:port/database`. Version 16 to 18. The
    tests run on 16 and 18; on 17, which `docker-compose.yml` runs, those over TLS alone."""
    redis_url: str
    """Redis: `redis://:password@host:port/number`, with TLS `rediss://…`. Tested on Redis 7, Valkey 8 and Valkey 9."""
    coordinator_url: str
    """The URL of one group coordinator, or of several, separated by commas. Each instance names all others."""
    share_coordinator_url: str
    """The URL of one share coordinator, or of several, separated by commas."""
    record_log: Literal["postgres", "kafka"] = "postgres"
    """Where the records are. With `kafka` the topics are those of a Kafka cluster: [kafka.md](kafka.md). Set it and the
    settings that begin with `kafka_` at the group coordinator too."""
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
    port: Port = 8080
    """The port to bind; 0 takes any free one."""
    node_id: str = ""
    """This gateway's name, which must be unique. While a gateway with this name and another `url` renews its lease, a
    later one does not start. If it is empty, the name is made of the host's name and the port."""
    url: str = ""
    """The URL at which other services reach this gateway. If it is empty, it is made of `host` and `port`; a gateway
    that binds all addresses uses the host's name. Requests may have its host in `Host`."""
    authentication: Literal["off", "optional", "required"] = "off"
    """`required`: each caller needs a key, and has the rights of its principal. `optional`: a caller without a key may
    do all but manage keys and rights, and is counted and logged, so that one sees when to switch. `off`: keys are not
    read. [security.md](security.md) has a tour."""
    super_users: str = ""
    """Principals that may do everything, separated by commas: `User:admin,User:operator`."""
    access_stale_ms: Annotated[int, Meta(ge=-1)] = 60_000
    """A gateway that has heard nothing of changes of keys and rights for this time answers 503 to callers, except for
    acknowledgements, renewals, commits and aborts. −1: never. Nothing with `authentication=off`."""
    allow_anonymous_from_network: bool = False
    """True lets the gateway bind an address that is not loopback although callers need no key. Without it, such an
    address needs `authentication=required`."""
    allow_hosts: str = ""
    """Host names that requests may have in `Host`, separated by commas, without ports:
    `gateway,queue.example.org`. IP addresses, `localhost`, `*.localhost` and the host of `url` are always allowed.
    Others get 421: [proxy.md](proxy.md)."""
    allow_origins: str = ""
    """Origins whose pages may call from a browser (CORS), separated by commas:
    `https://app.example.org,http://localhost:3000`; `*` allows all. A page of another origin gets 403 for a call that
    changes something or acquires records: [proxy.md](proxy.md)."""
    drain_ms: Annotated[int, Meta(ge=0)] = 3000
    """How long a gateway takes calls after SIGTERM, and passes them on, while `/readyz` says 503. A load balancer must
    have noticed by then. The last gateway stops without this pause. All gateways need the same value."""
    kafka_defaults: bool = False
    """True gives [group settings](configuration.md#group-settings) Kafka's defaults and bounds, and applies Kafka's
    in-flight limit. Set it at the group coordinator too."""
    auto_create_topics: bool = True
    """Producing to a missing topic creates it, with one partition."""
    auto_create_dead_letter_topics: bool = True
    """A missing dead-letter topic is created, with `errors.deadletterqueue.group.enable=true`."""

    max_request_bytes: Positive = 10 * 1024 * 1024
    """A larger body gets 413, if it carries records or commits a transaction. Other calls have at most 1 MiB."""
    max_produce_bytes: Positive = 64 * 1024 * 1024
    """Bytes of the requests that the gateway has read and not answered, and that produce or commit a transaction. A
    further one gets 429, before its body is read if its `Content-Length` says so; an `acknowledge` with `produce` gets
    it afterwards. Each byte costs three to six bytes of memory, and in a commit up to twelve. A single request is
    always taken."""
    max_value_depth: Annotated[int, Meta(ge=1, le=500)] = 64
    """A value whose arrays and objects nest deeper gets 422. Decoders of many languages stop at 64 or 128."""
    max_waiting_fetches: Positive = 10_000
    """Fetches that may wait. A further one gets 429."""
    max_streams: Positive = 4000
    """[Streams](streams.md) that are open, or whose client is expected back. A further one gets 429."""
    stream_heartbeat_ms: Positive = 15_000
    """How often an idle stream gets a comment, so that proxies keep its connection."""
    max_share_sessions: Positive = 2000
    """Open share sessions. A further one gets 429."""
    principal_percent: Annotated[int, Meta(ge=1, le=100)] = 50
    """The part of `max_waiting_fetches`, `max_streams`, `max_share_sessions`, `max_produce_bytes` and
    `max_open_transactions` that one principal may have while another one uses any of it. Of open transactions it leaves
    a tenth also while it is alone, so that others find room. Nothing with `authentication=off`."""
    max_open_transactions: Positive = 10_000
    """Open transactions over all gateways. A further one gets 429."""
    max_scheduled_records: Positive = 10_000_000
    """Scheduled records of one topic. A request that would add more gets 429. All gateways need the same value."""
    max_scheduled_bytes: Positive = 10 * 1024 * 1024 * 1024
    """Bytes of the scheduled records of one topic. A request that would add more gets 429. All gateways need the same
    value."""
    max_transaction_bytes: Positive = 1024 * 1024 * 1024
    """Bytes of the records of one transaction. A further produce gets 413. Each gateway counts the records that it
    takes, so a transaction over several gateways may reach the bound at each of them."""
    transaction_max_timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 900_000
    """The longest `timeout_ms` of a transaction. A transaction that its producer left open holds back the readers of
    committed records for that time at most."""
    transaction_sweep_ms: Positive = 1000
    """How often transactions whose time has passed are aborted."""
    share_session_idle_ms: Positive = 60_000
    """A session that was not used for this time is dropped. Its member keeps the records that it holds."""
    share_partition_idle_ms: Positive = 60_000
    """A share-partition that was not used for this time is unloaded, unless records are held. A fetch loads it
    again."""
    max_share_partitions: Positive = 200_000
    """Loaded share-partitions. A further load gets 429 until idle ones are unloaded."""
    max_delayed_runs: Positive = 1_000_000
    """Runs of records in flight (offsets side by side in the same state) over all share-partitions that the gateway
    leads, about 250 bytes each. Above it, new records wait at the share-partitions that have more than their equal
    part; the in-flight list shows it as `limited_by`."""
    record_cache_bytes: Positive = 64 * 1024 * 1024
    """Recent record batches kept in memory."""
    state_write_deadline_ms: Positive = 10_000
    """How long a request waits for a state write. Then its outcome is `unknown`, and the gateway sends the write
    again."""
    redis_timeout_ms: Positive = 50
    """The most time for a call to Redis. A gateway that gets no answer works without Redis. It must be below
    `state_write_deadline_ms`."""
    dead_letter_retry_max_ms: Positive = 30_000
    """The longest pause between two tries to write a dead letter."""
    activity_flush_ms: Annotated[int, Meta(ge=100)] = 5000
    """How often the counts for reports are written. A crash of the gateway loses the counts since the last time."""
    backlog_interval_ms: Positive = 10_000
    """How often one gateway looks at the backlog of every group, for metrics and samples."""
    max_metric_pairs: Positive = 2000
    """Pairs of group and topic with metrics of their own. The others are added up under `other`."""
    activity_retention_ms: Positive = 2_592_000_000
    """Older counts for reports are removed."""
    floor_interval_ms: Positive = 10_000
    """How often the gateway notes in the log how far each group has finished. Retention uses these notes."""
    retention_interval_ms: Positive = 60_000
    """How often `retention.ms` and `retention.bytes` are applied."""

    def check(self, prefix: str) -> None:
        """Raises: ValueError: settings that contradict each other."""
        super().check(prefix)
        if self.redis_timeout_ms >= self.state_write_deadline_ms:
            raise ValueError("redis_timeout_ms must be below state_write_deadline_ms")
        check_record_log(self, prefix)
        check_address(self.host, self.authentication == "required" or self.allow_anonymous_from_network, prefix)
        checked = {
            "super_users": principals_of,
            "url": host_of_url,
            "allow_hosts": hosts_of,
            "allow_origins": origins_of,
            "redis_url": check_redis_url,
        }
        for name, check in checked.items():
            try:
                if given := getattr(self, name):
                    check(given)
            except ValueError as fault:
                raise ValueError(f"{prefix}{name.upper()}: {fault}") from None
