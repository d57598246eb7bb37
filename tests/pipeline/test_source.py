"""Streaming from a share group on the real stack: records are read, accepted, released, rejected and shared."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from tests.http.calls import LONG_MS, Gateway
from tests.pipeline.conftest import Pipeline, wait_for

RENEWED_MS = 15_000
"""The length of locks whose renewal is waited for. A third of it passes until then; a machine may stand still for the
rest."""


def produce(gateway: Gateway, topic: str, count: int, partitions: int = 1, first: int = 0) -> None:
    """Produce numbers to a topic, to its partitions in turn."""
    if first == 0:
        gateway.create_topic(topic, partitions)
    for partition in range(partitions):
        values = range(first + partition, first + count, partitions)
        for start in range(0, len(values), 2000):
            gateway.produce(topic, *values[start : start + 2000], partition=partition)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def settled(gateway: Gateway, group: str, topic: str) -> bool:
    """Whether every record of the topic is settled for the group."""
    topics = gateway.http.get(f"/v1/share-groups/{group}/offsets").json().get("topics", [])
    partitions = [partition for entry in topics if entry["topic"] == topic for partition in entry["partitions"]]
    return bool(partitions) and all(partition["lag"] == 0 for partition in partitions)


def held(gateway: Gateway, group: str, topic: str) -> list[dict[str, Any]]:
    """The batches that any member holds."""
    return [
        batch
        for partition in gateway.in_flight(group, topic=topic)
        for batch in partition["batches"]
        if batch["delivery_state"] == "ACQUIRED"
    ]


def released(gateway: Gateway, name: str) -> dict[str, Any]:
    """The one batch that the group gives after a release. A release is listed before it is durable, and until then
    nobody gets its records: so this waits for them."""
    batch: dict[str, Any]
    (batch,) = gateway.fetch(name, name, with_records=False, max_wait_ms=LONG_MS)["batches"]
    return batch


def lock_limit(gateway: Gateway, group: str) -> str:
    """The group's limit of locks in a partition."""
    limit: str = gateway.http.get(f"/v1/share-groups/{group}/config").json()["share.partition.max.record.locks"]
    return limit


def lock_ends_ms(gateway: Gateway, name: str) -> list[int]:
    """When the locks of the batches end that are held."""
    return [batch["lock_expires_at_ms"] for batch in held(gateway, name, name)]


def test_an_idle_stream_accepts_its_last_batch_and_continues(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 10)
    query = pipeline.start(pipeline.stream(group=name, topics=name))
    wait_for(lambda: settled(gateway, name, name) and query.recentProgress, "the last batch is accepted")
    produce(gateway, name, 5, first=10)
    wait_for(lambda: settled(gateway, name, name) and gateway.log_ends(name) == [5 + 10], "so is the next one")
    assert numbers(pipeline.out()) == [*range(10), *range(10, 15)]


def test_a_stopped_query_accepts_its_finished_batch(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Between two triggers Spark does not call the source. The listener for the query's end must accept."""
    produce(gateway, name, 10)
    query = pipeline.start(pipeline.stream(group=name, topics=name), processingTime="1 hour")
    wait_for(lambda: query.recentProgress, "the batch is done")
    assert held(gateway, name, name)
    assert lock_limit(gateway, name) == "100000", "the query has raised it"
    query.stop()
    wait_for(lambda: settled(gateway, name, name), "the batch is accepted")
    wait_for(lambda: lock_limit(gateway, name) == "2000", "the limit of locks is put back")


def test_two_queries_of_one_frame_share_its_records(
    pipeline: Pipeline, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(gateway, name, 10)
    frame = pipeline.stream(group=name, topics=name)
    for number in (10, 20):
        query = pipeline.started(frame.writeStream.format("noop").trigger(processingTime="1 hour").start())
        wait_for(lambda query=query: query.recentProgress, "the batch is done")
        assert query.recentProgress[0]["numInputRows"] == 10
        produce(gateway, name, 10, first=number)
    wait_for(
        lambda: f"two queries read for group {name}, so each record goes to one of them" in caplog.text, "a warning"
    )


def test_a_failed_batch_is_released_at_once(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 20)
    stream = pipeline.stream(group=name, topics=name).selectExpr("raise_error('no use') AS value")
    query = pipeline.start(stream)
    wait_for(lambda: not query.isActive, "the query fails")
    wait_for(lambda: gateway.in_flight(name, topic=name)[0]["batches"], "the release")
    wait_for(lambda: not held(gateway, name, name), "no record is held")
    batch = released(gateway, name)
    assert (batch["first_offset"], batch["last_offset"], batch["delivery_count"], batch["attempt"]) == (0, 19, 2, 2)


@pytest.mark.parametrize(("seen", "attempt"), [(False, 1), (True, 2)], ids=["before", "behind"])
def test_a_batch_that_fails_before_its_first_job_costs_no_attempt(
    pipeline: Pipeline, gateway: Gateway, name: str, seen: bool, attempt: int
) -> None:
    """The job of the first batch does not count for the second one."""
    produce(gateway, name, 10)

    def fails(batch: DataFrame, number: int) -> None:
        if number == 0 or seen:
            assert batch.count() == 5
        if number == 1:
            raise ValueError("not ready")

    stream = pipeline.stream(group=name, topics=name, maxRecordsPerTrigger=5, onError="reject").writeStream
    stream = stream.foreachBatch(fails).option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    query = pipeline.started(stream.start())
    wait_for(lambda: not query.isActive, "the query fails")
    wait_for(lambda: gateway.in_flight(name, topic=name)[0]["batches"], "the release")
    wait_for(lambda: not held(gateway, name, name), "no record is held")
    batch = released(gateway, name)
    assert (batch["first_offset"], batch["last_offset"], batch["delivery_count"], batch["attempt"]) == (
        5,
        9,
        2,
        attempt,
    )


def test_a_failed_batch_of_one_record_is_rejected_with_its_cause(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    produce(gateway, name, 1)
    stream = pipeline.stream(group=name, topics=name, onError="reject").selectExpr("raise_error('no use') AS value")
    query = pipeline.start(stream)
    wait_for(lambda: not query.isActive, "the query fails")
    wait_for(lambda: settled(gateway, name, name), "the record is a dead letter")
    (letter,) = gateway.letters(f"dlq.{name}", 1)
    assert any("no use" in text for text in letter["headers"].values())


def test_locks_are_renewed_while_a_batch_runs(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=RENEWED_MS)
    produce(gateway, name, 10)
    seen: list[tuple[int, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        (acquired_ms,) = lock_ends_ms(gateway, name)
        wait_for(lambda: lock_ends_ms(gateway, name) > [acquired_ms], "the lock is renewed")
        seen.extend((int(row.value), row.delivery_count) for row in batch.collect())

    stream = pipeline.stream(group=name, topics=name).writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(pipeline.directory / "c")).trigger(availableNow=True)
    assert pipeline.started(stream.start()).awaitTermination(120)
    assert sorted(seen) == [(number, 1) for number in range(10)]
    assert settled(gateway, name, name)
    assert len(gateway.in_flight(name, topic=name)[0]["batches"]) == 0


def test_records_deleted_during_a_batch_are_left_out(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 30)
    seen: list[int] = []

    def later(frame: DataFrame, batch: int) -> None:
        if not seen:
            gateway.delete_records(name, 10)
        seen.extend(numbers(frame))

    stream = pipeline.stream(group=name, topics=name).writeStream.foreachBatch(later)
    stream = stream.option("checkpointLocation", str(pipeline.directory / "c")).trigger(availableNow=True)
    assert pipeline.started(stream.start()).awaitTermination(60)
    assert seen == list(range(10, 30))


def test_json_becomes_columns_and_malformed_json_dead_letters(
    pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """The program of docs/pipeline.md."""
    section = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text().split("### JSON\n")[1]
    program = section.split("```python\n")[1].split("```")[0].replace("/tmp/orders", str(tmp_path / "orders"))
    shown: dict[str, Any] = {}
    exec(program, shown)
    gateway.create_topic(name)
    gateway.produce(name, {"id": 1, "total": 9.5}, {"id": "x"}, "no object", None, {"id": 2, "more": 1})
    stream = pipeline.stream(group=name, topics=name, valueFormat="string")
    writer = shown["typed"](stream).writeStream.foreachBatch(shown["keep_the_good"])
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert pipeline.started(writer.start()).awaitTermination(120)
    rows = pipeline.spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted((row.id, row.total) for row in rows if row.id) == [(1, Decimal("9.50")), (2, None)]
    reasons = [letter["headers"]["__dlq.errors.reason"] for letter in gateway.letters(f"dlq.{name}", 2)]
    assert sorted(reasons) == ["malformed: no object", 'malformed: {"id":"x"}']
    with pytest.raises(Py4JJavaError, match="MALFORMED_RECORD"):
        shown["strict"](pipeline.read(topics=name, valueFormat="string")).select("value.id").collect()


def test_a_batch_read_accepts_the_records_it_hands_over(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 300, partitions=2)
    frame = pipeline.read(group=name, topics=name, accept="read", parallelism=3)
    assert numbers(frame) == list(range(300))
    assert settled(gateway, name, name)
    assert frame.count() == 0
