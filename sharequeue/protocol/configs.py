"""The settings of topics and share groups: Kafka's names, our defaults and bounds, and Kafka's own beside them.

Values travel as text. A stored value outside the bounds in force is clamped when it is read, never refused.
Source: KIP-932, KIP-1191, KIP-1240.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from sharequeue.protocol.errors import InvalidConfig
from sharequeue.protocol.types import (
    MAX_DELAY_MS,
    MAX_INT64,
    MAX_LOCK_DURATION_MS,
    MAX_NAME_LENGTH,
    MIN_LOCK_DURATION_MS,
    group_id_fault,
    topic_name_fault,
)
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.forms.texts import whole_number

HOUR_MS: Final = 3_600_000
SHORTEST_HOLD_MS: Final = 60_000
"""A shorter time would end between two notes that a group is in use."""
DEAD_LETTER_PREFIX: Final = "dlq."
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
"""Of the default dead-letter topic of each group."""
DEAD_LETTER_CONSUMER: Final = "errors.deadletterqueue.consumer.group"
ERROR_HEADER: Final = "__dlq.errors."
"""Before the names of a dead letter's own headers, which say what became of its record."""
SOURCE_HEADER: Final = "__dlq.source.header."
"""Before the names of the source record's headers, in the headers of its dead letter."""
SESSION: Final = "share.session.timeout.ms"
HEARTBEAT: Final = "share.heartbeat.interval.ms"
LOCK_DURATION: Final = "share.record.lock.duration.ms"
DELIVERY_LIMIT: Final = "share.delivery.count.limit"
RECORD_LOCKS: Final = "share.partition.max.record.locks"
SERVICE_WIDE: Final = (SESSION, HEARTBEAT, LOCK_DURATION, DELIVERY_LIMIT, RECORD_LOCKS)
"""Settings whose default and bounds the operator may set, see `service_configs`."""
PAUSED: Final = "share.paused"
LONGEST_HOLD_MS: Final = 100 * 365 * 24 * HOUR_MS  # PostgreSQL subtracts it from a time


class Config(NamedTuple):
    """One setting. `kind` is int, bool, choice or text; `range` has both bounds, included. Kafka's own stand where they
    differ.

    `doc`: what it means, as docs/configuration.md has it. `form`: of a text, in words.
    """

    name: str
    default: str
    doc: str
    range: tuple[int, int] = (0, MAX_INT64)
    choices: tuple[str, ...] = ()
    kafka_default: str | None = None
    kafka_range: tuple[int, int] | None = None
    check: Callable[[str], str | None] | None = None
    form: str = ""
    kind: str = "text"

    def default_for(self, kafka_defaults: bool) -> str:
        return self.kafka_default if kafka_defaults and self.kafka_default is not None else self.default

    def bounds(self, kafka_defaults: bool) -> tuple[int, int]:
        return self.kafka_range if kafka_defaults and self.kafka_range is not None else self.range


_number, _flag, _choice = (partial(Config, kind=kind) for kind in ("int", "bool", "choice"))
Configs = Mapping[str, Config]
"""Settings by name, with the defaults and bounds in force."""
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,40}")
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d{1,18})D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,18})H)?(?:(?P<minutes>\d{1,18})M)?(?:(?P<seconds>\d{1,18}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def duration_ms(text: str) -> int | None:
    """The milliseconds of an ISO-8601 duration `PnDTnHnMn.nS`; None if `text` is not one, or longer than an int64."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes = (int(match[unit] or 0) for unit in ("days", "hours", "minutes"))
    milliseconds = ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(match["seconds"] or 0) * 1000)
    return milliseconds if milliseconds <= MAX_INT64 else None


def _auto_offset_reset_fault(text: str) -> str | None:
    if text in ("earliest", "latest"):
        return None
    if text.startswith("by_duration:") and duration_ms(text.removeprefix("by_duration:")) is not None:
        return None
    return "must be earliest, latest or by_duration:PnDTnHnMn.nS"


_MOST_WAITS: Final = 100
"""As many as the highest `share.delivery.count.limit`."""


def retry_waits(text: str) -> tuple[int, ...]:
    """The waits of `share.retry.backoff.ms`, in milliseconds. Raises: ValueError: `text` is not a list of them."""
    waits = []
    for part in text.split(",") if text.strip() else ():
        wait_ms = whole_number(part.strip(), MAX_DELAY_MS)
        if wait_ms is None:
            raise ValueError(part)
        waits.append(wait_ms)
    if len(waits) > _MOST_WAITS:
        raise ValueError(text)
    return tuple(waits)


def _retry_backoff_fault(text: str) -> str | None:
    try:
        retry_waits(text)
    except ValueError:
        return f"must be up to {_MOST_WAITS} waits of 0 to {MAX_DELAY_MS} ms, separated by commas"
    return None


def _dead_letter_topic_fault(text: str) -> str | None:
    fault = topic_name_fault(text) if text else None
    return f"must name a topic: {fault}" if fault else None


GROUP_CONFIGS: Final[Configs] = {
    config.name: config
    for config in (
        _number(
            SESSION,
            "45000",
            "A member that sends no heartbeat for this time leaves the group. It must be above the heartbeat interval.",
            (1000, HOUR_MS),
            kafka_range=(45_000, 60_000),
        ),
        _number(
            HEARTBEAT,
            "5000",
            "How often a member is asked to send a heartbeat.",
            (500, 60_000),
            kafka_range=(5000, 15_000),
        ),
        _number(
            LOCK_DURATION,
            "30000",
            "How long a fetched record stays locked, unless its fetch says otherwise (`lock_duration_ms`).",
            (MIN_LOCK_DURATION_MS, MAX_LOCK_DURATION_MS),
            kafka_range=(15_000, 60_000),
        ),
        _number(
            DELIVERY_LIMIT,
            "5",
            "Attempts of a record: its deliveries without those [never begun](api.md#fetch-and-acknowledge). A record "
            "that fails the last one is dead-lettered or archived.",
            (1, 100),
            kafka_range=(2, 10),
        ),
        _number(
            RECORD_LOCKS,
            "2000",
            "Records of a share-partition that may be held or on their way to the dead-letter topic.",
            (1, 1_000_000),
            kafka_range=(100, 4000),
        ),
        _number(
            "share.partition.max.delayed.records",
            "100000",
            "Records of a share-partition that may wait to be delivered again, with a delay or without. Above it [new "
            "records wait](#bounds-of-the-window). Without effect with `kafka_defaults`.",
            (0, 10_000_000),
        ),
        _number(
            "share.redelivery.percent",
            "75",
            "If a share-partition has records to deliver again and new ones, this percentage of fetches begins with the "
            "records to deliver again, and the others [with the new ones](#redelivered-and-new-records).",
            (0, 100),
            kafka_default="100",
        ),
        Config(
            "share.auto.offset.reset",
            "earliest",
            "Where a group begins in a topic it has never read, in each partition that the topic has then. A partition "
            "that the topic gets later is read from its first record. `by_duration` begins at the log end if no record "
            "is that new (Kafka looks again at the next fetch).",
            kafka_default="latest",
            check=_auto_offset_reset_fault,
            form="earliest, latest, by_duration:PnDTnHnMn.nS",
        ),
        _choice(
            "share.isolation.level",
            "read_uncommitted",
            "What the group receives of transactions. `read_committed`: records up to the first one of an open transaction, "
            "and none of aborted ones. `read_uncommitted`: every record at once. A change holds for later fetches.",
            choices=("read_uncommitted", "read_committed"),
        ),
        _flag("share.renew.acknowledge.enable", "true", "Whether locks may be renewed."),
        _flag(
            PAUSED,
            "false",
            "With `true` the group [is paused](#a-paused-group): its fetches acquire nothing. Records that are held stay "
            "held. Kafka has no such setting.",
        ),
        _number(
            "share.outcomes.keep.ms",
            "0",
            "How long the log keeps which member has finished a record, and when: lookUpRecord shows it. Each range that an "
            "acknowledgement finishes is a row in the database of the log. 0: it is not kept. A gateway that crashes loses "
            "the rows of its last seconds (`activity_flush_ms`).",
            (0, 2_592_000_000),
        ),
        _number(
            "share.assignment.interval.ms",
            "1000",
            "The least time between two assignments of a group.",
            (0, 60_000),
            kafka_range=(0, 15_000),
        ),
        _flag(
            "share.assignor.offload.enable",
            "true",
            "Without effect: the assignor always runs in the event loop. 1,000 members and 10,000 partitions take up "
            "to 0.6 s, in the worst case known 1.8 s ([measured](benchmarks.md)).",
        ),
        Config(
            "share.retry.backoff.ms",
            "",
            "Waits before the second, third, … delivery of a record, such as `1000,5000,30000`. The last one repeats. "
            "Empty: [no waits](#backoff).",
            check=_retry_backoff_fault,
            form="up to 100 waits of 0–43200000",
        ),
        _number(
            "share.retry.jitter.percent", "10", "By how much each of these waits may be longer, in percent.", (0, 50)
        ),
        _flag(
            "share.throttle.released",
            "false",
            "After many attempts a batch is delivered in smaller and smaller parts, to isolate a record that kills its "
            "worker. With `true` this applies also to batches that a worker released, although that worker is alive. A new "
            "leader sees that a record was released only if the release had a `reason`.",
            kafka_default="true",
        ),
        Config(
            DEAD_LETTER_TOPIC,
            "dlq.<group>",
            "The dead-letter topic. Empty turns dead letters off.",
            kafka_default="",
            check=_dead_letter_topic_fault,
            form="the name of a topic, not `__…`; or empty",
        ),
        _flag(
            "errors.deadletterqueue.copy.record.enable",
            "true",
            "Whether dead letters carry key and value, not only headers.",
            kafka_default="false",
        ),
        Config(
            DEAD_LETTER_CONSUMER,
            "",
            "Another group, which works on the dead letters in their topic. A dead letter is not open any more when that "
            "group has finished it. Empty: no group does.",
            check=lambda text: group_id_fault(text) if text else None,
            form="the id of a group, or empty",
        ),
        _flag(
            "retention.hold",
            "true",
            "Whether retention keeps [what this group has not finished](#retention-and-groups).",
        ),
        _number(
            "retention.hold.idle.ms",
            "604800000",
            "How long `retention.hold` lasts after the last use of the group; −1: always. At least a minute: a smaller "
            "value counts as 60000.",
            (-1, LONGEST_HOLD_MS),
        ),
    )
}

TOPIC_CONFIGS: Final[Configs] = {
    config.name: config
    for config in (
        _number(
            "retention.ms",
            "-1",
            "Older records are removed, a batch at a time; −1 keeps them. Kafka keeps them for 604800000.",
            (-1, MAX_INT64),
        ),
        _number(
            "retention.bytes",
            "-1",
            "Bytes kept of each partition, as they are stored (compressed), and always the newest batch; −1 keeps all.",
            (-1, MAX_INT64),
        ),
        _choice(
            "retention.unsettled",
            "keep",
            "`keep`: the two limits above spare records that a group in use has not finished. `delete`: they do not.",
            choices=("delete", "keep"),
            kafka_default="delete",
        ),
        _number(
            "retention.unsettled.max.bytes",
            "-1",
            "Stored bytes of each partition above which the oldest records go, finished or not; −1: no ceiling. Not in Kafka.",
            (-1, MAX_INT64),
        ),
        _flag(
            "cleanup.settled",
            "false",
            "Whether records go as soon as every group that uses the topic has finished them, at any age. Not in "
            "Kafka.",
        ),
        _choice(
            "cleanup.policy",
            "delete",
            "`compact` turns retention off; the job [compact](pipeline.md#compact) keeps the last record of each key.",
            choices=("delete", "compact"),
        ),
        _number("delete.retention.ms", "86400000", "How long compaction keeps tombstones."),
        _number(
            "min.compaction.lag.ms", "0", "Records younger than this, and all records behind them, are not compacted."
        ),
        _number(
            "message.timestamp.after.max.ms",
            "3600000",
            "How far in the future a record's `timestamp_ms` may lie. A later one gets 422, because it would keep "
            "retention from all records behind it.",
        ),
        _number(
            "max.message.bytes",
            "1048588",
            "The largest record, as the JSON that is stored; Kafka's setting bounds a batch. Above 10 MiB raise the "
            "gateway's `max_request_bytes` too.",
            (1, 52_428_800),
        ),
        _flag(
            "errors.deadletterqueue.group.enable",
            "false",
            "Whether groups may use this topic as their dead-letter queue.",
        ),
        _choice(
            "value.format",
            "auto",
            "With Kafka as the record log, how a value is read: `auto`, `json`: JSON as `value`, all else as "
            "`value_base64`; `text`: UTF-8 as `value`, a string; `bytes`: `value_base64`. Not in Kafka.",
            choices=("auto", "json", "text", "bytes"),
        ),
    )
}


def service_name(name: str, which: str = "") -> str:
    """The service-wide setting that has the default of a group's setting, or its bound: `which` is min or max."""
    return f"group.share.{which}.{name.removeprefix('share.')}".replace("..", ".")


def _known(configs: Configs, name: str) -> Config:
    config = configs.get(name)
    if config is None:
        raise InvalidConfig(f"there is no setting {quoted(name)!r}; known are {', '.join(sorted(configs))}")
    return config


def validate(configs: Configs, name: str, value: str, kafka_defaults: bool) -> str:
    """Check one value against its setting and return it as it is stored.

    Raises: InvalidConfig: unknown name, wrong type or out of bounds.
    """
    config = _known(configs, name)
    if config.kind == "int":
        if not _WHOLE_NUMBER.fullmatch(value):
            raise InvalidConfig(f"{name} must be a whole number in the digits 0 to 9, not {quoted(value)!r}")
        number = int(value)
        low, high = config.bounds(kafka_defaults)
        if not low <= number <= high:
            which, bound = ("min", low) if number < low else ("max", high)
            of = f"; {service_name(name, which)} is {bound}" if name in SERVICE_WIDE else ""
            raise InvalidConfig(f"{name} must be in the range {low} to {high} inclusive, not {number}{of}")
        return str(number)
    if config.kind == "bool" and value not in ("true", "false"):
        raise InvalidConfig(f"{name} must be true or false, not {quoted(value)!r}")
    if config.kind == "choice" and value not in config.choices:
        raise InvalidConfig(f"{name} must be one of {', '.join(config.choices)}, not {quoted(value)!r}")
    fault = config.check(value) if config.check else None
    if fault:
        raise InvalidConfig(f"{name} {fault}, not {quoted(value)!r}")
    return value


def changed_config(
    configs: Configs,
    stored: Mapping[str, str],
    changes: Mapping[str, str],
    reset: Sequence[str],
    kafka_defaults: bool = False,
) -> dict[str, str]:
    """The stored settings after changes; a name in `reset` sets the default. Raises: InvalidConfig."""
    config = dict(stored)
    for name in reset:
        _known(configs, name)
        config.pop(name, None)
    for name, value in changes.items():
        config[name] = validate(configs, name, value, kafka_defaults)
    return config


def changed_group_config(
    stored: Mapping[str, str],
    changes: Mapping[str, str],
    reset: Sequence[str],
    kafka_defaults: bool,
    configs: Configs = GROUP_CONFIGS,
) -> dict[str, str]:
    """As `changed_config`, of a group: a session lasts longer than the heartbeat interval."""
    config = changed_config(configs, stored, changes, reset, kafka_defaults)
    in_force = effective(configs, config, kafka_defaults)
    if {SESSION, HEARTBEAT} & {*changes, *reset} and int(in_force[SESSION]) <= int(in_force[HEARTBEAT]):
        raise InvalidConfig("share.session.timeout.ms must be greater than share.heartbeat.interval.ms")
    return config


def check_lock_duration(lock_duration_ms: int, bounds: tuple[int, int]) -> None:
    """Raises: InvalidRequest: a lock cannot have this length. `bounds`: of the group setting."""
    low, high = bounds
    if not low <= lock_duration_ms <= high:
        raise InvalidRequest(f"lock_duration_ms must be in the range {low} to {high} inclusive, not {lock_duration_ms}")


def dead_letter_topic_name(group_id: str) -> str:
    """The default dead-letter topic of a group: `dlq.` + its id;
    other characters as `_xx` hex, hashed when too long."""
    safe = "".join(
        character
        if re.fullmatch(r"[a-zA-Z0-9.-]", character)
        else "".join(f"_{byte:02x}" for byte in character.encode())
        for character in group_id
    )
    name = f"{DEAD_LETTER_PREFIX}{safe}"
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[:200]}.{hashlib.sha256(group_id.encode()).hexdigest()[:16]}"


def group_of_dead_letters(topic: str) -> str | None:
    """The group whose default dead-letter topic has this name; None: of no group, or its long name was hashed."""
    if not topic.startswith(DEAD_LETTER_PREFIX) or len(topic) > MAX_NAME_LENGTH:
        return None
    safe = topic.removeprefix(DEAD_LETTER_PREFIX).encode()
    with contextlib.suppress(UnicodeDecodeError):
        group_id = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), safe).decode()
        if dead_letter_topic_name(group_id) == topic:
            return group_id
    return None


class ShareGroupConfig(msgspec.Struct, frozen=True):
    """The settings of a group in force: stored values or defaults, clamped to the bounds."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2000
    auto_offset_reset: str = "earliest"
    read_committed: bool = False
    """Whether the group receives no record of a transaction that is open or was aborted."""
    renew_acknowledge_enable: bool = True
    paused: bool = False
    """Whether fetches acquire nothing now."""
    outcomes_keep_ms: int = 0
    """How long it is kept who has finished a record; 0: not at all."""
    dead_letter_topic_name: str = ""
    dead_letter_copy_record: bool = True
    dead_letter_consumer_group: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    hold_ms: int = 604_800_000
    """How long the group holds the log after its last use; 0: never, -1: always."""
    retry_backoff_ms: tuple[int, ...] = ()
    retry_jitter_percent: int = 10
    partition_max_delayed_records: int = 100_000
    redelivery_percent: int = 75
    throttle_released: bool = False
    forgives: bool = True
    """Whether deliveries that were never begun are no attempts. Kafka counts all."""
    count_span: bool = False
    """Whether the in-flight limit counts offsets of the window, as Kafka's, or records held or ARCHIVING."""
    max_runs: int = 25_000
    """The most runs of the window: no new records while it has as many."""
    max_span: int = 2_000_000_000
    """The most offsets between start and end of the window, in any state. Their count must fit an int32."""

    @property
    def dead_letter_enabled(self) -> bool:
        return self.dead_letter_topic_name != ""


def effective(configs: Configs, stored: Mapping[str, str], kafka_defaults: bool) -> dict[str, str]:
    """Every setting's value in force, as text: the stored one clamped to the bounds, or the default."""
    values = {}
    for config in configs.values():
        value = stored.get(config.name, config.default_for(kafka_defaults))
        if config.kind == "int":
            low, high = config.bounds(kafka_defaults)
            value = str(min(max(int(value), low), high))
        values[config.name] = value
    return values


def share_group_config(
    group_id: str, stored: Mapping[str, str], kafka_defaults: bool = False, configs: Configs = GROUP_CONFIGS
) -> ShareGroupConfig:
    """The settings of a group in force. The default dead-letter topic is named after the group: `dlq.<group>`."""
    values = group_config_values(group_id, stored, kafka_defaults, configs)
    return ShareGroupConfig(
        record_lock_duration_ms=int(values[LOCK_DURATION]),
        delivery_count_limit=int(values[DELIVERY_LIMIT]),
        partition_max_record_locks=int(values[RECORD_LOCKS]),
        partition_max_delayed_records=int(values["share.partition.max.delayed.records"]),
        redelivery_percent=int(values["share.redelivery.percent"]),
        auto_offset_reset=values["share.auto.offset.reset"],
        read_committed=values["share.isolation.level"] == "read_committed",
        renew_acknowledge_enable=values["share.renew.acknowledge.enable"] == "true",
        paused=values[PAUSED] == "true",
        outcomes_keep_ms=int(values["share.outcomes.keep.ms"]),
        dead_letter_topic_name=values[DEAD_LETTER_TOPIC],
        dead_letter_copy_record=values["errors.deadletterqueue.copy.record.enable"] == "true",
        dead_letter_consumer_group=values[DEAD_LETTER_CONSUMER],
        session_timeout_ms=int(values[SESSION]),
        heartbeat_interval_ms=int(values[HEARTBEAT]),
        assignment_interval_ms=int(values["share.assignment.interval.ms"]),
        hold_ms=hold_ms(values),
        retry_backoff_ms=retry_waits(values["share.retry.backoff.ms"]),
        retry_jitter_percent=int(values["share.retry.jitter.percent"]),
        throttle_released=values["share.throttle.released"] == "true",
        forgives=not kafka_defaults,
        count_span=kafka_defaults,
    )


def hold_ms(values: Mapping[str, str]) -> int:
    """Return how long a group with these settings in force holds the log after its last use; 0: never, -1: always.

    A paused group is to find its records afterwards, however long the pause was.
    """
    if values.get("retention.hold") == "false":
        return 0
    if values.get(PAUSED) == "true":
        return -1
    idle_ms = int(values.get("retention.hold.idle.ms", GROUP_CONFIGS["retention.hold.idle.ms"].default))
    return idle_ms if idle_ms < 0 else max(idle_ms, SHORTEST_HOLD_MS)


def group_config_values(
    group_id: str, stored: Mapping[str, str], kafka_defaults: bool = False, configs: Configs = GROUP_CONFIGS
) -> dict[str, str]:
    """The settings of a group in force, as text. A heartbeat interval that is not below the session, because a default
    or a bound has changed, counts as a third of the session."""
    values = effective(configs, stored, kafka_defaults)
    session_ms = int(values[SESSION])
    if int(values[HEARTBEAT]) >= session_ms:
        values[HEARTBEAT] = str(max(session_ms // 3, configs[HEARTBEAT].bounds(kafka_defaults)[0]))
    if DEAD_LETTER_TOPIC not in stored and not kafka_defaults:
        values[DEAD_LETTER_TOPIC] = dead_letter_topic_name(group_id)
    return values
