"""From the Arrow answers of readRecords to record batches of the source's schema."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.schema import json_type

_string: Final = msgspec.json.Decoder(str).decode


class RecordColumns:
    """Converts Arrow answers into record batches of one schema."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._key_type = self._schema.field("key").type
        self._value = self._value_column(options.value_format, schema)

    def _value_column(self, value_format: str, schema: spark.StructType) -> Callable[[Any, Any], Any]:
        if value_format == "json":
            return _JsonColumn(schema["value"].dataType, self._schema.field("value").type)
        return _as_strings if value_format == "string" else lambda values, _: values

    def batches(self, entry: Range, arrow: bytes) -> Iterator[Any]:
        """The record batches of one answer. `entry`: the range that was read."""
        with pa.ipc.open_stream(arrow) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield self._batch(entry, batch)

    def _batch(self, entry: Range, batch: Any) -> Any:
        rows = batch.num_rows
        key = batch.column("key")
        columns = {
            "topic": pa.repeat(pa.scalar(entry.topic, pa.string()), rows),
            "partition": pa.repeat(pa.scalar(entry.partition, pa.int32()), rows),
            "offset": batch.column("offset"),
            "timestamp": pc.multiply(batch.column("timestamp_ms"), 1000).view(pa.timestamp("us", "UTC")),
            "key": key if self._key_type == pa.binary() else _text(key),
            "value": self._value(batch.column("value"), batch.column("value_is_json")),
            "headers": batch.column("headers"),
            "delivery_count": pa.repeat(pa.scalar(entry.delivery_count or None, pa.int32()), rows),
        }
        arrays = [_cast(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _cast(array: Any, wanted: Any) -> Any:
    return array if array.type == wanted else array.cast(wanted)


def _text(values: Any) -> Any:
    """Bytes as text. Like Spark's cast, it keeps bytes that are not UTF-8 unchanged."""
    return values.cast(pa.string(), safe=False)


def _as_strings(values: Any, is_json: Any) -> Any:
    """JSON strings without their quotes, other JSON as written, bytes as UTF-8."""
    quoted = pc.and_(is_json, pc.fill_null(pc.starts_with(values, '"'), False))
    places = pc.indices_nonzero(quoted).to_pylist()
    if not places:
        return _text(values)
    texts = values.to_pylist()
    for place in places:
        texts[place] = _string(texts[place]).encode()
    return _text(pa.array(texts, pa.binary()))


class _JsonColumn:
    """Values as a typed column. As with from_json, a value that is not JSON, is too deep or does not fit is null."""

    def __init__(self, data_type: spark.DataType, arrow_type: Any) -> None:
        self._decode = msgspec.json.Decoder(json_type(data_type)).decode
        self._arrow_type = arrow_type

    def __call__(self, values: Any, _: Any) -> Any:
        decoded = [None if value is None else self._decoded(value) for value in values.to_pylist()]
        try:
            return pa.array(decoded, self._arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array([self._fitting(value) for value in decoded], self._arrow_type)

    def _decoded(self, value: bytes) -> Any:
        try:
            return self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _fitting(self, value: Any) -> Any:
        """The value, or None if the column cannot hold it: a decimal may have too many digits."""
        try:
            pa.array([value], self._arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return None
        return value
