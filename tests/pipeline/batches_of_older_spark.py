"""Spark 4.0 and 4.1: batches, streams of the log, and what both refuse. `make spark-versions` runs it on each."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_sink import values
from tests.pipeline.test_source import numbers, produce


def test_batches_are_written_and_read(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 2)
    assert numbers(pipeline.read(topics=name)) == []
    rows = pipeline.spark.range(500).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS INT) AS value")
    pipeline.write(rows, topic=name, maxRequestRecords=100)
    assert numbers(pipeline.read(topics=name)) == list(range(500))
    part = pipeline.read(topics=name).where("partition = 1 AND offset >= 3 AND timestamp > '2020-01-01'")
    assert part.count() == len(gateway.read(name, 1, max_records=1000)["records"]) - 3
    texts = pipeline.read(topics=name, valueFormat="string")
    assert texts.selectExpr("sum(CAST(value AS INT))").first() == (sum(range(500)),)


def test_a_group_reads_a_batch_once(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 300)
    assert numbers(pipeline.read(topics=name, group=name, accept="read")) == list(range(300))
    assert numbers(pipeline.read(topics=name, group=name, accept="read")) == []


def test_a_batch_is_written_in_a_transaction(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    rows = pipeline.spark.range(20).selectExpr("CAST(id AS INT) AS value")
    for _ in range(2):
        pipeline.write(rows, topic=name, transactional=True, writeId=name)
    assert numbers(pipeline.read(topics=name, isolationLevel="read_committed")) == list(range(20))


def test_a_micro_batch_is_written_in_foreach_batch(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    pipeline.spark.range(10).write.parquet(str(pipeline.directory / "in"))

    def write(frame: DataFrame, batch: int) -> None:
        pipeline.write(frame.selectExpr("CAST(id AS INT) AS value"), topic=name, writeId=f"{name}:{batch}")

    stream = pipeline.spark.readStream.schema("id LONG").parquet(str(pipeline.directory / "in"))
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    assert pipeline.started(writer.trigger(availableNow=True).start()).awaitTermination(120)
    assert sorted(values(gateway, name)) == list(range(10))


@pytest.mark.parametrize("fail", [True, False], ids=["fail", "read on"])
def test_a_stream_of_the_log_reads_what_there_is(
    pipeline: Pipeline, gateway: Gateway, name: str, *, fail: bool
) -> None:
    """Its second run finds deleted records."""
    produce(gateway, name, 50, partitions=2)
    stream = pipeline.stream(topics=name, mode="log", failOnDataLoss=fail)
    pipeline.drain(stream)
    produce(gateway, name, 50, partitions=2, first=50)
    pipeline.drain(stream)
    assert numbers(pipeline.out()) == list(range(100))
    produce(gateway, name, 50, partitions=2, first=100)
    gateway.delete_records(name, 60, 1)
    if fail:
        with pytest.raises(
            PySparkException, match=f"{name}-1: the offsets 50 to 59 were deleted before they were read"
        ):
            pipeline.drain(stream)
    else:
        pipeline.drain(stream)
        assert numbers(pipeline.out()) == [
            *range(100),
            *(each for each in range(100, 150) if each % 2 == 0 or each > 120),
        ]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"group": "g"}, "a stream of a group"),
        ({"mode": "log", "maxBytesPerTrigger": "9"}, "the option maxBytesPerTrigger"),
    ],
    ids=["group", "limit"],
)
def test_a_stream_of_a_group_and_a_limit_are_refused(
    pipeline: Pipeline, gateway: Gateway, name: str, options: dict[str, str], what: str
) -> None:
    produce(gateway, name, 1)
    query = pipeline.start(pipeline.stream(topics=name, **options))
    with pytest.raises(PySparkException, match=what + r" needs Spark 4\.2 or later, and this is 4\.[01]\."):
        query.awaitTermination(60)
