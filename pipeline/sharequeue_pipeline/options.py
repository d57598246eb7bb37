"""The options of the format `sharequeue`: parsed from text, checked, and separate for source and sink."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from sharequeue.protocol.messages.fields import IsolationLevel
from sharequeue.protocol.types import MAX_NAME_LENGTH, MAX_RECORDS, AcquireMode, group_id_fault
from sharequeue_http.calling.connections import NO_USER
from sharequeue_http.calling.login import Login, token_of_file
from sharequeue_pipeline.errors import PipelineError

DEFAULT_URL: Final = "http://127.0.0.1:8080"
PLAIN_FORMATS: Final = ("binary", "string", "json")
REGISTRY_FORMATS: Final = ("avro", "protobuf")
"""Formats of values whose schemas are in a registry."""
VALUE_FORMATS: Final = (*PLAIN_FORMATS, *REGISTRY_FORMATS)
REGISTRY_URL: Final = re.compile("https?://", re.IGNORECASE)
"""The beginning of a registry that is a server, and not a directory."""
READ_FORMATS: Final = ("binary", "string", *REGISTRY_FORMATS)
FROM_JSON: Final = """valueFormat=string, and .withColumn("value", from_json("value", "id INT, total DECIMAL(9,2)"))"""
"""How JSON becomes typed columns."""
DEFAULT_MAX_RECORDS_PER_TRIGGER: Final = 100_000
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
MAX_WRITE_ID: Final = 64
Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _short(most: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        if len(_text(text)) > most:
            raise ValueError(f"must have at most {most} characters")
        return text.strip()

    return read


def _token(text: str) -> str:
    try:
        Login(_text(text))
    except ValueError as fault:
        raise ValueError(str(fault).replace("a token must", "must")) from None
    return text.strip()


def _url(text: str) -> str:
    if "@" in text:
        raise ValueError(f"cannot be used: {NO_USER}")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be like {DEFAULT_URL}, not {text!r}")
    return text.rstrip("/")


def _registry(text: str) -> str:
    if REGISTRY_URL.match(text.strip()):
        return ",".join(_url(each.strip()) for each in text.split(","))
    return _text(text)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("names no topic")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as fault:
        raise ValueError(f"must be a regular expression, not {text!r}: {fault}") from None
    return text


def _group(text: str) -> str:
    fault = group_id_fault(text)
    if fault:
        raise ValueError(f"{text!r}: {fault}")
    return text


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return read


def _schema_id(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ValueError(f"must be the id of an Avro or Protobuf schema, not {text!r}; read JSON with {FROM_JSON}")
    return int(text)


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def _duration(text: str) -> int:
    """A time in ms from text with a unit, as `15m` or `500ms`."""
    match = re.fullmatch(r"([0-9]{1,9}) *(ms|s|m|min|h)", text.strip().lower())
    if match is None:
        raise ValueError(f"must be a time like 500ms, 30s or 15m, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _choice(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text.lower()

    return read


def _flag(text: str) -> bool:
    return _choice("true", "false")(text) == "true"


def _whole(value: str | int) -> int:
    """An integer from JSON: a number, or a field name that is one. Raises: ValueError."""
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,18}", str(value)):
        raise ValueError(value)
    return int(value)


def _by_partition(text: str, wanted: str) -> Offsets:
    """Whole numbers from JSON, by topic and partition. Raises: ValueError."""
    try:
        return {
            topic: {_whole(partition): _whole(number) for partition, number in partitions.items()}
            for topic, partitions in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"must be {wanted}, not {text!r}") from None


def _offsets(word: str) -> Callable[[str], str | Offsets]:
    def read(text: str) -> str | Offsets:
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        given = _by_partition(text, f'{EARLIEST}, {LATEST} or like {{"orders":{{"0":17}}}} (default {word})')
        for topic, partitions in given.items():
            for partition, offset in partitions.items():
                if offset < EARLIEST_OFFSET:
                    raise ValueError(
                        f"names offset {offset} of {topic}-{partition}: an offset is 0 or more, -1 (latest) or -2 (earliest)"
                    )
        return given

    return read


def _times(text: str) -> Offsets:
    """A time in ms for each partition."""
    wanted = 'times in ms like {"orders":{"0":1700000000000}}'
    given = _by_partition(text, wanted)
    if any(time < 0 for found in given.values() for time in found.values()):
        raise ValueError(f"must be {wanted}, not {text!r}")
    return given


_TIME: Final = _number(0, 10**15)
"""A time in ms for all partitions."""
Reader = Callable[[str], Any]


def _option(default: Any = None, *, shown: bool = True, **readers: Reader) -> Any:
    """A field, with a reader for each option of the format that gives it."""
    return field(default=default, repr=shown, metadata=readers)


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """The way to the gateway. `timeout_ms`: the time for all tries of one call together.

    `token_file`, `ca`: paths, on each machine of the cluster.
    """

    url: str = _option(DEFAULT_URL, url=_url)
    token: str | None = _option(shown=False, token=_token)
    token_file: str | None = _option(tokenFile=_text)
    ca: str | None = _option(ca=_text)
    timeout_ms: int = _option(120_000, timeoutMs=_number(1, 24 * 3_600_000))

    @property
    def login(self) -> Login:
        """Return what each request shows. A file is read for each, so that a new token counts at once."""
        return Login(self.token if self.token_file is None else token_of_file(self.token_file))

    def for_spark(self) -> dict[str, str | int]:
        """The same as options of the format."""
        given = {name: getattr(self, attribute) for name, (attribute, _) in GATEWAY.items()}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ValueOptions:
    """The options that source and sink have. `value_format`: None chooses by the type of the sink's column.

    `value_schema`, `schema_registry`: a schema id, and a directory or URLs, for REGISTRY_FORMATS. `registry_login`: the
    path of a file with a user and a password, or with a token.
    """

    gateway: GatewayOptions
    value_format: str | None = _option(valueFormat=_choice(*VALUE_FORMATS))
    value_schema: int = _option(0, valueSchema=_schema_id)
    schema_registry: str = _option("", schemaRegistry=_registry)
    registry_login: str | None = _option(schemaRegistryLogin=_text)
    value_message: str | None = _option(valueMessage=_text)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ValueOptions):
    """The options of a read; see docs/pipeline.md. `starting`, `ending`: a word or offsets, with `mode=log`."""

    topics: tuple[str, ...] = _option((), topics=_names)
    pattern: str | None = _option(subscribePattern=_pattern)
    mode: str | None = _option(mode=_choice("group", "log"))
    group: str | None = _option(group=_group)
    accept: str | None = _option(accept=_choice("read"))
    max_records_per_trigger: int | None = _option(maxRecordsPerTrigger=_number(1, 100_000_000))
    max_bytes_per_trigger: int | None = _option(maxBytesPerTrigger=_number(1, 2**40))
    min_records_per_trigger: int = _option(1, minRecordsPerTrigger=_number(1, 100_000_000))
    max_trigger_delay_ms: int = _option(15 * 60_000, maxTriggerDelay=_duration)
    raise_record_locks: bool | None = _option(raiseRecordLocks=_flag)
    parallelism: int = _option(1, parallelism=_number(1, 100_000))
    acquire_mode: str = _option(
        AcquireMode.RECORD_LIMIT.value, acquireMode=_choice(*(mode.value for mode in AcquireMode))
    )
    isolation: IsolationLevel | None = _option(isolationLevel=_choice("read_uncommitted", "read_committed"))
    lock_renew: bool = _option(True, lockRenew=_flag)
    on_error: str = _option("release", onError=_choice("release", "reject"))
    key_format: str = _option("binary", keyFormat=_choice("binary", "string"))
    value_format: str = _option("binary", valueFormat=_choice(*VALUE_FORMATS))
    on_malformed: str = _option("fail", onMalformed=_choice("reject", "null", "fail"))
    starting: str | Offsets = _option(EARLIEST, startingOffsets=_offsets(EARLIEST))
    ending: str | Offsets = _option(LATEST, endingOffsets=_offsets(LATEST))
    starting_at: int | Offsets | None = _option(startingTimestamp=_TIME, startingOffsetsByTimestamp=_times)
    ending_at: int | Offsets | None = _option(endingTimestamp=_TIME, endingOffsetsByTimestamp=_times)
    starting_strategy: str = _option("error", startingOffsetsByTimestampStrategy=_choice("error", "latest"))
    fail_on_data_loss: bool = _option(True, failOnDataLoss=_flag)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ValueOptions):
    """The options of a write; see docs/pipeline.md. `checkpoint`: Spark's own option checkpointLocation, if the writer
    has it."""

    topic: str | None = _option(topic=_text)
    write_id: str | None = _option(writeId=_short(MAX_WRITE_ID))
    max_request_bytes: int = _option(4 * 1024 * 1024, maxRequestBytes=_number(1, 8 * 1024 * 1024))
    max_request_records: int = _option(5000, maxRequestRecords=_number(1, MAX_RECORDS))
    transactional: bool = _option(False, transactional=_flag)
    transactional_id: str | None = _option(transactionalId=_short(MAX_NAME_LENGTH))
    transaction_timeout_ms: int = _option(900_000, transactionTimeoutMs=_number(1, 24 * 3_600_000))
    checkpoint: str | None = None


def _readers(of: type) -> dict[str, tuple[str, Reader]]:
    """The attribute that an option gives, and how its text is read, by the option's name."""
    return {name: (each.name, reader) for each in fields(of) for name, reader in each.metadata.items()}


GATEWAY: Final = _readers(GatewayOptions)
SOURCE: Final = _readers(SourceOptions)
SINK: Final = _readers(SinkOptions)
_TRIGGER: Final = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "minRecordsPerTrigger", "maxTriggerDelay")
"""The options that size micro-batches."""
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a source. Raises: PipelineError: one is unknown, missing or wrong."""
    values, gateway = _read(options, SOURCE)
    if "topics" not in values and "pattern" not in values:
        raise PipelineError(
            "the option topics is missing: name the topics to read, with commas between them, or give subscribePattern"
        )
    if "topics" in values and "pattern" in values:
        raise PipelineError("give one of topics and subscribePattern: both say which topics to read")
    values.setdefault("parallelism", os.cpu_count() or 1)
    _check_trigger(values)
    if values.get("value_format") == "json":
        raise PipelineError(f"valueFormat=json is for writing: read JSON with {FROM_JSON}")
    _check_registry(values)
    if "on_malformed" in values and values.get("value_format") not in REGISTRY_FORMATS:
        raise PipelineError(f"onMalformed needs valueFormat={' or '.join(REGISTRY_FORMATS)}: from_json has modes")
    if values.get("on_malformed") == "reject" and "group" not in values:
        raise PipelineError("onMalformed=reject needs the option group: only a share group has dead letters")
    if values.get("mode") == "log" and ("group" in values or "accept" in values):
        raise PipelineError("mode=log reads without a group: leave out group and accept")
    if values.get("mode") == "group" and "group" not in values:
        raise PipelineError("mode=group needs the option group")
    given = {name.lower() for name in options}
    for side in ("starting", "ending"):
        names = [name for name in SOURCE if name.lower() in given and name in _places(side)]
        if names and "group" in values:
            raise PipelineError(f"{names[0]} needs mode=log: a group has its own position")
        if len(names) > 1:
            raise PipelineError(f"give one of {names[0]} and {names[1]}: both say where to {side[:-3]}")
    return SourceOptions(gateway=gateway, **values)


def _check_registry(values: Mapping[str, Any]) -> None:
    """Raises: PipelineError: an option of values with a schema registry is missing, or needs another format."""
    value_format = values.get("value_format")
    for name in ("schemaRegistry", "valueSchema"):
        given = SINK[name][0] in values
        if given and value_format not in REGISTRY_FORMATS:
            raise PipelineError(f"{name} needs valueFormat={' or '.join(REGISTRY_FORMATS)}")
        if value_format in REGISTRY_FORMATS and not given:
            wanted = "schemaRegistry, a URL or the directory of the schemas, and valueSchema, a schema id in it"
            raise PipelineError(f"valueFormat={value_format} needs {wanted}")
    if "registry_login" in values and not REGISTRY_URL.match(values.get("schema_registry", "")):
        raise PipelineError("schemaRegistryLogin needs the URL of a schemaRegistry: a directory has no login")
    if "value_message" in values and value_format != "protobuf":
        raise PipelineError("valueMessage needs valueFormat=protobuf")


def _check_trigger(values: Mapping[str, Any]) -> None:
    """Raises: PipelineError: the options that size micro-batches contradict each other."""
    if "max_trigger_delay_ms" in values and "min_records_per_trigger" not in values:
        raise PipelineError("maxTriggerDelay needs minRecordsPerTrigger: it is the longest wait for that many records")
    if values.get("min_records_per_trigger", 1) > values.get(
        "max_records_per_trigger", DEFAULT_MAX_RECORDS_PER_TRIGGER
    ):
        raise PipelineError("minRecordsPerTrigger must not exceed maxRecordsPerTrigger")


def _places(side: str) -> tuple[str, ...]:
    """The options that say where a read starts or ends."""
    return f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"


def limits_of(options: Mapping[str, str]) -> list[str]:
    """Return the given options that size the micro-batches of a stream."""
    given = {name.lower() for name in options}
    return [name for name in _TRIGGER if name.lower() in given]


def check_use(options: Mapping[str, str], *, stream: bool, group: bool) -> None:
    """Raises: PipelineError: an option would have no effect on this kind of read."""
    idle = {"accept", *_places("ending")} if stream else {*_TRIGGER, "raiseRecordLocks", "onError"}
    if group and not stream:
        idle |= {"failOnDataLoss"}
    if not group:
        idle |= {"acquireMode", "lockRenew", "onError", "raiseRecordLocks"}
    given = {name.lower() for name in options}
    for name in sorted(idle):
        if name.lower() in given:
            kind = f"{'readStream' if stream else 'spark.read'} {'with a group' if group else 'of the log'}"
            raise PipelineError(f"the option {name} has no effect on {kind}: leave it out")


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a sink. Raises: PipelineError: one is unknown or wrong."""
    values, gateway = _read(options, SINK)
    for name in ("transactionalId", "transactionTimeoutMs"):
        if SINK[name][0] in values and not values.get("transactional"):
            raise PipelineError(f"{name} needs transactional=true")
    _check_registry(values)
    checkpoint = next((text for name, text in options.items() if name.lower() == "checkpointlocation"), None)
    return SinkOptions(gateway=gateway, checkpoint=checkpoint, **values)


def _read(options: Mapping[str, str], known: Mapping[str, tuple[str, Reader]]) -> tuple[dict[str, Any], GatewayOptions]:
    by_name = {name.lower(): (name, *row) for name, row in {**GATEWAY, **known}.items()}
    values: dict[str, Any] = {}
    for name, text in options.items():
        if name.lower() in _SPARKS_OWN:
            continue
        if name.lower() == "provider" or name.startswith("option."):
            raise PipelineError(
                "Spark keeps no options of a table, so CREATE TABLE … USING sharequeue cannot be read: make a view with "
                "CREATE TEMPORARY VIEW … USING sharequeue OPTIONS (…)"
            )
        if name.lower() not in by_name:
            raise PipelineError(
                f"there is no option {name!r}; known are {', '.join(sorted(row[0] for row in by_name.values()))}"
            )
        shown, attribute, reader = by_name[name.lower()]
        try:
            values[attribute] = reader(text)
        except ValueError as fault:
            raise PipelineError(f"the option {shown} {fault}") from None
    if "token" in values and "token_file" in values:
        raise PipelineError("give one of token and tokenFile, not both")
    of_gateway = {attribute for attribute, _ in GATEWAY.values()}
    gateway = GatewayOptions(**{name: value for name, value in values.items() if name in of_gateway})
    return {name: value for name, value in values.items() if name not in of_gateway}, gateway
