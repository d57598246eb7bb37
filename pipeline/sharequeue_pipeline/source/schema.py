"""The columns of the source, and the types of values in them."""

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypedDict

import msgspec
from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.registry.opening import registry_values
from sharequeue_pipeline.source import value_ddl

_WHOLE_TYPE: Final = re.compile(r"\s*(?:(?:struct|array|map)\s*<.*>|[a-z]+(?:\s*\([\d\s,]*\))?)\s*", re.I | re.S)
CORRUPT: Final = "_corrupt_record"
"""A field of this name in `valueSchema` gets the text of a malformed value, as in `from_json`."""
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "delivery_count")


def value_type(options: SourceOptions) -> str:
    """The type of values as DDL. Raises: PipelineError: `valueSchema` cannot be read."""
    values = registry_values(options)
    if values is not None:
        return ddl(values.data_type)
    given = options.value_schema
    if given is None:
        return options.value_format
    whole = _WHOLE_TYPE.fullmatch(given) is not None
    value_ddl.check(given, whole=whole)
    return given if whole else f"struct<{given}>"


def ddl(data_type: spark.DataType) -> str:
    """A type as DDL; names may be any words."""
    if isinstance(data_type, spark.StructType):
        return f"struct<{','.join(f'`{field.name}`:{ddl(field.dataType)}' for field in data_type.fields)}>"
    if isinstance(data_type, spark.ArrayType):
        return f"array<{ddl(data_type.elementType)}>"
    if isinstance(data_type, spark.MapType):
        return f"map<{ddl(data_type.keyType)},{ddl(data_type.valueType)}>"
    return data_type.simpleString()


def columns(options: SourceOptions) -> str:
    """The schema of the source as DDL."""
    return (
        "topic string, partition int, offset bigint, timestamp timestamp, "
        f"key {options.key_format}, value {value_type(options)}, headers map<string,string>, delivery_count int"
    )


def check_columns(schema: spark.StructType, options: SourceOptions) -> None:
    """Raises: PipelineError: the schema is not the source's. `options`: `pinned`."""
    if tuple(schema.names) != COLUMNS:
        raise PipelineError(
            f"the columns are {', '.join(COLUMNS)}: leave out .schema(…), and use valueFormat=json with valueSchema"
        )
    values = registry_values(options)
    if values is not None and ddl(values.data_type) != ddl(schema["value"].dataType):
        raise PipelineError(
            "the columns of valueSchema have changed since load(): load() again, or name a schema id in place of a subject"
        )


def json_type(data_type: spark.DataType) -> Any:
    """The Python type to decode JSON into for a column of this type. Unknown fields are skipped.

    Raises: PipelineError: JSON cannot hold values of this type.
    """
    if isinstance(data_type, spark.StructType):
        fields = {entry.name: json_type(entry.dataType) | None for entry in data_type.fields if entry.name != CORRUPT}
        return TypedDict("Value", fields, total=False)  # type: ignore[operator]  # made at run time
    if isinstance(data_type, spark.ArrayType):
        return list[json_type(data_type.elementType) | None]  # type: ignore[misc]  # made at run time
    if isinstance(data_type, spark.MapType) and isinstance(data_type.keyType, spark.StringType):
        return dict[str, json_type(data_type.valueType) | None]  # type: ignore[misc]  # made at run time
    bits = _BITS.get(type(data_type))
    if bits is not None:
        return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]
    found = _JSON_TYPES.get(type(data_type))
    if found is not None:
        return found
    raise PipelineError(f"valueSchema: JSON cannot hold the type {data_type.simpleString()}")


_BITS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
_JSON_TYPES: Final[dict[type[spark.DataType], Any]] = {
    spark.StringType: str,
    spark.BooleanType: bool,
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.DecimalType: Decimal,
    spark.DateType: date,
    spark.TimestampType: datetime,
    spark.TimestampNTZType: Annotated[datetime, msgspec.Meta(tz=False)],
    spark.BinaryType: bytes,
}
