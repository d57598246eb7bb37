"""Rows as columns: every row once, in bounded requests that do not depend on the batches of the rows."""

import random
from base64 import b64encode

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.functions import expr
from sharequeue_gateway.producing.arrow_columns import look_at
from sharequeue_gateway.producing.arrow_tails import arrow_records
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.columns import ArrowChunk, chunks, fits

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.peak_memory import peak_mib
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_rows import MAP, TEXT, schema
from tests.pipeline.test_sink import values

Row = tuple[str | None, str | None, int | None]
TEXTS = st.sampled_from(["", "a", "b", "ü", "\U0001f600", "\uffff"]) | st.text("ab", max_size=30)
PLACES = st.integers(0, 3)
FULL = st.lists(st.tuples(TEXTS, TEXTS, PLACES), max_size=40)
ROWS = FULL | st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS, st.none() | PLACES), max_size=40)
"""A column without a null has another form in memory."""
KIND = pa.schema({"key": pa.string(), "value": pa.string(), "partition": pa.int32()})


def batches(rows: list[Row], sizes: list[int]) -> list[pa.RecordBatch]:
    given = [[row[place] for row in rows] for place in range(len(KIND))]
    whole = pa.table([pa.array(column, field.type) for column, field in zip(given, KIND, strict=True)], schema=KIND)
    found, start = [], 0
    while start < whole.num_rows:
        size = sizes[len(found) % len(sizes)]
        found += whole.slice(start, size).to_batches()
        start += size
    return found


def rows_of(made: list[ArrowChunk]) -> list[Row]:
    found: list[Row] = []
    for chunk in made:
        arrow_records(look_at(chunk.body), 1, 64)  # the gateway takes it
        table = pa.ipc.open_stream(chunk.body).read_all()
        assert table.num_rows == chunk.size
        found += list(zip(*(table.column(name).to_pylist() for name in KIND.names), strict=True))
    return found


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(ROWS, SIZES, SIZES, st.integers(1, 7))
@settings(deadline=None)
def test_requests_do_not_depend_on_the_batches_of_rows(
    rows: list[Row], sizes: list[int], others: list[int], most_rows: int
) -> None:
    options = sink_options({"topic": "t", "maxRequestBytes": "2200", "maxRequestRecords": str(most_rows)})
    made = list(chunks(iter(batches(rows, sizes)), options))
    assert rows_of(made) == rows
    for chunk in made:
        assert 1 <= chunk.size <= most_rows
        assert chunk.size == 1 or len(chunk.body) <= 2200
    again = list(chunks(iter(batches(rows, others)), options))
    assert [chunk.body for chunk in again] == [chunk.body for chunk in made]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_only_values_that_become_smaller_are_compressed(kind: pa.DataType) -> None:
    """Values of 1 KiB: half of the rows, so that no request begins where their memory does."""
    noise = random.Random(7)
    for alike in (True, False):
        texts = ["x" * 1024 if alike else b64encode(noise.randbytes(768)).decode() for _ in range(4000)]
        rows = pa.record_batch({"value": pa.array(texts).cast(kind)}).slice(2000)
        (made,) = chunks([rows], sink_options({"topic": "t", "maxRequestBytes": "4000000"}))
        assert (look_at(made.body).grown_bytes > 0) is alike
        assert (len(made.body) < 100_000) is alike
        assert pa.ipc.open_stream(made.body).read_all().column("value").to_pylist() == rows.column("value").to_pylist()


def test_only_texts_and_bytes_of_one_topic_are_columns() -> None:
    one = {"topic": "t"}
    stamps = {"partition": spark.ShortType(), "timestamp": spark.TimestampType()}
    assert fits(sink_options(one), schema(key=spark.BinaryType(), value=TEXT, **stamps))
    assert fits(sink_options({**one, "valueFormat": "binary"}), schema(value=TEXT))
    assert fits(sink_options(one), schema(value=spark.BinaryType()))
    assert not fits(sink_options({}), schema(value=TEXT, topic=TEXT))
    assert not fits(sink_options(one), schema(value=TEXT, headers=MAP))
    assert not fits(sink_options(one), schema(value=spark.LongType()))
    for value in (TEXT, spark.BinaryType()):
        assert not fits(sink_options({**one, "valueFormat": "json"}), schema(value=value))


MEASURE = """
import sys
import pyarrow as pa
from sharequeue_pipeline.options import sink_options
from sharequeue_pipeline.sink.columns import chunks
count = int(sys.argv[1])
def batches():
    for start in range(0, count, 10_000):
        numbers = [number * 7919 % count for number in range(start, start + 10_000)]
        yield pa.record_batch({"key": [f"{number:020d}" for number in numbers], "value": ["x" * 1000] * 10_000})
total = sum(chunk.size for chunk in chunks(batches(), sink_options({"topic": "t"})))
assert total == count
"""


@pytest.mark.soak
def test_the_memory_of_a_task_is_bounded() -> None:
    """MiB of a process that makes the requests of so many records of 1 KiB."""
    few, many = peak_mib(MEASURE, "20000"), peak_mib(MEASURE, "200000")
    print(f"20,000 records: {few} MiB; 200,000: {many} MiB")
    assert many < few + 30


# On the real stack


def paths(proxy: Proxy) -> set[str]:
    return {
        path.rpartition("/")[2]
        for method, path, headers in proxy.requests
        if method == "POST" and "idempotency-key" in headers
    }


@pytest.mark.parametrize("options", [{}, {"transactional": "true"}])
def test_texts_are_written_as_an_arrow_stream(
    pipeline: Pipeline,
    gateway: Gateway,
    proxy: Proxy,
    name: str,
    options: dict[str, str],
) -> None:
    gateway.create_topic(name, 3)
    frame = pipeline.spark.range(500).selectExpr(
        "CAST(id AS STRING) AS key", "if(id = 7, null, concat('v', id)) AS value", "timestamp_millis(id) AS timestamp"
    )
    pipeline.write(frame, topic=name, maxRequestRecords=100, **options)
    assert paths(proxy) == {"arrow"}
    found = [record for each in range(3) for record in gateway.read(name, each, max_records=1000)["records"]]
    expected = {str(each): (None if each == 7 else f"v{each}", each) for each in range(500)}
    assert {record["key"]: (record["value"], record["timestamp_ms"]) for record in found} == expected
    assert len(found) == 500


def test_a_repeated_write_of_texts_writes_nothing_twice(
    pipeline: Pipeline,
    gateway: Gateway,
    proxy: Proxy,
    name: str,
) -> None:
    """The first answers of some requests are lost, and the job runs again with its rows in another order."""
    gateway.create_topic(name, 2)
    lost = [Instead(504, {}, after=True), Instead(503, {})]

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        return lost.pop(0) if lost and "idempotency-key" in headers else None

    proxy.rule = rule
    rows = pipeline.spark.range(300).selectExpr("CAST(id AS STRING) AS key", "concat('v', id) AS value")
    for order in ("CAST(key AS INT)", "-CAST(key AS INT)"):
        frame = rows.coalesce(1).sortWithinPartitions(expr(order))
        pipeline.write(frame, topic=name, writeId="again", maxRequestRecords=50)
    assert not lost
    assert sorted(values(gateway, name, 2)) == sorted(f"v{each}" for each in range(300))
