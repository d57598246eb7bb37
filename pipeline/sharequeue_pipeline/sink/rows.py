"""From rows to the records of a produce request.

Columns: value, and optionally key, headers, partition, timestamp and topic.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import REGISTRY_FORMATS, SinkOptions
from sharequeue_pipeline.registry.opening import SchemaName
from sharequeue_pipeline.registry.wire_format import Misfit

_encode: Final = msgspec.json.Encoder(decimal_format="number", uuid_format="canonical").encode
_check: Final = msgspec.json.Decoder().decode
NULL: Final = msgspec.Raw(b"null")
_TEXT: Final = (spark.StringType, spark.BinaryType)
ACCEPTED: Final[dict[str, tuple[tuple[type[spark.DataType], ...], str]]] = {
    "key": (_TEXT, "a string or binary"),
    "headers": ((spark.MapType,), "a map of string to string"),
    "partition": ((spark.IntegerType, spark.LongType, spark.ShortType), "an integer"),
    "timestamp": ((spark.TimestampType,), "a timestamp"),
    "topic": ((spark.StringType,), "a string"),
}


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
        self._text = isinstance(value_type, _TEXT)
        self._value: Callable[[Any, ProduceRecord], None]
        if self._value_format in REGISTRY_FORMATS:
            self._value = _registered(options, self._value_format, value_type)
        else:
            self._value = {"binary": _bytes, "string": _string, "json": self._json}[self._value_format]

    def records(self, batch: Any) -> Iterator[tuple[str, bytes]]:
        """(topic, encoded record) of each row of a record batch."""
        rows = batch.num_rows
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "timestamp" in columns:
            columns["timestamp"] = columns["timestamp"].cast(pa.int64())

        def values(name: str) -> list[Any]:
            return columns[name].to_pylist(maps_as_pydicts="lossy") if name in columns else [None] * rows

        fields = zip(
            *(values(name) for name in ("topic", "key", "value", "headers", "partition", "timestamp")), strict=True
        )
        for topic, key, value, headers, partition, timestamp_us in fields:
            record = ProduceRecord(  # sorted headers: a repeated task makes the same bytes
                headers=_headers(headers) if headers else msgspec.UNSET,
                partition=partition,
                timestamp_ms=None if timestamp_us is None else timestamp_us // 1000,
            )
            if isinstance(key, str):
                record.key = msgspec.Raw(_encode(key))
            elif key is not None:
                record.key_base64 = msgspec.Raw(_encode(key))
            if value is None:
                record.value = NULL
            else:
                self._value(value, record)
            yield topic or self._topic or _no_topic(), _encode(record)

    def _json(self, value: Any, record: ProduceRecord) -> None:
        if not self._text:
            record.value = msgspec.Raw(_encode(value))
            return
        text = value.encode() if isinstance(value, str) else value
        try:
            _check(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            shown = text[:60].decode("utf-8", "replace")
            raise PipelineError(f"valueFormat=json: {shown!r} is not JSON: {fault}") from None
        record.value = msgspec.Raw(text)


def _format_of(value_type: spark.DataType) -> str:
    if isinstance(value_type, spark.BinaryType):
        return "binary"
    return "string" if isinstance(value_type, spark.StringType) else "json"


def _schema(options: SinkOptions, value_format: str) -> SchemaName:
    assert options.schema_registry is not None  # the options were checked
    assert options.value_schema is not None
    return SchemaName(value_format, options.schema_registry, options.value_schema, options.value_message)


def pinned(options: SinkOptions) -> SinkOptions:
    """The options with a schema id in place of a subject, so that all tasks write with one schema.

    Raises: PipelineError: the registry has no such subject.
    """
    if options.value_format not in REGISTRY_FORMATS:
        return options
    return replace(options, value_schema=_schema(options, options.value_format).pinned())


def _registered(
    options: SinkOptions, value_format: str, value_type: spark.DataType
) -> Callable[[Any, ProduceRecord], None]:
    """Encodes values with a schema of the registry. Raises: PipelineError: the column does not fit the schema."""
    values = _schema(options, value_format).open()
    try:
        values.check(value_type)
    except Misfit as fault:
        raise PipelineError(f"valueFormat={value_format}: the column {fault}") from None

    def encode(value: Any, record: ProduceRecord) -> None:
        try:
            record.value_base64 = msgspec.Raw(_encode(values.encode(value)))
        except Misfit as fault:
            raise PipelineError(f"valueFormat={value_format}: {fault}") from None

    return encode


def _bytes(value: str | bytes, record: ProduceRecord) -> None:
    data = value.encode() if isinstance(value, str) else value
    record.value_base64 = msgspec.Raw(_encode(data))


def _string(value: str, record: ProduceRecord) -> None:
    record.value = msgspec.Raw(_encode(value))


def _headers(headers: dict[str, str | None]) -> msgspec.Raw:
    return msgspec.Raw(_encode({name: headers[name] or "" for name in sorted(headers)}))


def _no_topic() -> str:
    raise PipelineError("a row has no topic: its column topic is null")
