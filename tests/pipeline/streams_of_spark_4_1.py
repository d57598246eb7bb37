"""Spark 4.1 writes streams, and finds the format by itself. `make spark-versions` runs it there."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import numbers


def committed(pipeline: Pipeline, topic: str) -> list[int]:
    return numbers(pipeline.read(topics=topic, isolationLevel="read_committed"))


def open_transactions(gateway: Gateway) -> set[str]:
    return {each["transaction_id"] for each in good(gateway.http.get("/v1/transactions"))["transactions"]}


def copy(pipeline: Pipeline, topic: str, *, transactional: bool, divisor: int = 1) -> None:
    """Write ten numbers from a file to a topic, as a stream with one checkpoint. Divisor 0: it fails at the last."""
    found = str(pipeline.directory / "in")
    pipeline.spark.range(10).selectExpr("CAST(id AS INT) AS value").coalesce(1).write.mode("ignore").parquet(found)
    stream = pipeline.spark.readStream.schema("value INT").parquet(found)
    rows = stream.select(f.expr(f"IF(value = 9, CAST(value / {divisor} AS INT), value)").alias("value"))
    options = {"url": pipeline.url, "topic": topic, "transactional": transactional, "maxRequestRecords": 3}
    writer = rows.writeStream.format("sharequeue").options(**options)
    writer = writer.option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    assert pipeline.started(writer.trigger(availableNow=True).start()).awaitTermination(120)


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_a_stream_writes_and_a_repeated_batch_writes_nothing_twice(
    pipeline: Pipeline, gateway: Gateway, name: str, *, transactional: bool
) -> None:
    gateway.create_topic(name)
    copy(pipeline, name, transactional=transactional)
    (pipeline.directory / "checkpoint" / "commits" / "0").unlink()
    copy(pipeline, name, transactional=transactional)
    assert committed(pipeline, name) == list(range(10))


def test_a_batch_that_fails_leaves_nothing_visible_and_nothing_open(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name)
    of_others = open_transactions(gateway)
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        copy(pipeline, name, transactional=True, divisor=0)
    assert committed(pipeline, name) == []
    assert open_transactions(gateway) <= of_others
    copy(pipeline, name, transactional=True)
    assert committed(pipeline, name) == list(range(10))


def test_spark_finds_the_format_by_itself(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 1, 2)
    plain = pipeline.spark.newSession()
    assert plain.read.format("sharequeue").options(url=pipeline.url, topics=name).load().count() == 2
