"""Whether a column of Spark can be written with a schema: the same names, and types that lose nothing. Pure."""

from typing import Final

from pyspark.sql import types as spark

_WIDER: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)


def misfit(given: spark.DataType, wanted: spark.DataType, path: str = "value") -> str | None:
    """Why values of one type cannot be written as another; None if they can. Fields may be missing."""
    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        for field in given.fields:
            if field.name not in wanted.names:
                return f"{path}.{field.name} is unknown: the schema has {', '.join(wanted.names)}"
            found = misfit(field.dataType, wanted[field.name].dataType, f"{path}.{field.name}")
            if found is not None:
                return found
        return None
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return misfit(given.elementType, wanted.elementType, f"{path}[]")
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        return misfit(given.keyType, wanted.keyType, f"{path} (keys)") or misfit(
            given.valueType, wanted.valueType, f"{path}{{}}"
        )
    if _fits(given, wanted):
        return None
    return f"{path} is of the type {given.simpleString()}, and the schema has {wanted.simpleString()}"


def _fits(given: spark.DataType, wanted: spark.DataType) -> bool:
    if isinstance(given, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale
    if isinstance(given, _WIDER) and isinstance(wanted, _WIDER):
        return _WIDER.index(type(given)) <= _WIDER.index(type(wanted))
    if isinstance(given, spark.FloatType) and isinstance(wanted, spark.DoubleType):
        return True
    return type(given) is type(wanted)
