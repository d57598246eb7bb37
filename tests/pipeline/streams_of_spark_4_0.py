"""Spark 4.0 refuses streams that write. `make spark-versions` runs it there."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline


def test_a_stream_that_writes_is_refused(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    stream = pipeline.spark.readStream.format("rate").load().selectExpr("CAST(value AS INT) AS value")
    writer = stream.writeStream.format("sharequeue").options(url=pipeline.url, topic=name)
    with pytest.raises(PySparkException, match=r"a stream that writes needs Spark 4\.1 or later.*foreachBatch"):
        pipeline.started(
            writer.option("checkpointLocation", str(pipeline.directory / "checkpoint")).start()
        ).awaitTermination(60)
    assert gateway.read(name)["records"] == []


def test_the_format_needs_register(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """So that a session can register it: Spark 4.0 refuses that for a format which it has found by itself."""
    gateway.create_topic(name)
    plain = pipeline.spark.newSession()
    with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        plain.read.format("sharequeue").options(url=pipeline.url, topics=name).load()
