"""Rows as the JSON records of produceRecords, cut into requests.

Columns: value, and optionally key, headers, partition, timestamp and topic.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.registry import registry_values
from sharequeue_pipeline.sink.digests import digest_of

_encode: Final = msgspec.json.Encoder(decimal_format="number", uuid_format="canonical").encode
_check: Final = msgspec.json.Decoder().decode
AT_ONCE: Final = 512
"""Rows that are Python values at the same time."""
GATHERED_BYTES: Final = 64 * 1024 * 1024
"""Of unfinished requests in memory, over all topics of a task. More are sent as they are."""
_TEXT: Final = (spark.StringType, spark.BinaryType)
ACCEPTED: Final[dict[str, tuple[tuple[type[spark.DataType], ...], str]]] = {
    "key": (_TEXT, "a string or binary"),
    "headers": ((spark.MapType,), "a map of string to string"),
    "partition": ((spark.IntegerType, spark.LongType, spark.ShortType), "an integer"),
    "timestamp": ((spark.TimestampType,), "a timestamp"),
    "topic": ((spark.StringType,), "a string"),
}


class _Record(msgspec.Struct, omit_defaults=True, gc=False):
    """A ProduceRecord whose fields are Python values: one call of the encoder makes the JSON and the base64 of all."""

    key: Any = UNSET
    key_base64: Any = UNSET
    value: Any = UNSET
    value_base64: Any = UNSET
    headers: Any = UNSET
    partition: int | None = None
    timestamp_ms: int | None = None


class _Sent(msgspec.Struct):
    """The fields of an encoded record."""

    key: str | None = None
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    value_base64: str | None = None
    headers: dict[str, str] = {}
    partition: int | None = None
    timestamp_ms: int | None = None


_decode: Final = msgspec.json.Decoder(_Sent).decode


class Rows:
    """Encodes rows of one schema as records. Raises: PipelineError: a column is missing, unknown or of a wrong type."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        names = schema.names
        if "value" not in names:
            raise PipelineError(f"the column value is missing: the columns are {', '.join(names) or 'none'}")
        for entry in schema.fields:
            if entry.name == "value":
                continue
            if entry.name not in ACCEPTED:
                raise PipelineError(f"the column {entry.name} is unknown: a record has value, {', '.join(ACCEPTED)}")
            kinds, wanted = ACCEPTED[entry.name]
            text = isinstance(entry.dataType, spark.MapType) and not (
                isinstance(entry.dataType.keyType, spark.StringType)
                and isinstance(entry.dataType.valueType, spark.StringType)
            )
            if not isinstance(entry.dataType, kinds) or text:
                raise PipelineError(f"the column {entry.name} must be {wanted}, not {entry.dataType.simpleString()}")
        if ("topic" in names) == (options.topic is not None):
            raise PipelineError("name the topic either with the option topic or in a column topic")
        self._topic = options.topic
        value_type = schema["value"].dataType
        self._value_format = options.value_format or _format_of(value_type)
        if self._value_format == "binary" and not isinstance(value_type, _TEXT):
            raise PipelineError(f"valueFormat=binary needs a binary or string value, not {value_type.simpleString()}")
        if self._value_format == "string" and not isinstance(value_type, spark.StringType):
            raise PipelineError(f"valueFormat=string needs a string value, not {value_type.simpleString()}")
        self._as_bytes = self._value_format not in ("string", "json")
        self._made: Callable[[Any], Any] | None = None
        """Makes of a value what the encoder takes. None: it takes the value."""
        registered = registry_values(options)
        if registered is not None:
            self._made = registered.encode
        elif self._value_format == "binary" and isinstance(value_type, spark.StringType):
            self._made = str.encode
        elif self._value_format == "json" and isinstance(value_type, _TEXT):
            self._made = _checked

    def records(self, batch: Any) -> Iterator[tuple[str, bytes]]:
        """(topic, encoded record) of each row of a record batch."""
        for first in range(0, batch.num_rows, AT_ONCE):
            part = batch.slice(first, AT_ONCE)
            topics: Iterable[str] = repeat(self._topic or "")
            if self._topic is None:
                topics = [topic or _no_topic() for topic in part.column("topic").to_pylist()]
            yield from zip(topics, self._encoded(part), strict=False)

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        names = batch.schema.names
        key: Iterable[Any] = repeat(UNSET)
        key_base64: Iterable[Any] = repeat(UNSET)
        if "key" in names:
            keys = [UNSET if each is None else each for each in batch.column("key").to_pylist()]
            if pa.types.is_binary(batch.column("key").type):
                key_base64 = keys
            else:
                key = keys
        value, value_base64 = self._values(batch.column("value"))
        headers: Iterable[Any] = repeat(UNSET)
        if "headers" in names:
            maps = batch.column("headers").to_pylist(maps_as_pydicts="lossy")
            headers = [_headers(each) if each else UNSET for each in maps]
        partition: Iterable[int | None] = repeat(None)
        if "partition" in names:
            partition = batch.column("partition").to_pylist()
        timestamp: Iterable[int | None] = repeat(None)
        if "timestamp" in names:
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            timestamp = [None if time_us is None else time_us // 1000 for time_us in times]
        fields = (key, key_base64, value, value_base64, headers, partition, timestamp)
        return map(_encode, islice(map(_Record, *fields), batch.num_rows))

    def _values(self, column: Any) -> tuple[Iterable[Any], Iterable[Any]]:
        """The fields `value` and `value_base64` of the records. A null is a tombstone."""
        values = column.to_pylist(maps_as_pydicts="lossy")
        made = self._made
        if made is not None:
            values = [None if value is None else made(value) for value in values]
        if not self._as_bytes:
            return values, repeat(UNSET)
        return (
            [None if value is None else UNSET for value in values],
            [UNSET if value is None else value for value in values],
        )


def _checked(value: str | bytes) -> msgspec.Raw:
    """JSON that is given as text. Raises: PipelineError: it is not JSON."""
    text = value.encode() if isinstance(value, str) else value
    try:
        _check(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        shown = text[:60].decode("utf-8", "replace")
        raise PipelineError(f"valueFormat=json: {shown!r} is not JSON: {fault}") from None
    return msgspec.Raw(text)


def _format_of(value_type: spark.DataType) -> str:
    if isinstance(value_type, spark.BinaryType):
        return "binary"
    return "string" if isinstance(value_type, spark.StringType) else "json"


def _headers(headers: dict[str, str | None]) -> dict[str, str]:
    """Sorted: a repeated task makes the same bytes."""
    return {name: headers[name] or "" for name in sorted(headers)}


def _no_topic() -> str:
    raise PipelineError("a row has no topic: its column topic is null")


class JsonChunk(NamedTuple):
    """The records of one request, each as JSON."""

    topic: str
    records: list[bytes]

    @property
    def arrow(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.records)

    @property
    def body(self) -> bytes:
        return b'{"records":[' + b",".join(self.records) + b"]}"

    def digests(self) -> Iterator[bytes]:
        """The digest of each record, as `digest_of` makes it."""
        for record in map(_decode, self.records):
            key = record.key if record.key_base64 is None else base64.b64decode(record.key_base64)
            value: Any = record.value
            if record.value_base64 is not None:
                value = base64.b64decode(record.value_base64)
            elif bytes(record.value) == b"null":
                value = None
            yield digest_of(key, value, record.headers, record.partition, record.timestamp_ms)

    def only(self, places: Sequence[int]) -> "JsonChunk":
        """The request of some of the records."""
        return JsonChunk(self.topic, [self.records[place] for place in places])

    def largest(self) -> tuple[int, str | bytes]:
        """The bytes of the largest record, and its key, or its value."""
        record = max(self.records, key=len)
        found = _decode(record)
        return len(record), found.key or found.key_base64 or found.value_base64 or bytes(found.value)


class _Gathered:
    """Records of a topic for the next request."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.bytes = 0


def chunks(records: Iterable[tuple[str, bytes]], options: SinkOptions) -> Iterator[JsonChunk]:
    """Cut (topic, record) pairs into requests of one topic each. Each topic's records keep their order."""
    gathered: dict[str, _Gathered] = {}
    total = 0
    for topic, record in records:
        size = len(record) + 1
        if total + size > GATHERED_BYTES:
            yield from (JsonChunk(name, entry.records) for name, entry in gathered.items())
            gathered, total = {}, 0
        entry = gathered.setdefault(topic, _Gathered())
        full = entry.bytes + size > options.max_request_bytes or len(entry.records) >= options.max_request_records
        if entry.records and full:
            total -= entry.bytes
            yield JsonChunk(topic, entry.records)
            entry = gathered[topic] = _Gathered()
        entry.records.append(record)
        entry.bytes += size
        total += size
    yield from (JsonChunk(topic, entry.records) for topic, entry in gathered.items())
