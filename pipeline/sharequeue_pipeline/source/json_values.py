"""JSON values as typed columns, with the rules of Spark's `from_json` in PERMISSIVE mode. Pure.

A value is decoded strictly at first, which is fast and right for values that fit. The others are read again field by
field: what does not fit its type is null, and the fields beside it stay. The value is malformed then.

Spark's rules for a field that does not have the type's own form:

    string      any other JSON as text: 1.50 is "1.5", {"a": 1} is {"a":1}
    double      also NaN, Infinity and INF, as words or as strings; a number that is too large is infinite
    decimal     also a string; digits behind the scale are rounded half up
    timestamp   also parts, as 2026-11 or 2026-11-21 8:5, and a number of seconds; without a zone it is UTC
    date        also parts; what follows behind T or a space is left out
    array, map  null as a whole, if one element does not fit; structs in them keep their other fields
    struct      a value that is not a JSON object has a struct of nulls
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from pyspark.sql import types as spark

from sharequeue_pipeline.source.schema import CORRUPT, json_type

_WORDS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "INF": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
_TIME: Final = re.compile(
    r"\+?(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(\S.*)?)?)?)?)?",
    re.ASCII,
)
_DATE: Final = re.compile(r"\+?(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::(\d{2}))?", re.ASCII)
_BITS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}


class Number(str):
    """A number that is not whole, as it was written, or a word like NaN."""

    __slots__ = ()


class Decoded(NamedTuple):
    """`fault`: None, or what does not fit; it names a field and a type, and quotes nothing of the value."""

    value: Any
    fault: str | None


class _Unfit(Exception):
    """A value does not fit its type. The text says where."""


class JsonValues:
    """Decodes values for a column of one type."""

    def __init__(self, data_type: spark.DataType) -> None:
        self._type = data_type
        self._corrupt = isinstance(data_type, spark.StructType) and CORRUPT in data_type.names
        self._strict: Callable[[bytes], Any] = msgspec.json.Decoder(json_type(data_type)).decode
        self._scan = json.JSONDecoder(
            parse_float=Number, parse_int=int, parse_constant=Number, object_pairs_hook=dict
        ).raw_decode

    def decode(self, value: bytes) -> Decoded:
        """The value of the column, by the strict rules if they suffice."""
        try:
            return Decoded(self._strict(value), None)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.decode_leniently(value)

    def decode_leniently(self, value: bytes) -> Decoded:
        """The value of the column, field by field."""
        text = value.decode("utf-8", "replace")
        if not text.strip(" \t\r\n"):
            return Decoded(None, None)
        faults: list[str] = []
        try:
            document, _ = self._scan(text.lstrip(" \t\r\n"))
            found = self._root(document, faults)
        except (ValueError, RecursionError):
            faults.append("it is not JSON")
            found = self._nothing()
        except _Unfit as unfit:
            faults.append(str(unfit))
            found = self._nothing()
        fault = faults[0] if faults else None
        if self._corrupt and found is not None:
            found[CORRUPT] = text if fault else None
        return Decoded(found, fault)

    def _nothing(self) -> dict[str, Any] | None:
        return {} if isinstance(self._type, spark.StructType) else None

    def _root(self, document: Any, faults: list[str]) -> Any:
        if isinstance(self._type, spark.StructType):
            return _struct(document, self._type, "", faults)
        if document is None:
            return None
        if (
            isinstance(self._type, spark.ArrayType)
            and isinstance(self._type.elementType, spark.StructType)
            and isinstance(document, dict)
        ):
            document = [document]
        return _converted(document, self._type, "", faults)


def _struct(document: Any, data_type: spark.StructType, path: str, faults: list[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _Unfit(f"{_at(path)} is not an object")
    found: dict[str, Any] = {}
    for field in data_type.fields:
        given = None if field.name == CORRUPT and not path else document.get(field.name)
        if given is None:
            continue
        try:
            found[field.name] = _converted(given, field.dataType, f"{path}.{field.name}", faults)
        except _Unfit as unfit:
            faults.append(str(unfit))
    return found


def _converted(given: Any, data_type: spark.DataType, path: str, faults: list[str]) -> Any:
    """A JSON value that is not null, as a value of a type. Raises: _Unfit."""
    if isinstance(data_type, spark.StructType):
        return _struct(given, data_type, path, faults)
    if isinstance(data_type, spark.ArrayType) and isinstance(given, list):
        element, of_elements = data_type.elementType, f"{path}[]"
        return [None if each is None else _converted(each, element, of_elements, faults) for each in given]
    if isinstance(data_type, spark.MapType) and isinstance(given, dict):
        element, of_values = data_type.valueType, f"{path}{{}}"
        return {
            key: None if each is None else _converted(each, element, of_values, faults) for key, each in given.items()
        }
    convert = _SCALARS.get(type(data_type))
    found = None if convert is None else convert(given, data_type)
    if found is None:
        raise _Unfit(f"{_at(path)} is not of the type {data_type.simpleString()}")
    return found


def _at(path: str) -> str:
    return f"value{path}"


# Scalars: the value, or None if it does not fit


def _string(given: Any, _: spark.DataType) -> str:
    if isinstance(given, str) and not isinstance(given, Number):
        return given.encode("utf-8", "replace").decode()
    return _compact(given)


def _compact(given: Any) -> str:
    """JSON as Spark writes it again: without spaces, numbers in Java's form."""
    if isinstance(given, dict):
        return (
            "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_compact(of)}" for name, of in given.items()) + "}"
        )
    if isinstance(given, list):
        return "[" + ",".join(map(_compact, given)) + "]"
    if isinstance(given, Number):
        return f'"{given}"' if given in _WORDS else _java_double(float(given))
    return json.dumps(given, ensure_ascii=False)


def _java_double(number: float) -> str:
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = repr(number)
        return text if "e" not in text else format(Decimal(text), "f")
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{int(exponent) + len(digits) - 1}"


def _boolean(given: Any, _: spark.DataType) -> bool | None:
    return given if isinstance(given, bool) else None


def _whole(given: Any, data_type: spark.DataType) -> int | None:
    bound = 1 << (_BITS[type(data_type)] - 1)
    whole = isinstance(given, int) and not isinstance(given, bool)
    return given if whole and -bound <= given < bound else None


def _double(given: Any, _: spark.DataType) -> float | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, str) and given in _WORDS:
        return _WORDS[given]
    if isinstance(given, (int, Number)):
        try:
            return float(given)
        except OverflowError:
            return math.inf if int(given) > 0 else -math.inf
    return None


def _decimal(given: Any, data_type: spark.DataType) -> Decimal | None:
    assert isinstance(data_type, spark.DecimalType)
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        return None
    try:
        with localcontext() as context:
            context.prec = 100
            exact = Decimal(given)
            if not exact.is_finite() or exact.adjusted() > 60:
                return None
            found = exact.quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    return found if found.adjusted() < data_type.precision - data_type.scale or not found else None


def _binary(given: Any, _: spark.DataType) -> bytes | None:
    if not isinstance(given, str) or isinstance(given, Number):
        return None
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return None


def _date(given: Any, _: spark.DataType) -> date | None:
    match = _DATE.fullmatch(given.strip()) if isinstance(given, str) and not isinstance(given, Number) else None
    if match is None:
        return None
    year, month, day = (int(part or 1) for part in match.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _timestamp(given: Any, _: spark.DataType) -> datetime | None:
    if isinstance(given, int) and not isinstance(given, bool):
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=given)
        except OverflowError:
            return None
    found = _time(given)
    return None if found is None else found.replace(tzinfo=found.tzinfo or UTC)


def _local_timestamp(given: Any, _: spark.DataType) -> datetime | None:
    found = _time(given)
    return None if found is None or found.tzinfo is not None else found


def _time(given: Any) -> datetime | None:
    match = _TIME.fullmatch(given.strip()) if isinstance(given, str) and not isinstance(given, Number) else None
    if match is None:
        return None
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (
        int(part or least) for part, least in zip(parts, (1, 1, 1, 0, 0, 0), strict=True)
    )
    try:
        of_zone = None if zone is None else _zone(zone.strip())
        return datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")[:6]), of_zone)
    except (ValueError, OSError):  # a zone that does not exist is a ValueError or an OSError
        return None


def _zone(text: str) -> tzinfo:
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is None:
        return ZoneInfo(text)
    sign, hours, minutes, seconds = offset.groups()
    found = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    return timezone(-found if sign == "-" else found)


_SCALARS: Final[dict[type[spark.DataType], Callable[[Any, spark.DataType], Any]]] = {
    spark.StringType: _string,
    spark.BooleanType: _boolean,
    spark.ByteType: _whole,
    spark.ShortType: _whole,
    spark.IntegerType: _whole,
    spark.LongType: _whole,
    spark.FloatType: _double,
    spark.DoubleType: _double,
    spark.DecimalType: _decimal,
    spark.DateType: _date,
    spark.TimestampType: _timestamp,
    spark.TimestampNTZType: _local_timestamp,
    spark.BinaryType: _binary,
}
