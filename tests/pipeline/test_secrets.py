"""A token of the options is in nothing that Spark shows or keeps: plans, what its pages show, checkpoints, notes."""

from pathlib import Path

import pytest
from pyspark import SparkFiles
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.proxy import Instead, Proxy

TOKEN = "sq_pl4nted"
RIGHT = f"Bearer {TOKEN}"


def plans(frame: DataFrame) -> str:
    execution = frame._jdf.queryExecution()
    return str(execution.toString()) + str(execution.simpleString())


def shown(pipeline: Pipeline) -> str:
    """What the pages and the event log have of queries: their plans, their settings, their jobs."""
    store = pipeline.spark._jsparkSession.sharedState().statusStore().executionsList().iterator()
    texts = []
    while store.hasNext():
        execution = store.next()
        texts += [execution.description(), execution.details(), execution.physicalPlanDescription()]
        texts.append(execution.modifiedConfigs().toString())
    return "".join(texts)


def kept(query: StreamingQuery, directory: Path) -> str:
    files = (file for file in directory.rglob("*") if file.is_file())
    return str(query.lastProgress) + "".join(file.read_text(errors="replace") for file in files)


@pytest.mark.parametrize("option", ["token", "tokenFile"])
def test_spark_shows_and_keeps_no_token(pipeline: Pipeline, gateway: Gateway, name: str, option: str) -> None:
    gateway.create_topic(name)
    gateway.create_topic(f"{name}-out")
    file = pipeline.directory.parent / f"{name}.token"
    file.write_text(f"{TOKEN}\n")
    given = {option: TOKEN if option == "token" else str(file)}

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        return None if headers.get("authorization") == RIGHT else Instead(401, {}, b"who are you?")

    with Proxy(pipeline.url).running() as proxy:
        proxy.rule = rule
        pipeline.url = proxy.url
        pipeline.write(pipeline.spark.range(3).selectExpr("id AS value"), topic=name, **given)
        read = pipeline.read(topics=name, **given)
        assert read.count() == 3
        stream = pipeline.stream(topics=name, group=name, **given)
        query = pipeline.start(stream, availableNow=True)
        assert query.awaitTermination(120)
        writer = pipeline.stream(topics=name, mode="log", **given).select("value").writeStream.format("sharequeue")
        writer = writer.options(url=proxy.url, topic=f"{name}-out", valueFormat="binary", **given)
        checkpoint = str(pipeline.directory / "sink")
        writing = pipeline.started(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
        assert writing.awaitTermination(120)
        proxy.rule = lambda method, path, headers: Instead(401, {}, b"no more")
        with pytest.raises(Exception, match="LOGIN_WANTED") as refused:
            read.count()
    texts = plans(read) + str(query._jsq.explainInternal(True)) + shown(pipeline) + kept(query, pipeline.directory)
    texts += str(writing.lastProgress) + str(refused.value) + str(pipeline.spark.conf.getAll)
    texts += kept(query, Path(SparkFiles.getRootDirectory()))
    assert name in texts, "the texts are of these queries"
    places = [texts[max(0, at - 100) : at + 40] for at in range(len(texts)) if texts.startswith(TOKEN, at)]
    assert places == []
