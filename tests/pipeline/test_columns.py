"""From Arrow answers to typed columns, without Spark and without a gateway."""

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.record_columns import RecordColumns
from sharequeue_pipeline.source.schema import columns

from sharequeue.arrow_records import SCHEMA, columns_of

UTC = datetime.UTC
TEXT = spark.StringType()
BINARY = spark.BinaryType()


def column(values: list[str], value_type: spark.DataType = BINARY, **options: str) -> list[Any]:
    """The column `value` of records. `values`: JSON fields, `"value":…` or `"value_base64":…`."""
    return table(values, value_type, **options)["value"]


def table(
    values: list[str],
    value_type: spark.DataType,
    key_type: spark.DataType = BINARY,
    **options: str,
) -> dict[str, list[Any]]:
    made = RecordColumns(source_options({"topics": "t", **options}), schema_of(value_type, key_type))
    found: dict[str, list[Any]] = made.batch(Range("t", 3, 10, 99, 2), batch_of(values)).to_pydict()
    return found


def batch_of(values: list[str]) -> Any:
    """Records with these values as they are read, from offset 10 on."""
    records = ",".join(
        f'{{"offset":{offset},"timestamp_ms":{1000 + offset},"key":"k",{value},"headers":{{"h":"x"}}}}'
        for offset, value in enumerate(values, 10)
    )
    return pa.RecordBatch.from_arrays(columns_of(f"[{records}]".encode()), schema=SCHEMA)


def schema_of(value_type: spark.DataType, key_type: spark.DataType = BINARY) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField("topic", TEXT),
            spark.StructField("partition", spark.IntegerType()),
            spark.StructField("offset", spark.LongType()),
            spark.StructField("timestamp", spark.TimestampType()),
            spark.StructField("key", key_type),
            spark.StructField("value", value_type),
            spark.StructField("headers", spark.MapType(TEXT, TEXT)),
            spark.StructField("delivery_count", spark.IntegerType()),
        ]
    )


def raw(data: bytes) -> str:
    return f'"value_base64":"{base64.b64encode(data).decode()}"'


def test_every_column_is_converted() -> None:
    found = table(['"value":1'], spark.BinaryType(), TEXT, keyFormat="string")
    assert found == {
        "topic": ["t"],
        "partition": [3],
        "offset": [10],
        "timestamp": [datetime.datetime(1970, 1, 1, 0, 0, 1, 10_000, UTC)],
        "key": ["k"],
        "value": [b"1"],
        "headers": [[("h", "x")]],
        "delivery_count": [2],
    }


VALUES = ['"value":{"a": 1}', '"value":"Ü \\"x\\""', '"value":null', raw(b"plain"), raw(b'"quoted"')]


def test_binary_values_are_the_produced_bytes() -> None:
    expected = [b'{"a": 1}', '"Ü \\"x\\""'.encode(), None, b"plain", b'"quoted"']
    assert column(VALUES) == expected


def test_string_values_are_texts_or_json() -> None:
    assert column(VALUES, TEXT, valueFormat="string") == ['{"a": 1}', 'Ü "x"', None, "plain", '"quoted"']
    assert column(VALUES[:1], TEXT, valueFormat="string") == ['{"a": 1}']


def as_json(values: list[str], value_type: spark.DataType, **options: str) -> list[Any]:
    return column(values, value_type, valueFormat="json", valueSchema="any", **options)


NESTED = spark.StructType(
    [
        spark.StructField("id", spark.ByteType()),
        spark.StructField("at", spark.TimestampType()),
        spark.StructField("day", spark.DateType()),
        spark.StructField("price", spark.DecimalType(5, 2)),
        spark.StructField("tags", spark.ArrayType(TEXT)),
        spark.StructField("counts", spark.MapType(TEXT, spark.LongType())),
        spark.StructField("inner", spark.StructType([spark.StructField("x", spark.DoubleType())])),
    ]
)


def test_json_becomes_typed_columns() -> None:
    value = {
        "id": -128,
        "at": "2026-11-21T10:00:00+02:00",
        "day": "2026-11-21",
        "price": 12.5,
        "tags": ["a", None],
        "counts": {"n": 2**62},
        "inner": {"x": 1, "unknown": []},
        "more": "left out",
    }
    (found,) = as_json([f'"value":{json.dumps(value)}'], NESTED)
    assert found == {
        "id": -128,
        "at": datetime.datetime(2026, 11, 21, 8, tzinfo=UTC),
        "day": datetime.date(2026, 11, 21),
        "price": Decimal("12.50"),
        "tags": ["a", None],
        "counts": [("n", 2**62)],
        "inner": {"x": 1.0},
    }


@pytest.mark.parametrize(
    "value",
    [
        '"value":{"id":128}',
        '"value":{"id":"1"}',
        '"value":[1]',
        '"value":null',
        raw(b"not json"),
        raw(b"\xff"),
        raw(b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ],
    ids=["too large", "a string", "an array", "null", "not JSON", "not UTF-8", "too deep"],
)
def test_a_value_that_does_not_fit_is_null(value: str) -> None:
    found = as_json(['"value":{"id":1}', value, raw(b'{"id":2}')], NESTED)
    assert [row and row["id"] for row in found] == [1, None, 2]


def test_malformed_values_are_rejected_with_the_field_and_its_type() -> None:
    options = source_options(
        {"topics": "t", "group": "g", "valueFormat": "json", "valueSchema": "any", "onMalformed": "reject"}
    )
    made = RecordColumns(options, schema_of(NESTED))
    values = ['"value":{"id":1}', '"value":{"id":"x","day":5}', '"value":{"inner":{"x":"y"}}', '"value":{"id":2}']
    batch = made.batch(Range("t", 3, 10, 13, 2), batch_of(values))
    assert [row["id"] for row in batch.column("value").to_pylist()] == [1, 2]
    assert batch.column("offset").to_pylist() == [10, 13]
    assert made.rejected == [
        (Range("t", 3, 11, 11, 2), "malformed: value.id is not of the type tinyint"),
        (Range("t", 3, 12, 12, 2), "malformed: value.inner.x is not of the type double"),
    ]


def test_a_malformed_value_fails_the_read_if_it_must() -> None:
    with pytest.raises(PipelineError, match=r"^t-3 offset 11 is malformed: it is not JSON; onMalformed=null reads"):
        as_json(['"value":{"id":1}', raw(b"x")], NESTED, onMalformed="fail")


def test_a_decimal_with_too_many_digits_is_null() -> None:
    assert as_json(['"value":1.5', '"value":123456.5'], spark.DecimalType(5, 2)) == [Decimal("1.50"), None]


def test_a_type_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(PipelineError, match="JSON cannot hold the type interval"):
        as_json(['"value":1'], spark.DayTimeIntervalType())


@pytest.mark.parametrize(
    ("given", "ddl"),
    [
        ("id INT, n STRING", "struct<id INT, n STRING>"),
        ("id: int", "struct<id: int>"),
        ("array<struct<a INT>>", "array<struct<a INT>>"),
        ("decimal(5, 2)", "decimal(5, 2)"),
        ("bigint", "bigint"),
    ],
)
def test_a_value_schema_is_columns_or_one_type(given: str, ddl: str) -> None:
    options = source_options({"topics": "t", "valueFormat": "json", "valueSchema": given})
    assert f" value {ddl}, headers" in columns(options)
