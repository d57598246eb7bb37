"""Writing in transactions: a micro-batch becomes visible as a whole, once,
whatever becomes of its tasks and its driver."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from sharequeue_pipeline import PipelineError
from sharequeue_pipeline.sink.transactions import query_id_of

from tests.http.calls import Gateway, good
from tests.pipeline import transactional_driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_cluster import Cluster, cluster, kill, pack
from tests.pipeline.test_source import produce

__all__ = ["cluster"]


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


def copy(pipeline: Pipeline, rows: DataFrame, topic: str, **options: Any) -> StreamingQuery:
    """A query that writes rows to a topic in transactions until all are read."""
    writer = rows.writeStream.format("sharequeue").options(
        url=pipeline.url, topic=topic, transactional="true", **options
    )
    writer = writer.option("checkpointLocation", str(pipeline.directory / "copy"))
    return pipeline.started(writer.trigger(availableNow=True).start())


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


# Kills


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    return (line.strip() for line in process.stdout)


def driven(directory: Path, *arguments: object, at: Cluster | None = None) -> subprocess.Popen[str]:
    """The driver program, with `local[2,4]` or at a cluster."""
    words = [sys.executable, transactional_driver.__file__, *map(str, arguments)]
    kept = dict(os.environ)
    if at is not None:
        kept = {key: to for key, to in kept.items() if not key.startswith(("PYSPARK", "SPARK"))}
        words += [at.master, str(directory / "site.tar.gz")]
        kept["PYSPARK_PYTHON"] = str(at.python)
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with (directory / "driver.log").open("ab") as errors:
        return subprocess.Popen(
            words, env=kept, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )


def each_once(values: list[Any], count: int) -> None:
    ids = Counter(value["id"] for value in values)
    assert sorted(ids) == list(range(count))
    assert set(ids.values()) == {1}


def task_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The Python processes of tasks: forks of Spark's daemon."""

    def is_worker(each: psutil.Process | None) -> bool:
        try:
            return each is not None and "pyspark.worker" in each.cmdline()
        except psutil.NoSuchProcess:  # it has just ended; a zombie too
            return False

    children = psutil.Process(process.pid).children(recursive=True)
    return [each for each in children if is_worker(each) and is_worker(each.parent())]


def test_a_killed_worker_and_a_killed_driver_write_each_record_once(
    pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """The worker dies after it has written records; the driver dies within a batch.
    The stage gives other rows each time."""
    produce(gateway, f"{name}-in", 600)
    gateway.create_topic(name, 2)
    stuck = tmp_path / "stuck"
    stuck.touch()
    arguments = (pipeline.url, f"{name}-in", name, tmp_path, 200)
    first = driven(tmp_path, *arguments)
    try:
        wait_for(lambda: stored(gateway, name) >= 10, "a task writes", 240)
        for worker in task_workers(first):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                worker.kill()
        stuck.unlink()
        for line in lines(first):
            if line == "batch 0":
                stuck.touch()
            if line == "batch 0" and wait_for(lambda: open_transactions(gateway), "the transaction of batch 1", 240):
                break
        assert len(committed(gateway, name)) in (200, 400), "whole batches"
    finally:
        kill(first)
    stuck.unlink()
    second = driven(tmp_path, *arguments)
    try:
        assert list(lines(second))[-1] == "done", (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        if second.poll() is None:
            kill(second)
    each_once(committed(gateway, name), 600)
    assert stored(gateway, name) > 600, "what the killed ones wrote is there, and aborted"
    assert open_transactions(gateway) == []


@pytest.mark.soak
def test_ten_kills_of_driver_and_workers_write_each_record_once(
    cluster: Cluster, pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    """Two workers, speculation on, a stage that gives other rows each time;
    five kills of the driver, five of workers."""
    chance = random.Random(seed)
    count = 12_000
    produce(gateway, f"{name}-in", count, partitions=2)
    gateway.create_topic(name, 2)
    pack(tmp_path / "site.tar.gz")
    kills = chance.sample(["driver"] * 5 + ["worker"] * 5, 10)
    done = False
    while not done:
        process = driven(tmp_path, pipeline.url, f"{name}-in", name, tmp_path, 500, at=cluster)
        try:
            for line in lines(process):
                done = done or line == "done"
                if line.startswith("batch") and kills:
                    time.sleep(chance.random() * 4)  # anywhere in the next batch
                    victim = kills.pop()
                    print(f"{line}: {victim} is killed, {len(open_transactions(gateway))} transactions are open")
                    if victim == "driver":
                        break
                    for executor in cluster.executors()[:1]:
                        executor.kill()
        finally:
            if process.poll() is None and not done:
                kill(process)
    assert not kills, "each of them happened"
    values = committed(gateway, name)
    print(
        f"{len(values)} committed of {stored_in_all(gateway, name)} stored, {len({value['run'] for value in values})} runs"
    )
    each_once(values, count)
    assert open_transactions(gateway) == []


def stored_in_all(gateway: Gateway, topic: str) -> int:
    return sum(entry["log_end_offset"] for entry in gateway.describe_topic(topic)["partitions"])
