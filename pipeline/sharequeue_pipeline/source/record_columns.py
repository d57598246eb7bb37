"""From the Arrow answers of readRecords to record batches of the source's schema."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.registry import registry_values
from sharequeue_pipeline.source.registry_column import RegistryColumn
from sharequeue_pipeline.source.schema import RESCUED, arrow_schema

Malformed = dict[int, str]
"""What does not fit its schema, by the place of the record in its batch."""
_string: Final = msgspec.json.Decoder(str).decode


class RecordColumns:
    """Converts Arrow answers into record batches of one schema."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        self._on_malformed = options.on_malformed
        self._malformed: Malformed = {}
        self.rejected: list[tuple[Range, str]] = []
        """Records that were left out with `onMalformed=reject`, and why.
        The caller rejects them and clears the list."""
        self.malformed = 0
        """How many values did not fit their schema."""
        self.rescued = 0
        """How many values have a part that no column took."""
        self.arrow_schema = arrow_schema(schema)
        """Of the record batches."""
        self._key_type = self.arrow_schema.field("key").type
        self._value = self._value_column(options, schema)

    def _value_column(self, options: SourceOptions, schema: spark.StructType) -> Callable[[Any, Any], Any]:
        arrow_type = self.arrow_schema.field("value").type
        registered = registry_values(options)
        if registered is not None:
            same = registered.ddl.replace("`", "") == schema["value"].dataType.simpleString()
            return RegistryColumn(registered, arrow_type, self._malformed, same=same, rescues=RESCUED in schema.names)
        return _as_strings if options.value_format == "string" else lambda values, _: values

    def batch(self, entry: Range, records: Any) -> Any:
        """A record batch of the schema. `records`: as a gateway client reads them; `entry`: the range that was read."""
        made = self._batch(entry, records)
        if self._malformed and self._on_malformed != "null":
            made = self._without_malformed(entry, made)
        self.malformed += len(self._malformed)
        self._malformed.clear()
        return made

    def _without_malformed(self, entry: Range, made: Any) -> Any:
        """The batch without its malformed records. Raises: PipelineError: they fail the read (`onMalformed=fail`)."""
        offsets = made.column("offset")
        for place, fault in self._malformed.items():
            offset = offsets[place].as_py()
            if self._on_malformed == "fail":
                raise PipelineError(
                    f"{entry.topic}-{entry.partition} offset {offset} is malformed: {fault}; "
                    "onMalformed=null reads a null, and onMalformed=reject makes it a dead letter"
                )
            self.rejected.append((entry._replace(first_offset=offset, last_offset=offset), f"malformed: {fault}"))
        kept = pa.array([place not in self._malformed for place in range(made.num_rows)], pa.bool_())
        return made.filter(kept)

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
            "value_is_json": batch.column("value_is_json"),
            "headers": batch.column("headers"),
            "delivery_count": pa.repeat(pa.scalar(entry.delivery_count or None, pa.int32()), rows),
        }
        if isinstance(self._value, RegistryColumn):
            columns[RESCUED] = pa.array([self._value.rests.get(place) for place in range(rows)], pa.string())
            self.rescued += len(self._value.rests)
        found = ((columns[field.name], field.type) for field in self.arrow_schema)
        arrays = [array if array.type == wanted else array.cast(wanted) for array, wanted in found]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


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
