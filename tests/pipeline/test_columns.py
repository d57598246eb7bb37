"""From Arrow answers to columns, without Spark and without a gateway."""

import base64
import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.record_columns import RecordColumns

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
