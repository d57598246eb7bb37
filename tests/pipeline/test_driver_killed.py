"""A driver that is killed or stopped within a batch: which records a restart reads, and which others get."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.http.calls import Gateway, good
from tests.pipeline import driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.driver_process import Driver
from tests.pipeline.test_source import numbers, produce, settled


def test_a_late_restart_leaves_out_records_that_others_took(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=1000)
    produce(gateway, name, 40)
    stream = pipeline.stream(group=name, topics=name, maxRecordsPerTrigger=30)
    stuck = pipeline.start(stream.selectExpr("value", "java_method('java.lang.Thread', 'sleep', 600000L)"))
    wait_for((pipeline.directory / "checkpoint/offsets/0").exists, "a batch is planned")
    stuck.stop()
    gateway.configure(name, share_record_lock_duration_ms=60_000)
    taken: list[dict[str, Any]] = []
    while len([record for batch in taken for record in batch["records"]]) < 20:
        taken += gateway.fetch(name, name, max_records=20, max_wait_ms=20_000)["batches"]
        good(gateway.try_acknowledge(name, [{**batch, "type": "accept"} for batch in taken]))
    others = {record["offset"]: batch["delivery_count"] for batch in taken for record in batch["records"]}
    again: dict[int, list[int]] = {}

    def see(frame: DataFrame, batch: int) -> None:
        again[batch] = [row.offset for row in frame.collect()]

    writer = stream.writeStream.foreachBatch(see).option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    query = pipeline.started(writer.start())
    wait_for(lambda: settled(gateway, name, name), "all records are settled")
    assert again[0] == []
    assert sorted([*others, *(offset for offsets in again.values() for offset in offsets)]) == list(range(40))
    assert 2 in others.values()
    wait_for(
        lambda: any('"lost": 1' in entry["sources"][0]["endOffset"] for entry in query.recentProgress),
        "progress counts the lost range",
    )


@pytest.mark.soak
def test_many_kills_over_100_000_records(
    pipeline: Pipeline, gateway: Gateway, drive: Callable[..., Driver], tmp_path: Path, name: str, seed: int
) -> None:
    """50 windows of one partition; the driver, or all of its processes, is killed at random moments."""
    print(f"SEED={seed}")
    chance = random.Random(seed)
    gateway.configure(name, share_record_lock_duration_ms=600_000)
    produce(gateway, name, 100_000)
    for number in range(6):
        one = drive(pipeline.url, name, name, tmp_path, 2000, -1)
        begun = next((line for line in one.lines() if line.startswith("batch")), None)
        if begun is None:
            assert one.process.wait() == 0, (tmp_path / "driver.log").read_text()[-3000:]
            break
        time.sleep(chance.uniform(0, 8))  # a random moment
        if one.process.poll() is None and chance.random() < 0.5:
            one.kill_java()
        one.kill()
        print(f"kill {number} after {begun}")
    query = pipeline.started(driver.start(pipeline.spark, pipeline.url, name, name, str(tmp_path), 2000))
    assert query.awaitTermination(600)
    out = pipeline.out()
    assert numbers(out) == list(range(100_000))
    assert {row.delivery_count for row in out.select("delivery_count").distinct().collect()} == {1}
    assert settled(gateway, name, name)
