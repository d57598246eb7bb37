"""Avro values: the type of a column for a schema, and reading and writing its values.

The types are those of Spark's `from_avro`: an enum is a string, `fixed` is binary, ["null", T] is T. Of the logical
types `date`, `timestamp-…` and `local-timestamp-…` (millis, micros) and `decimal` count; a value with another one is
read as what lies below it. A union of several types has no type in Spark,
and a schema that contains itself has none either.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.registry.fitting import misfit
from sharequeue_pipeline.registry.schema_folder import SchemaFolder
from sharequeue_pipeline.registry.wire_format import HEADER_BYTES, Malformed, Misfit, header, schema_id_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PRIMITIVES: Final[Mapping[str, spark.DataType]] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "bytes": spark.BinaryType(),
}
_LOGICAL: Final[Mapping[tuple[str, str], spark.DataType]] = {
    ("int", "date"): spark.DateType(),
    ("long", "timestamp-millis"): spark.TimestampType(),
    ("long", "timestamp-micros"): spark.TimestampType(),
    ("long", "local-timestamp-millis"): spark.TimestampNTZType(),
    ("long", "local-timestamp-micros"): spark.TimestampNTZType(),
}
_JOINED: Final[Mapping[frozenset[str], str]] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
MAX_PRECISION: Final = 38


class _Unusable(Exception):
    """There is no column for a schema, or its values may take any time to read."""


class AvroValues:
    """Values of one column. `data_type`: of the column. Raises: PipelineError: the schema cannot be used."""

    def __init__(self, schemas: SchemaFolder, schema_id: int) -> None:
        self._avro = _library()
        self._schemas = schemas
        self._id = schema_id
        self._schema = self._parsed(schema_id)
        try:
            self.data_type = _Types().of(self._schema, "value")
        except _Unusable as fault:
            raise schemas.fault(schema_id, fault) from None
        self._writers: dict[int, Any] = {schema_id: self._schema}
        self._header = header(schema_id)
        self._faults = (self._avro.read.SchemaResolutionError,)

    def decode(self, value: bytes) -> Any:
        """A value as Arrow takes it. Raises: Malformed; PipelineError: its schema cannot be used."""
        schema_id = schema_id_of(value)
        writer = self._writers.get(schema_id) or self._writer(schema_id)
        body = io.BytesIO(
            value + b"\0"
        )  # whatever reads the byte behind it reads too far; skipping fields would not tell
        body.seek(HEADER_BYTES)
        try:
            found = self._avro.schemaless_reader(body, writer, None if writer is self._schema else self._schema)
        except EOFError:
            raise Malformed(f"it ends too early for schema {schema_id}") from None
        except self._faults as fault:
            raise Malformed(f"schema {schema_id} cannot be read as schema {self._id}: {fault}") from None
        except (ValueError, OverflowError, LookupError, TypeError):
            raise Malformed(f"it does not fit schema {schema_id}") from None
        if body.tell() > len(value):
            raise Malformed(f"it ends too early for schema {schema_id}")
        if body.tell() < len(value):
            raise Malformed(f"it has {len(value) - body.tell()} bytes more than schema {schema_id} reads")
        return found

    def check(self, given: spark.DataType) -> None:
        """Raises: Misfit: the schema cannot hold values of this type."""
        found = misfit(given, self.data_type)
        if found is not None:
            raise Misfit(found)

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Raises: Misfit."""
        out = io.BytesIO()
        out.write(self._header)
        try:
            self._avro.schemaless_writer(out, self._schema, value, strict_allow_default=True)
        except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as fault:
            raise Misfit(f"a value does not fit schema {self._id}: {fault}") from None
        return out.getvalue()

    def _writer(self, schema_id: int) -> Any:
        if not self._schemas.knows(schema_id):
            raise Malformed(f"there is no schema {schema_id} in the registry")
        self._writers[schema_id] = self._parsed(schema_id)
        return self._writers[schema_id]

    def _parsed(self, schema_id: int) -> Any:
        try:
            parsed = self._avro.parse_schema(_without_strange_types(json.loads(self._schemas.schema(schema_id))))
            _check_reading(parsed)
            _set_defaults(parsed)
        except self._avro.schema.UnknownType as fault:
            raise self._schemas.fault(schema_id, f"the type {fault.name!r} is not defined in it") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, _Unusable) as fault:
            raise self._schemas.fault(schema_id, fault) from None
        except self._avro.schema.SchemaParseException as fault:
            raise self._schemas.fault(schema_id, fault) from None
        return parsed


def _library() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - not needed for other formats
        import fastavro.read  # noqa: PLC0415
        import fastavro.schema  # noqa: PLC0415
    except ImportError:
        raise PipelineError("valueFormat=avro needs the package fastavro: pip install 'sharequeue[spark]'") from None
    return fastavro


def _without_strange_types(schema: Any) -> Any:
    """The schema without the logical types that have no type in Spark."""
    if isinstance(schema, list):
        return [_without_strange_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _without_strange_types(of) if name in ("type", "items", "values", "fields") else of
        for name, of in schema.items()
    }
    logical = kept.get("logicalType")
    if logical != "decimal" and (str(kept.get("type")), str(logical)) not in _LOGICAL:
        kept.pop("logicalType", None)
    return kept


def _parts(schema: Any, names: dict[str, Any]) -> Iterator[Any]:
    """The schemas that a schema is made of. Definitions of names are noted in `names`."""
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        if "name" in schema:
            names[schema["name"]] = schema
        if schema["type"] in ("record", "error"):
            yield from (field["type"] for field in schema["fields"])
        elif schema["type"] == "array":
            yield schema["items"]
        elif schema["type"] == "map":
            yield schema["values"]


def _check_reading(schema: Any) -> None:
    """Raises: _Unusable: a few bytes may take any time or any depth to read."""
    names: dict[str, Any] = {}
    seen: dict[str, bool | None] = {}
    """Whether the values of a name take no bytes; None while its definition is read."""

    def empty(given: Any) -> bool:
        """Whether values of a schema take no bytes."""
        name = given["name"] if isinstance(given, dict) and "name" in given else given
        if isinstance(name, str) and name in seen:
            known = seen[name]
            if known is None:
                raise _Unusable(f"the type {name!r} contains itself")
            return known
        if isinstance(given, str):
            return given == "null"
        if name is not given:
            seen[name] = None
        parts = [empty(part) for part in _parts(given, names)]
        if isinstance(given, list):
            return False
        if given["type"] == "array" and parts[0]:
            raise _Unusable("the items of an array take no bytes")
        found = (
            all(parts) if given["type"] in ("record", "error") else given["type"] == "null" or given.get("size") == 0
        )
        if name is not given:
            seen[name] = found
        return found

    empty(schema)


def _set_defaults(schema: Any) -> None:
    """Make the defaults of fields what the library makes of values: bytes,
    times and decimals are texts and numbers in JSON."""
    names: dict[str, Any] = {}

    def visit(given: Any) -> None:
        parts = list(_parts(given, names))
        for part in parts:
            if not isinstance(part, str):
                visit(part)
        if isinstance(given, dict) and given["type"] in ("record", "error"):
            for field in given["fields"]:
                if "default" in field:
                    field["default"] = _default(field["default"], field["type"], names)

    visit(schema)


def _default(given: Any, schema: Any, names: Mapping[str, Any]) -> Any:
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return None if given is None else _default(given, next((s for s in schema if s != "null"), "null"), names)
    if isinstance(schema, str):
        return given.encode("latin-1") if schema == "bytes" else given
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error"):
        of = {field["name"]: field for field in schema["fields"]}
        return {
            name: _default(given[name], field["type"], names) if name in given else field["default"]
            for name, field in of.items()
        }
    if kind == "array":
        return [_default(each, schema["items"], names) for each in given]
    if kind == "map":
        return {name: _default(each, schema["values"], names) for name, each in given.items()}
    if kind in ("bytes", "fixed"):
        raw = given.encode("latin-1")
        if logical != "decimal":
            return raw
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-schema.get("scale", 0))
    if logical == "date":
        return date(1970, 1, 1) + timedelta(days=given)
    if logical is not None:
        at = _EPOCH + timedelta(microseconds=given * (1000 if logical.endswith("millis") else 1))
        return at.replace(tzinfo=None) if logical.startswith("local") else at
    return given


class _Types:
    """Columns for schemas."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def of(self, schema: Any, path: str) -> spark.DataType:
        """Raises: _Unusable: there is none."""
        if isinstance(schema, str) and schema not in self._names:
            if schema not in _PRIMITIVES:
                raise _Unusable(f"{path} is of the type {schema}, which has no type in Spark")
            return _PRIMITIVES[schema]
        if isinstance(schema, str):
            schema = self._names[schema]
        if isinstance(schema, list):
            return self._union(schema, path)
        if "name" in schema:
            self._names[schema["name"]] = schema
        return self._KINDS.get(schema["type"], _Types._scalar)(self, schema, path)

    def _union(self, schema: list[Any], path: str) -> spark.DataType:
        members = [each for each in schema if each != "null"]
        simple = frozenset(each for each in members if isinstance(each, str))
        if len(simple) == len(members) and simple in _JOINED:
            return _PRIMITIVES[_JOINED[simple]]
        if len(members) != 1:
            raise _Unusable(f"{path} is a union of several types, which has no type in Spark")
        return self.of(members[0], path)

    def _record(self, schema: Any, path: str) -> spark.DataType:
        fields = schema["fields"]
        if not fields:
            raise _Unusable(f"{path} is a record without fields")
        return spark.StructType(
            [spark.StructField(field["name"], self.of(field["type"], f"{path}.{field['name']}")) for field in fields]
        )

    def _array(self, schema: Any, path: str) -> spark.DataType:
        return spark.ArrayType(self.of(schema["items"], f"{path}[]"))

    def _map(self, schema: Any, path: str) -> spark.DataType:
        return spark.MapType(spark.StringType(), self.of(schema["values"], f"{path}{{}}"))

    def _bytes(self, schema: Any, path: str) -> spark.DataType:
        if schema.get("logicalType") != "decimal":
            return spark.BinaryType()
        if schema["precision"] > MAX_PRECISION:
            raise _Unusable(f"{path} is a decimal of {schema['precision']} digits; Spark has at most {MAX_PRECISION}")
        return spark.DecimalType(schema["precision"], schema.get("scale", 0))

    def _enum(self, schema: Any, path: str) -> spark.DataType:
        return spark.StringType()

    def _scalar(self, schema: Any, path: str) -> spark.DataType:
        return _LOGICAL.get((schema["type"], schema.get("logicalType", ""))) or self.of(schema["type"], path)

    _KINDS: Final[Mapping[str, Callable[["_Types", Any, str], spark.DataType]]] = {
        "record": _record,
        "error": _record,
        "array": _array,
        "map": _map,
        "bytes": _bytes,
        "fixed": _bytes,
        "enum": _enum,
    }
