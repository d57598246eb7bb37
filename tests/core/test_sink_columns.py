"""Rows as columns, without Spark: which rows are, what becomes of them, and where requests end."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.columns import ROW_BYTES, STREAM_BYTES, chunks, columns_of, fits

Row = tuple[str | None, str | None]
TEXTS = st.none() | st.sampled_from(["", "a", "ü", "\U0001f600", "\uffff"]) | st.text("ab", max_size=30)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=40)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
TEXT, BYTES = spark.StringType(), spark.BinaryType()


def batches(rows: list[Row], sizes: list[int], keys: bool = True) -> list[Any]:
    """The rows in batches of these sizes, over and over."""
    found: list[Any] = []
    start = 0
    while start < len(rows):
        some = rows[start : start + sizes[len(found) % len(sizes)]]
        key, value = (pa.array([row[place] for row in some], pa.string()) for place in (0, 1))
        found.append(pa.record_batch({"key": key, "value": value} if keys else {"value": value}))
        start += len(some)
    return found


def rows_of(batch: Any) -> list[Row]:
    names = ("key", "value")
    lists = [batch.column(name).to_pylist() if name in batch.schema.names else [None] * len(batch) for name in names]
    return list(zip(*lists, strict=True))


def bytes_of(row: Row) -> int:
    return ROW_BYTES + sum(len(text.encode()) for text in row if text is not None)


def one_by_one(rows: list[Row], room: int, most_rows: int) -> list[list[Row]]:
    """Each row goes into the last request, unless it finds no room there."""
    found: list[list[Row]] = []
    for row in rows:
        last = found[-1] if found else None
        if last and len(last) < most_rows and sum(map(bytes_of, last)) + bytes_of(row) <= room:
            last.append(row)
        else:
            found.append([row])
    return found


@given(ROWS, SIZES, st.booleans(), st.integers(0, 300), st.integers(1, 7))
@settings(deadline=None)
@example([(None, "v" * 12)] * 3, [3], True, 80, 7)  # two rows fill a request to its last byte
@example([("k" * 52, "")] * 3, [3], True, 80, 7)
@example([(None, "v" * 12)] * 3, [3], True, 79, 7)
@example([(None, "v" * 12)] * 5, [4, 1], False, 120, 7)  # the last row of the first batch leaves room for one more
@example([(None, "v" * 12)] * 5, [2, 3], False, 120, 7)
@example([(None, "v" * 12), (None, "v" * 90), (None, "")], [2, 1], False, 50, 7)  # a row that is larger than a request
@example([(None, "")] * 5, [2, 3], False, 300, 3)
def test_a_request_ends_at_the_first_row_without_room(
    rows: list[Row], sizes: list[int], keys: bool, room: int, most_rows: int
) -> None:
    limits = {"maxRequestBytes": str(STREAM_BYTES + room), "maxRequestRecords": str(most_rows)}
    made = list(chunks(batches(rows, sizes, keys), sink_options({"topic": "t", **limits})))
    expected = one_by_one(rows if keys else [(None, value) for _, value in rows], room, most_rows)
    assert [rows_of(pa.ipc.open_stream(chunk.body).read_all()) for chunk in made] == expected
    assert [chunk.size for chunk in made] == [len(each) for each in expected]
    for chunk in made:
        assert chunk.size == 1 or len(chunk.body) <= STREAM_BYTES + room


@pytest.mark.parametrize(
    ("options", "types", "are_columns"),
    [
        ({"topic": "t"}, {"key": BYTES, "value": TEXT}, True),
        ({"topic": "t"}, {"value": BYTES, "partition": spark.ShortType(), "timestamp": spark.TimestampType()}, True),
        ({"topic": "t", "valueFormat": "binary"}, {"value": TEXT}, True),
        ({"topic": "t", "valueFormat": "string"}, {"value": TEXT}, True),
        ({"topic": "t", "valueFormat": "json"}, {"value": TEXT}, False),
        ({"topic": "t", "valueFormat": "binary"}, {"value": BYTES}, True),
        ({"topic": "t", "valueFormat": "string"}, {"value": BYTES}, False),
        ({"topic": "t", "valueFormat": "json"}, {"value": BYTES}, False),
        ({"topic": "t"}, {"value": spark.LongType()}, False),
        ({"topic": "t"}, {"value": TEXT, "headers": spark.MapType(TEXT, TEXT)}, False),
        ({}, {"value": TEXT, "topic": TEXT}, False),
        ({}, {"value": TEXT}, False),
    ],
)
def test_only_texts_and_bytes_of_one_topic_are_columns(
    options: dict[str, str], types: dict[str, spark.DataType], are_columns: bool
) -> None:
    schema = spark.StructType([spark.StructField(name, data_type) for name, data_type in types.items()])
    assert fits(sink_options(options), schema) is are_columns


@pytest.mark.parametrize(
    ("value_format", "given", "expected"),
    [
        (None, {"key": pa.array(["k", None]), "value": pa.array(["v", None])}, {"key": pa.string()}),
        (None, {"value": pa.array([b"\xff", None], pa.large_binary())}, {"value": pa.binary()}),
        (None, {"value": pa.array(["v"], pa.large_string())}, {"value": pa.string()}),
        (
            "binary",
            {"key": pa.array(["k"]), "value": pa.array(["v"])},
            {"key": pa.string(), "value": pa.binary()},
        ),
        (None, {"key": pa.array([b"k"]), "value": pa.array(["v"])}, {"key": pa.binary(), "value": pa.string()}),
        (
            None,
            {"value": pa.array(["v"]), "partition": pa.array([3], pa.int16())},
            {"partition": pa.int64()},
        ),
    ],
)
def test_a_column_has_the_type_of_its_option(
    value_format: str | None, given: dict[str, Any], expected: dict[str, pa.DataType]
) -> None:
    options = sink_options({"topic": "t", **({"valueFormat": value_format} if value_format else {})})
    found = columns_of(pa.record_batch(given), options)
    assert {name: found.schema.field(name).type for name in expected} == expected
    assert found.schema.names == list(given)
    for name, column in given.items():
        assert found.column(name).cast(column.type).equals(column)


def test_a_timestamp_is_in_milliseconds() -> None:
    times = pa.array([1_700_000_000_123_999, None, 0, -1, -1000, -1001], pa.timestamp("us", tz="UTC"))
    found = columns_of(
        pa.record_batch({"value": pa.array(list("abcdef")), "timestamp": times}), sink_options({"topic": "t"})
    )
    assert found.column("timestamp_ms").to_pylist() == [1_700_000_000_123, None, 0, -1, -1, -2]
    assert found.schema.names == ["value", "timestamp_ms"]
