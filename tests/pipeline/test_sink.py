"""Writing to topics on the real stack: every record once, in bounded requests, also if the gateway is busy."""

from typing import Any

import pytest

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_source import numbers, produce

PRODUCE = "/records"


def sent(proxy: Proxy) -> list[str]:
    """The idempotency keys of the produce requests so far."""
    return [
        headers["idempotency-key"]
        for method, path, headers in proxy.requests
        if path.endswith(PRODUCE) and method == "POST"
    ]


def values(gateway: Gateway, topic: str, partitions: int = 1) -> list[Any]:
    return [
        record["value"]
        for partition in range(partitions)
        for record in gateway.read(topic, partition, max_records=100_000)["records"]
    ]


def test_every_column_arrives(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 2)
    frame = pipeline.spark.sql(
        "SELECT 'k' AS key, named_struct('id', 1, 'none', CAST(null AS INT)) AS value, map('b', '2', 'a', '1') AS headers, "
        "1 AS partition, timestamp_millis(7000) AS timestamp"
    )
    pipeline.write(frame, topic=name)
    (record,) = gateway.read(name, 1)["records"]
    assert record == {
        "offset": 0,
        "timestamp_ms": 7000,
        "key": "k",
        "value": {"id": 1, "none": None},
        "headers": {"a": "1", "b": "2"},
    }


def test_requests_are_bounded_and_topics_come_from_a_column(
    pipeline: Pipeline, gateway: Gateway, proxy: Proxy, name: str
) -> None:
    for letter in "ab":
        gateway.create_topic(f"{name}-{letter}")
    frame = pipeline.spark.range(100).selectExpr(f"if(id % 4 = 0, '{name}-a', '{name}-b') AS topic", "id AS value")
    pipeline.write(frame.coalesce(1), maxRequestRecords=10)
    assert sorted(values(gateway, f"{name}-a")) == list(range(0, 100, 4))
    assert len(values(gateway, f"{name}-b")) == 75
    names = [(path, headers["idempotency-key"]) for method, path, headers in proxy.requests if path.endswith(PRODUCE)]
    assert len(names) == len(set(names)) == 3 + 8
    kept = {headers["idempotency-retention-ms"] for method, path, headers in proxy.requests if path.endswith(PRODUCE)}
    assert kept == {str(7 * 24 * 3_600_000)}


def test_the_sink_waits_for_a_busy_gateway_and_repeats_lost_requests_once(
    pipeline: Pipeline, gateway: Gateway, proxy: Proxy, name: str
) -> None:
    gateway.create_topic(name)
    faults = [
        Instead(429, {"Retry-After": "1"}),
        Instead(503, {}),
        Instead(504, {}, after=True),
        Instead(503, {}, after=True),
    ]

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        return faults.pop(0) if faults and method == "POST" else None

    proxy.rule = rule
    pipeline.write(pipeline.spark.range(50).selectExpr("id AS value").coalesce(1), topic=name)
    assert not faults
    assert sorted(values(gateway, name)) == list(range(50))
    assert len(sent(proxy)) == 5
    assert len(set(sent(proxy))) == 1


def test_a_job_repeated_under_its_write_id_writes_nothing_twice(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name)
    frame = pipeline.spark.range(0, 1000, 1, 3).selectExpr("id AS value")
    for _ in range(2):
        pipeline.write(frame, topic=name, writeId="load-7", maxRequestRecords=100)
    assert sorted(values(gateway, name)) == list(range(1000))
    pipeline.write(frame, topic=name)
    assert len(values(gateway, name)) == 2000


def test_a_repeated_micro_batch_writes_nothing_twice(
    pipeline: Pipeline, gateway: Gateway, proxy: Proxy, name: str
) -> None:
    """The third request of the batch fails for good. The query is restarted from its checkpoint."""
    produce(gateway, f"{name}-in", 100, partitions=2)
    gateway.create_topic(name)
    refused: list[str] = []

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        if path.endswith(PRODUCE) and method == "POST" and name in path and len(set(sent(proxy))) == 3 and not refused:
            refused.append(path)
            return Instead(403, {})
        return None

    proxy.rule = rule
    stream = pipeline.stream(topics=f"{name}-in", mode="log", parallelism=2).selectExpr(
        "CAST(value AS STRING) AS value"
    )

    def run() -> Any:
        writer = stream.writeStream.format("sharequeue").options(
            url=pipeline.url, topic=name, valueFormat="json", maxRequestRecords=10
        )
        checkpoint = str(pipeline.directory / "sink")
        return pipeline.started(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())

    query = run()
    wait_for(lambda: not query.isActive, "the batch fails")
    assert refused
    assert "LOGIN_WANTED: " in str(query.exception())
    assert 0 < len(values(gateway, name)) < 100
    assert run().awaitTermination(60)
    assert sorted(values(gateway, name)) == list(range(100))
    assert len(sent(proxy)) > len(set(sent(proxy)))


def test_a_stream_from_a_group_writes_to_a_topic(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, f"{name}-in", 500)
    gateway.create_topic(name)
    stream = pipeline.stream(group=name, topics=f"{name}-in").selectExpr(
        "CAST(CAST(value AS STRING) AS BIGINT) * 2 AS value"
    )
    writer = stream.writeStream.format("sharequeue").options(url=pipeline.url, topic=name)
    writer = writer.option("checkpointLocation", str(pipeline.directory / "c")).trigger(availableNow=True)
    assert pipeline.started(writer.start()).awaitTermination(60)
    assert numbers(pipeline.read(topics=name)) == list(range(0, 1000, 2))


@pytest.mark.parametrize(
    "value", ["repeat('x', size)", "named_struct('long', repeat('x', size))"], ids=["text", "json"]
)
def test_a_row_that_is_too_large_is_named(pipeline: Pipeline, gateway: Gateway, name: str, value: str) -> None:
    gateway.create_topic(name, 1, max_message_bytes=5000)
    sizes = pipeline.spark.range(8, numPartitions=1).selectExpr("id", "CAST(IF(id = 6, 6000, 10) AS INT) AS size")
    rows = sizes.selectExpr("concat('key-', id) AS key", f"{value} AS value")
    with pytest.raises(Exception, match=rf"row of a request to topic '{name}' has 60\d\d bytes.*begins with 'key-6'"):
        pipeline.write(rows, topic=name)
