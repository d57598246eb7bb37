"""Outcomes of single records inside `foreachBatch`: rows are rejected, released or renewed; the others are accepted."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sharequeue_pipeline import PipelineError, settle

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import RENEWED_MS, held, lock_ends_ms, produce, settled


def run(pipeline: Pipeline, name: str, write: Callable[[DataFrame, int], None], **options: Any) -> None:
    stream = pipeline.stream(group=name, topics=name, valueFormat="string", **options).writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(pipeline.directory / "c")).trigger(availableNow=True)
    assert pipeline.started(stream.start()).awaitTermination(120)


def test_rows_are_rejected_and_released_and_the_others_accepted(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    """The locks are renewed after that. No range counts as lost, although a job settled parts of it."""
    gateway.configure(name, share_record_lock_duration_ms=RENEWED_MS)
    produce(gateway, name, 100, partitions=2)
    counts: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        number_of = f.col("value").cast("int")
        counts.append(settle(batch.where(number_of % 10 == 3), "reject", f.concat(f.lit("no use for "), "value")))
        counts.append(settle(batch.where("value = '50'"), "release", "later", delay_ms=3_600_000))
        counts.append(settle(batch.where("value = '51'"), "renew"))
        settled_ms = max(lock_ends_ms(gateway, name))
        wait_for(lambda: min(lock_ends_ms(gateway, name)) > settled_ms, "what is left is renewed")

    run(pipeline, name, write, parallelism=2)
    assert counts == [10, 1, 1]
    letters = gateway.letters(f"dlq.{name}", 10)
    assert sorted(letter["headers"]["__dlq.errors.reason"] for letter in letters) == sorted(
        f"no use for {number}" for number in range(3, 100, 10)
    )
    (left,) = [
        batch
        for entry in gateway.in_flight(name, topic=name)
        for batch in entry["batches"]
        if "available_at_ms" in batch
    ]
    assert (left["first_offset"], left["reason"]) == (25, "later")
    assert not held(gateway, name, name)
    assert sum(lag for _, lag in gateway.offsets(name).values()) <= 25
    assert '"lost": 0' in pipeline.queries[-1].recentProgress[-1]["sources"][0]["endOffset"]


@pytest.mark.soak
def test_a_failed_batch_releases_only_what_its_job_has_not_settled(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    produce(gateway, name, 10)
    seen: list[list[str]] = []

    def write(batch: DataFrame, number: int) -> None:
        seen.append(sorted(row.value for row in batch.collect()))
        if len(seen) == 1:
            settle(batch.where("value = '4'"), "reject", "bad")
            raise ValueError("no more")

    with pytest.raises(Exception, match="no more"):
        run(pipeline, name, write)
    wait_for(lambda: not held(gateway, name, name), "the rest is released")
    run(pipeline, name, write)
    assert sorted(value for batch in seen[1:] for value in batch) == [str(n) for n in range(10) if n != 4]
    gateway.letters(f"dlq.{name}", 1)
    wait_for(lambda: settled(gateway, name, name), "the dead letter is written")


def test_what_cannot_be_settled_is_refused(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 2)
    faults: list[str] = []

    def refused(*arguments: Any, **options: Any) -> None:
        with pytest.raises(PipelineError) as fault:
            settle(*arguments, **options)
        faults.append(str(fault.value))

    def write(batch: DataFrame, number: int) -> None:
        refused(batch, "accept")
        refused(batch, "reject", delay_ms=5)
        refused(batch, "renew", "why")
        refused(batch.select("value"), "reject")
        refused(batch.withColumn("offset", f.col("offset") + 5), "reject")

    run(pipeline, name, write)
    refused(pipeline.read(topics=name), "reject")
    assert [fault[:40] for fault in faults] == [
        "the outcome must be one of reject, release, renew, not 'accept'"[:40],
        "delay_ms needs the outcome release, not reject"[:40],
        "renew takes no reason",
        "the column topic is missing: topic, partition and offset name a record"[:40],
        f"{name}-0 offset 5 is not in this micro-batch of a share group"[:40],
        "settle needs a running micro-batch: call it in foreachBatch"[:40],
    ]
    assert settled(gateway, name, name)
