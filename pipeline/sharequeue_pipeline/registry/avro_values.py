"""Avro values: the type of a column for a schema, and reading and writing its values.

The types are those of Spark's `from_avro`: an enum is a string, `fixed` is binary, ["null", T] is T. Of the logical
types `date`, `timestamp-…` and `local-timestamp-…` (millis, micros) and `decimal` count; a value with another one is
read as what lies below it. A union of several types has no type in Spark. A schema that contains itself is refused.
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as spark

from sharequeue_pipeline.registry.schema_folder import SchemaFolder
from sharequeue_pipeline.registry.wire_format import HEADER_BYTES, Malformed, Misfit, header, schema_id_of

_SIMPLE: Final[Mapping[str, spark.DataType]] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "bytes": spark.BinaryType(),
    "fixed": spark.BinaryType(),
    "enum": spark.StringType(),
}
_LOGICAL: Final[Mapping[tuple[Any, Any], spark.DataType]] = {
    ("int", "date"): spark.DateType(),
    ("long", "timestamp-millis"): spark.TimestampType(),
    ("long", "timestamp-micros"): spark.TimestampType(),
    ("long", "local-timestamp-millis"): spark.TimestampNTZType(),
    ("long", "local-timestamp-micros"): spark.TimestampNTZType(),
}
MAX_PRECISION: Final = 38


class AvroValues:
    """Values of one column. `data_type`: of the column. Raises: PipelineError: the schema cannot be used."""

    def __init__(self, schemas: SchemaFolder, schema_id: int) -> None:
        self._schemas = schemas
        self._id = schema_id
        self._writers: dict[int, Any] = {}
        self._schema, self.data_type, without = self._parsed(schema_id)
        if without:
            raise schemas.fault(schema_id, without[0])
        self._header = header(schema_id)

    def decode(self, value: bytes) -> Any:
        """A value as Arrow takes it. Raises: Malformed; PipelineError: its schema cannot be used."""
        schema_id = schema_id_of(value)
        writer = self._writers.get(schema_id) or self._writer(schema_id)
        body = io.BytesIO(value + b"\0")  # a skipped field may end behind the value: then this byte is read too
        body.seek(HEADER_BYTES)
        try:
            found = fastavro.schemaless_reader(body, writer, None if writer is self._schema else self._schema)
        except EOFError:
            raise Malformed(f"it ends too early for schema {schema_id}") from None
        except SchemaResolutionError as fault:
            raise Malformed(f"schema {schema_id} cannot be read as schema {self._id}: {fault}") from None
        except (ValueError, OverflowError, LookupError, TypeError):
            raise Malformed(f"it does not fit schema {schema_id}") from None
        if body.tell() > len(value):
            raise Malformed(f"it ends too early for schema {schema_id}")
        if body.tell() < len(value):
            raise Malformed(f"it has {len(value) - body.tell()} bytes more than schema {schema_id} reads")
        return found

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Raises: Misfit."""
        out = io.BytesIO()
        out.write(self._header)
        try:
            fastavro.schemaless_writer(out, self._schema, value, strict_allow_default=True)
        except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as fault:
            raise Misfit(f"a value does not fit schema {self._id}: {fault}") from None
        return out.getvalue()

    def _writer(self, schema_id: int) -> Any:
        if not self._schemas.knows(schema_id):
            raise Malformed(f"there is no schema {schema_id} in the registry")
        return self._parsed(schema_id)[0]

    def _parsed(self, schema_id: int) -> tuple[Any, spark.DataType, list[str]]:
        """A schema for the library, the type of its values, and why parts of them have none."""
        names: dict[str, Any] = {}
        whole: dict[str, Any] = {}
        """Definitions with the definitions of what they name in them."""
        without: list[str] = []
        try:
            given = json.loads(self._schemas.schema(schema_id), object_hook=_without_strange_type)
            data_type = _type(fastavro.parse_schema(given, whole, expand=True), "value", without)
            parsed = fastavro.parse_schema(given, names)
            for name, schema in names.items():
                for field, in_whole in zip(schema.get("fields", ()), whole[name].get("fields", ()), strict=True):
                    if field.get("default") is not None:
                        field["default"] = _default(field["default"], in_whole["type"])
        except UnknownType as fault:
            raise self._schemas.fault(schema_id, f"the type {fault.name!r} is not defined in it") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, SchemaParseException) as fault:
            raise self._schemas.fault(schema_id, fault) from None
        self._writers[schema_id] = parsed
        return parsed, data_type, without


def _without_strange_type(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without a logical type that has no type in Spark."""
    logical = part.get("logicalType")
    if logical != "decimal" and (str(part.get("type")), str(logical)) not in _LOGICAL:
        part.pop("logicalType", None)
    return part


def _default(given: Any, schema: Any) -> Any:
    """A default as the library reads values: in JSON bytes, times and decimals are texts and numbers."""
    if isinstance(schema, list):
        schema = next(each for each in schema if each != "null")
    record = {"type": "record", "name": "default", "fields": [{"name": "of", "type": schema}]}
    try:
        found: Any = next(fastavro.json_reader(io.StringIO(json.dumps({"of": given})), record))
    except AttributeError:  # the library wants the name of a type there, as in an Avro file in JSON
        raise ValueError(f"the default {json.dumps(given)} has a value of a union in it") from None
    return found["of"]


def _type(schema: Any, path: str, without: list[str]) -> spark.DataType:
    """The type of values of a schema, whose names are replaced by their definitions.

    `without`: gets a line for each part that has no type in Spark. Any type stands for it, NullType for no bytes.
    Raises: ValueError: a few bytes may take any time or any depth to read.
    """
    if isinstance(schema, list):
        members = [_type(each, path, without) for each in schema if each != "null"]
        if len(members) == 1:
            return members[0]
        without.append(f"{path} is a union of several types, which has no type in Spark")
        return spark.StringType()
    if isinstance(schema, dict):
        return _parts_type(schema, path, without)
    if schema == "null":
        without.append(f"{path} is of the type null, which has no type in Spark")
        return spark.NullType()
    if schema not in _SIMPLE:
        raise ValueError(f"the type {schema!r} contains itself")
    return _SIMPLE[schema]


def _parts_type(schema: dict[str, Any], path: str, without: list[str]) -> spark.DataType:
    match schema["type"], schema.get("logicalType"):
        case (("record" | "error"), _):
            found = spark.StructType()
            for field in schema["fields"]:
                found.add(field["name"], _type(field["type"], f"{path}.{field['name']}", without))
            if not found.fields:
                without.append(f"{path} is a record without fields")
            return found
        case "array", _:
            items = _type(schema["items"], f"{path}[]", without)
            if _takes_no_bytes(items):
                raise ValueError("the items of an array take no bytes")
            return spark.ArrayType(items)
        case "map", _:
            return spark.MapType(spark.StringType(), _type(schema["values"], f"{path}{{}}", without))
        case (("bytes" | "fixed"), "decimal"):
            if schema["precision"] > MAX_PRECISION:
                without.append(
                    f"{path} is a decimal of {schema['precision']} digits; Spark has at most {MAX_PRECISION}"
                )
            return spark.DecimalType(schema["precision"], schema.get("scale", 0))
        case kind, logical:
            return _LOGICAL.get((kind, logical)) or _type(kind, path, without)


def _takes_no_bytes(of: spark.DataType) -> bool:
    if isinstance(of, spark.StructType):
        return all(_takes_no_bytes(field.dataType) for field in of.fields)
    return isinstance(of, spark.NullType)
