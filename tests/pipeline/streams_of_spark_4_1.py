"""What Spark 4.1 can do beyond 4.0. `make spark-versions` runs it there."""

from tests.http.calls import Gateway
from tests.pipeline.batches_of_older_spark import _checkpoints
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_sink import values

__all__ = ["_checkpoints"]


def test_a_stream_writes(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    pipeline.spark.range(10).selectExpr("CAST(id AS INT) AS value").write.parquet(str(pipeline.directory / "in"))
    for transactional in (False, True):
        stream = pipeline.spark.readStream.schema("value INT").parquet(str(pipeline.directory / "in"))
        options = {"url": pipeline.url, "topic": name, "transactional": transactional}
        writer = stream.writeStream.format("sharequeue").options(**options)
        writer = writer.option("checkpointLocation", str(pipeline.directory / f"checkpoint-{transactional}"))
        assert pipeline.started(writer.trigger(availableNow=True).start()).awaitTermination(120)
    assert sorted(values(gateway, name)) == sorted([*range(10), *range(10)])


def test_spark_finds_the_format_by_itself(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 1, 2)
    plain = pipeline.spark.newSession()
    assert plain.read.format("sharequeue").options(url=pipeline.url, topics=name).load().count() == 2
