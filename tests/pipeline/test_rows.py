"""From rows to records, and from records to requests, without Spark and without a gateway."""

import base64
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink import rows
from sharequeue_pipeline.sink.rows import Rows, chunks
from sharequeue_pipeline.source.schema import arrow_schema

TEXT = spark.StringType()
MAP = spark.MapType(TEXT, TEXT)


def schema(**types: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in types.items()])


def records(types: dict[str, spark.DataType], *rows: tuple[Any, ...], **options: str) -> list[tuple[str, Any]]:
    made = Rows(sink_options(options), schema(**types))
    arrow = arrow_schema(schema(**types))
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), arrow, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
    return [(topic, json.loads(record)) for topic, record in made.records(batch)]


def value(data_type: spark.DataType, given: Any, **options: str) -> Any:
    ((topic, record),) = records({"value": data_type}, (given,), topic="out", **options)
    assert topic == "out"
    return record


def test_every_column_is_converted() -> None:
    types = {
        "topic": TEXT,
        "key": TEXT,
        "value": TEXT,
        "headers": MAP,
        "partition": spark.LongType(),
        "timestamp": spark.TimestampType(),
    }
    at = datetime.datetime(1970, 1, 1, 0, 0, 7, tzinfo=datetime.UTC)
    found = records(types, ("a", "k", "v", [("z", "1"), ("a", None)], 3, at), ("b", None, None, None, None, None))
    assert found == [
        ("a", {"key": "k", "value": "v", "headers": {"a": "", "z": "1"}, "partition": 3, "timestamp_ms": 7000}),
        ("b", {"value": None}),
    ]
    assert list(found[0][1]["headers"]) == ["a", "z"]


def test_the_value_format_defaults_to_the_column_type() -> None:
    assert value(TEXT, '{"a":1}') == {"value": '{"a":1}'}
    assert value(spark.BinaryType(), b"\xff") == {"value_base64": base64.b64encode(b"\xff").decode()}
    assert value(spark.LongType(), 7) == {"value": 7}
    inner = spark.StructType([spark.StructField("m", spark.MapType(TEXT, spark.DecimalType(5, 2)))])
    nested = spark.StructType(
        [spark.StructField("at", spark.DateType()), spark.StructField("in", spark.ArrayType(inner))]
    )
    given = {"at": datetime.date(2026, 1, 2), "in": [{"m": [("x", Decimal("1.50"))]}, {"m": []}, {"m": None}]}
    assert value(nested, given) == {"value": {"at": "2026-01-02", "in": [{"m": {"x": 1.5}}, {"m": {}}, {"m": None}]}}


def test_the_option_value_format_overrides_the_column_type() -> None:
    assert value(TEXT, ' {"a":1} ', valueFormat="json") == {"value": {"a": 1}}
    assert value(spark.BinaryType(), b"[1]", valueFormat="json") == {"value": [1]}
    assert value(TEXT, "ü", valueFormat="binary") == {"value_base64": base64.b64encode("ü".encode()).decode()}


def test_a_binary_key_is_base64() -> None:
    ((_, record),) = records({"key": spark.BinaryType(), "value": TEXT}, (b"\x00", "v"), topic="out")
    assert record == {"key_base64": "AA==", "value": "v"}


@pytest.mark.parametrize(
    ("types", "options", "expected"),
    [
        ({"key": TEXT}, {"topic": "t"}, "the column value is missing: the columns are key"),
        ({"value": TEXT, "id": TEXT}, {"topic": "t"}, "the column id is unknown: a record has value, key"),
        ({"value": TEXT, "partition": TEXT}, {"topic": "t"}, "the column partition must be an integer, not string"),
        (
            {"value": TEXT, "headers": spark.MapType(TEXT, spark.LongType())},
            {"topic": "t"},
            "the column headers must be a map of string to string, not map<string,bigint>",
        ),
        ({"value": TEXT}, {}, "name the topic either"),
        ({"value": TEXT, "topic": TEXT}, {"topic": "t"}, "name the topic either"),
        ({"value": MAP}, {"topic": "t", "valueFormat": "binary"}, "valueFormat=binary needs a binary or string value"),
        ({"value": spark.BinaryType()}, {"topic": "t", "valueFormat": "string"}, "valueFormat=string needs a string"),
    ],
)
def test_a_fault_in_columns_is_one_line(
    types: dict[str, spark.DataType], options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        Rows(sink_options(options), schema(**types))
    assert str(refused.value).startswith(expected)


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"valueFormat=json: '\{a:1\}' is not JSON"):
        value(TEXT, "{a:1}", valueFormat="json")


pairs = st.lists(st.tuples(st.sampled_from("ab"), st.binary(min_size=1, max_size=30)), max_size=40)


@given(pairs, st.integers(1, 60), st.integers(1, 5), st.integers(1, 200))
def test_requests_are_bounded_and_keep_the_order_of_each_topic(
    given: list[tuple[str, bytes]], most_bytes: int, most_records: int, gathered_bytes: int
) -> None:
    options = sink_options({"maxRequestBytes": str(most_bytes), "maxRequestRecords": str(most_records)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "GATHERED_BYTES", gathered_bytes)
        made = list(chunks(iter(given), options))
    for topic in "ab":
        sent = [record for chunk in made if chunk.topic == topic for record in chunk.records]
        assert sent == [record for name, record in given if name == topic]
    for chunk in made:
        assert 1 <= chunk.size <= most_records
        assert chunk.size == 1 or sum(len(record) + 1 for record in chunk.records) <= most_bytes


def test_rows_of_many_topics_wait_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are not full are sent when all of them together would take more."""
    monkeypatch.setattr(rows, "GATHERED_BYTES", 1000)
    waiting = 0

    def records() -> Iterator[tuple[str, bytes]]:
        nonlocal waiting
        for number in range(500):
            waiting += 100
            yield f"t{number % 50}", b"x" * 99

    for chunk in chunks(records(), sink_options({})):
        assert waiting <= 1100
        waiting -= 100 * chunk.size
    assert waiting == 0
