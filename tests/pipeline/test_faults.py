"""A user's mistake gives one line of text, without the stack traces that Spark adds."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_source import produce


def fault_line(action: Callable[[], Any]) -> str:
    """The one line that an action fails with, without Spark's own text around it."""
    with pytest.raises(PySparkException) as refused:
        action()
    text = str(refused.value)
    assert "Traceback" not in text
    assert "\tat " not in text
    (line,) = re.findall(r"sharequeue\.PipelineError: (.*)", text)
    return line.strip()


def test_an_unknown_option_is_refused(pipeline: Pipeline) -> None:
    assert fault_line(lambda: pipeline.read(topics="t", grup="g")).startswith(
        "there is no option 'grup'; known are accept,"
    )


def test_a_missing_topic_is_one_line(pipeline: Pipeline, name: str) -> None:
    expected = f"there is no topic '{name}' at {pipeline.url}"
    assert fault_line(lambda: pipeline.read(topics=name)) == expected
    assert fault_line(lambda: pipeline.stream(topics=name, group="g")) == expected
    assert fault_line(lambda: pipeline.write(pipeline.spark.range(1).selectExpr("id AS value"), topic=name)) == expected


def test_a_gateway_out_of_reach_is_one_line(pipeline: Pipeline) -> None:
    pipeline.url = "http://127.0.0.1:9"
    assert fault_line(lambda: pipeline.read(topics="t", timeoutMs=500)).startswith(
        "UNREACHABLE: cannot reach http://127.0.0.1:9"
    )


def test_a_wrong_token_is_refused(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """A proxy asks for the token `right`."""
    produce(gateway, name, 5)

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        return None if headers.get("authorization") == "Bearer right" else Instead(401, {}, b"who are you?")

    with Proxy(pipeline.url).running() as proxy:
        proxy.rule = rule
        pipeline.url = proxy.url
        expected = f"LOGIN_WANTED: {proxy.url} answered describeTopic with 401 "
        expected += "(no content type): 'who are you?'; the answer is not a gateway's: a proxy before it wants a login"
        assert fault_line(lambda: pipeline.read(topics=name, token="wrong")) == expected
        frame = pipeline.spark.range(3).selectExpr("id AS value")
        assert fault_line(lambda: pipeline.write(frame, topic=name, token="wrong")) == expected
        pipeline.write(frame, topic=name, token="right")
        assert pipeline.read(topics=name, token="right").count() == 8
        assert all(headers.get("authorization") != "Bearer None" for _, _, headers in proxy.requests)


def test_unsupported_reads_and_writes_are_one_line(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 1)
    assert fault_line(lambda: pipeline.read(topics=name, group="g").count()).startswith(
        "spark.read does not know when its job is done: set accept=read"
    )
    query = pipeline.start(pipeline.stream(topics=name))
    assert fault_line(query.awaitTermination).startswith("the option group is missing")
    frame = pipeline.spark.range(1).selectExpr("id AS value")
    overwriting = frame.write.format("sharequeue").options(url=pipeline.url, topic=name).mode("overwrite")
    assert fault_line(overwriting.save) == 'a topic cannot be overwritten: write with mode("append")'
    assert (
        fault_line(lambda: pipeline.write(frame.selectExpr("value AS id"), topic=name))
        == "the column value is missing: the columns are id"
    )


def test_a_topic_deleted_under_a_query_fails_it(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 1)
    query = pipeline.start(pipeline.stream(topics=name, group=name))
    wait_for(lambda: query.recentProgress, "the first batch")
    gateway.http.delete(f"/v1/topics/{name}")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in fault_line(lambda: query.awaitTermination(60))


def test_a_schema_from_the_user_is_refused(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 1)
    reader = pipeline.spark.read.format("sharequeue").options(url=pipeline.url, topics=name).schema("id INT")
    assert fault_line(lambda: reader.load().count()).startswith("the columns are topic, partition, offset,")
