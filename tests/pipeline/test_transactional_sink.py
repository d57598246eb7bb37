"""Writing in transactions: a micro-batch becomes visible as a whole, once,
whatever becomes of its tasks and its driver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from sharequeue_pipeline import PipelineError
from sharequeue_pipeline.sink.transactions import query_id_of

from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import produce


def committed(gateway: Gateway, topic: str, partitions: int = 2) -> list[Any]:
    """The values that readers of committed records see."""
    found: list[Any] = []
    for partition in range(partitions):
        offset = 0
        while True:
            query = f"offset={offset}&max_records=10000&isolation_level=read_committed"
            page = good(gateway.http.get(f"/v1/topics/{topic}/partitions/{partition}/records?{query}"))
            found += [record["value"] for record in page["records"]]
            if page["next_offset"] == offset:
                break
            offset = page["next_offset"]
    return found


def stored(gateway: Gateway, topic: str, partitions: int = 2) -> int:
    return sum(len(gateway.read(topic, partition, max_records=10_000)["records"]) for partition in range(partitions))


OF_EARLIER_TESTS: set[str] = set()
"""Transactions that other tests left open on the same stack."""


@pytest.fixture(autouse=True)
def _of_earlier_tests(gateway: Gateway) -> Iterator[None]:
    OF_EARLIER_TESTS.update(each["transaction_id"] for each in open_transactions(gateway))
    yield
    OF_EARLIER_TESTS.clear()


def open_transactions(gateway: Gateway) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = good(gateway.http.get("/v1/transactions"))["transactions"]
    return [each for each in found if each["transaction_id"] not in OF_EARLIER_TESTS]


def copy(
    pipeline: Pipeline, rows: DataFrame, topic: str, processingTime: str | None = None, **options: Any
) -> StreamingQuery:
    """A query that writes rows to a topic in transactions until all are read, or at intervals."""
    writer = rows.writeStream.format("sharequeue").options(
        url=pipeline.url, topic=topic, transactional="true", **options
    )
    writer = writer.option("checkpointLocation", str(pipeline.directory / "copy"))
    trigger: dict[str, Any] = {"processingTime": processingTime} if processingTime else {"availableNow": True}
    return pipeline.started(writer.trigger(**trigger).start())


def ended(query: StreamingQuery) -> None:
    assert query.awaitTermination(120)


def test_each_micro_batch_is_one_transaction(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, f"{name}-in", 300)
    gateway.create_topic(name, 2)
    rows = pipeline.stream(topics=f"{name}-in", mode="log", maxRecordsPerTrigger=100, valueFormat="string")
    query = copy(pipeline, rows.selectExpr("CAST(value AS INT) AS value"), name, maxRequestRecords=7)
    ended(query)
    assert sorted(committed(gateway, name)) == list(range(300))
    ends = [entry["log_end_offset"] for entry in gateway.describe_topic(name)["partitions"]]
    markers = sum(ends) - 300
    assert 3 <= markers <= 6, "three micro-batches, at most one marker in each partition"
    assert open_transactions(gateway) == []
    begun = gateway.http.post("/v1/transactions", json={"transactional_id": query.id}).json()
    assert begun["committed_note"] == f"{query.id}:2"
    good(gateway.http.post(f"/v1/transactions/{begun['transaction_id']}/abort", json={}))


def test_a_batch_that_runs_again_after_its_commit_writes_nothing(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    """The driver died after its commit, and before Spark noted it."""
    produce(gateway, f"{name}-in", 100)
    gateway.create_topic(name, 2)
    rows = pipeline.stream(topics=f"{name}-in", mode="log", maxRecordsPerTrigger=50).repartition(2, f.rand())
    values = rows.selectExpr("named_struct('id', CAST(CAST(value AS STRING) AS INT), 'run', uuid()) AS value")
    ended(copy(pipeline, values, name))
    first = committed(gateway, name)
    assert sorted(value["id"] for value in first) == list(range(100))
    for part in ("1", ".1.crc"):
        (pipeline.directory / "copy/commits" / part).unlink(missing_ok=True)
    produce(gateway, f"{name}-in", 20, first=100)
    ended(copy(pipeline, values, name))
    second = committed(gateway, name)
    assert len(second) == 120
    assert {value["run"] for value in first} < {value["run"] for value in second}, "batch 1 was not written again"
    assert stored(gateway, name) == 120
    assert open_transactions(gateway) == []


def test_a_batch_that_fails_leaves_nothing_visible_and_nothing_open(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    produce(gateway, f"{name}-in", 100)
    gateway.create_topic(name, 2)
    broken, waits = pipeline.directory / "broken", pipeline.directory / "waits"
    broken.touch()
    waits.touch()

    @f.udf("int")
    def read(value: str) -> int:
        if value == "99" and broken.exists():
            wait_for(lambda: not waits.exists(), "the other task writes", 100)
            raise ValueError("broken")
        return int(value)

    rows = pipeline.stream(topics=f"{name}-in", mode="log", valueFormat="string", parallelism=2)
    values = rows.select(read("value").alias("value"))
    options = {"maxRequestRecords": 5}
    config = pipeline.spark.conf
    config.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        failing = copy(pipeline, values, name, **options)
        wait_for(lambda: stored(gateway, name), "the other task writes")
        waits.unlink()
        with pytest.raises(Exception, match="broken"):
            failing.awaitTermination(120)
        assert committed(gateway, name) == []
        assert open_transactions(gateway) == []
        broken.unlink()
        ended(copy(pipeline, values, name, **options))
    finally:
        config.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(committed(gateway, name)) == list(range(100))
    assert stored(gateway, name) > 100, "with those of the first run"


def test_a_write_is_one_transaction_and_its_id_makes_it_once(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 2)
    rows = pipeline.spark.range(0, 200, numPartitions=3).selectExpr("named_struct('id', id, 'run', uuid()) AS value")
    options = {"topic": name, "transactional": "true", "writeId": f"{name}-1"}
    for _ in range(2):
        pipeline.write(rows, **options)
    assert sorted(value["id"] for value in committed(gateway, name)) == list(range(200))
    assert stored(gateway, name) == 200
    failing = rows.selectExpr("CASE WHEN value.id = 150 THEN raise_error('broken') ELSE value END AS value")
    with pytest.raises(Exception, match="broken"):
        pipeline.write(failing, topic=name, transactional="true", maxRequestRecords=10)
    assert len(committed(gateway, name)) == 200
    assert open_transactions(gateway) == []
    pipeline.write(rows, topic=name, transactional="true")
    assert len(committed(gateway, name)) == 400, "a write without an id is another one each time"


def test_a_newer_query_fences_the_earlier_one(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Two drivers believe to be the one: the earlier one cannot commit."""
    produce(gateway, f"{name}-in", 10)
    gateway.create_topic(name, 2)
    waits = pipeline.directory / "waits"
    waits.touch()

    @f.udf("int")
    def read(value: str) -> int:
        wait_for(lambda: not waits.exists(), "the test goes on", 100)
        return int(value)

    rows = pipeline.stream(topics=f"{name}-in", mode="log", valueFormat="string").select(read("value").alias("value"))
    query = copy(pipeline, rows, name, transactionalId=name)
    wait_for(lambda: open_transactions(gateway), "the transaction of the first batch")
    newer = gateway.http.post("/v1/transactions", json={"transactional_id": name}).json()
    waits.unlink()
    with pytest.raises(Exception, match=r"(?s)PRODUCER_FENCED.*newer producer"):
        query.awaitTermination(120)
    assert committed(gateway, name) == []
    good(gateway.http.post(f"/v1/transactions/{newer['transaction_id']}/abort", json={}))


def test_the_query_of_a_checkpoint_is_read_from_its_metadata(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"6c7a"}')
    for checkpoint in (str(tmp_path), f"{tmp_path}/", f"file:{tmp_path}", f"file://{tmp_path}"):
        assert query_id_of(checkpoint) == "6c7a"
    for wrong in (str(tmp_path / "none"), "nowhere://bucket/x"):
        with pytest.raises(PipelineError, match="name the writer with the option transactionalId"):
            query_id_of(wrong)
