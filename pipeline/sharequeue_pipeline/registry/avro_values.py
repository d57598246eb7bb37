"""Avro values: the type of a column for a schema, and reading and writing its values.

The types are those of Spark's `from_avro`: an enum is a string, `fixed` is binary, ["null", T] is T. A logical type
without a type in Spark counts as what lies below it. A union of several types has no type in Spark. A schema that
contains itself is refused.
"""

import io
import json
from collections.abc import Sequence
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.validation import ValidationError, validate

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import ValueOptions
from sharequeue_pipeline.registry.wire_format import HEADER_BYTES, Malformed, header, schema_id_of
from sharequeue_pipeline.schemas.lookup import Schemas

_TYPES: Final = {"long": "bigint", "bytes": "binary", "fixed": "binary", "enum": "string", "null": "?null"}
"""Types that Spark calls by another name."""
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_FAULTS: Final = (ValueError, TypeError, LookupError, OverflowError, AttributeError, ValidationError)
"""What the library raises for a value that is wrong."""


class AvroValues:
    """Values of one column. `ddl`: its type. Raises: PipelineError: the schema cannot be used."""

    def __init__(self, options: ValueOptions) -> None:
        self.schema_id = options.value_schema
        self._schemas = Schemas(options, "avsc", _parsed)
        self._schema, self.ddl = self._schemas.schema(self.schema_id, PipelineError)
        if "?" in self.ddl:
            raise PipelineError(
                f"schema {self.schema_id} has a part without a type in Spark, marked with ?: {self.ddl}"
            )

    def decode(self, value: bytes, *, whole: bool = False) -> Any:
        """A value as Arrow takes it. `whole`: with all fields of the schema that it was written with, and no others.

        Raises: Malformed; PipelineError: its schema cannot be used.
        """
        schema_id = schema_id_of(value)
        writer, _ = self._schemas.schema(schema_id, Malformed)
        body = io.BytesIO(
            value[HEADER_BYTES:] + b"\0"
        )  # a skipped field that ends behind the value reads the last byte
        try:
            own = whole or schema_id == self.schema_id
            found = fastavro.schemaless_reader(body, writer, None if own else self._schema)
        except (EOFError, SchemaResolutionError, *_FAULTS):
            raise Malformed(f"it does not fit schema {schema_id}, read as schema {self.schema_id}") from None
        if body.tell() != len(value) - HEADER_BYTES:
            raise Malformed(f"its length does not fit schema {schema_id}")
        return found

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Fields that it lacks have their defaults. Raises: PipelineError."""
        out = io.BytesIO()
        try:
            validate(value, self._schema)  # a writer alone cuts numbers
            fastavro.schemaless_writer(out, self._schema, value, strict_allow_default=True)
        except _FAULTS as fault:
            raise PipelineError(f"valueFormat=avro: a value does not fit schema {self.schema_id}: {fault}") from None
        return header(self.schema_id) + out.getvalue()


def _parsed(texts: Sequence[bytes]) -> tuple[Any, str]:
    """The last schema for the library, and the type of its values as DDL. It may name types of those before."""
    names: dict[str, Any] = {}
    parsed = [fastavro.parse_schema(json.loads(text), names) for text in texts][-1]
    ddl = _type(parsed, names, ())
    fields = [each for schema in names.values() for each in schema.get("fields", ()) if each.get("default") is not None]
    for field, default in [(each, _default(each, names)) for each in fields]:
        field["default"] = default
    return parsed, ddl


def _default(field: Any, names: dict[str, Any]) -> Any:
    """A default as the library reads values: in JSON times are numbers and bytes texts."""
    types = [each for each in field["type"] if each != "null"] if isinstance(field["type"], list) else [field["type"]]
    whole = {"type": "record", "name": "default", "fields": [{**field, "type": types[0]}]}
    record: Any = next(fastavro.json_reader(io.StringIO("{}"), fastavro.parse_schema(whole, {**names})))
    return record[field["name"]]


def _type(schema: Any, names: dict[str, Any], outer: tuple[str, ...]) -> str:
    """The type of values of a schema as DDL. A word with ? stands for a part without a type in Spark.

    A logical type without a type in Spark is taken out of the schema, so that the library does not read it.
    `outer`: the records that it is in. Raises: ValueError: a few bytes may take any time or any depth to read.
    """
    if isinstance(schema, list):
        members = [_type(each, names, outer) for each in schema if each != "null"]
        return members[0] if len(members) == 1 else "?union"
    if not isinstance(schema, dict):
        schema = names.get(schema, {"type": schema})
    kind, logical = schema["type"], schema.get("logicalType")
    if kind == "record":
        if schema["name"] in outer:
            raise ValueError(f"the type {schema['name']!r} contains itself")
        types = [_type(field["type"], names, (*outer, schema["name"])) for field in schema["fields"]]
        fields = [f"`{field['name']}`:{of}" for field, of in zip(schema["fields"], types, strict=True)]
        return f"struct<{','.join(fields)}>" if set(types) - {"?null"} else "?null"
    if kind == "array":
        items = _type(schema["items"], names, outer)
        if items == "?null":
            raise ValueError("the items of an array take no bytes")
        return f"array<{items}>"
    if kind == "map":
        return f"map<string,{_type(schema['values'], names, outer)}>"
    decimal = f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    found = decimal if logical == "decimal" else _LOGICAL.get((kind, logical))
    if found is None:
        schema.pop("logicalType", None)
    return "?null" if schema.get("size") == 0 else found or _TYPES.get(kind, kind)
