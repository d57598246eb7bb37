"""The format is known in every thread, session and micro-batch that a program writes from."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from sharequeue_pipeline import register, session
from sharequeue_pipeline.spark_version import check

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.jobs import Jobs
from tests.pipeline.test_sink import values


def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call `work` in a new thread, which has no active session. Returns: its result."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work, *arguments).result()


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("struct(id) AS value")


def test_a_job_writes_from_another_thread(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    (tmp_path / "rows.ndjson").write_text('{"id":1}\n')
    report = elsewhere(jobs.done, "ingest", name, tmp_path / "rows.ndjson", "--create", 1)
    assert report["records"] == 1
    assert values(gateway, name) == [{"id": 1}]


def test_two_sessions_write_side_by_side(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Both write, in any order of registration. `session()` makes the first one active again."""
    gateway.create_topic(name)
    second = register(pipeline.spark.newSession())
    for spark in (second, pipeline.spark, session()):
        pipeline.write(rows(spark, 1), topic=name)
    assert values(gateway, name) == [{"id": 0}] * 3


def test_a_task_gets_its_rows_before_many_are_made(pipeline: Pipeline) -> None:
    """So it sends the first ones while Java makes the next. Spark's own bounds are 64 MiB and 10,000 rows."""

    def counts(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - of the task

        for batch in batches:
            yield pa.record_batch({"rows": [batch.num_rows]})

    wide = pipeline.spark.range(0, 10_000, 1, 1).selectExpr("repeat('x', 1024) AS value")
    found = [row.rows for row in wide.mapInArrow(counts, "rows long").collect()]
    assert sum(found) == 10_000
    assert max(found) <= 2048


@pytest.mark.soak
def test_spark_finds_the_format_by_itself(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """A session without `register`: reading, a stream, and SQL."""
    gateway.create_topic(name)
    gateway.produce(name, {"id": 1}, {"id": 2})
    plain = pipeline.spark.newSession()
    options = {"url": pipeline.url, "topics": name}
    assert plain.read.format("sharequeue").options(**options).load().count() == 2
    stream = plain.readStream.format("sharequeue").options(**options, mode="log").load()
    pipeline.drain(stream.select("value"))
    assert pipeline.out().count() == 2
    given = ", ".join(f"{option} '{to}'" for option, to in (options | {"valueFormat": "string"}).items())
    plain.sql(f"CREATE TEMPORARY VIEW numbers USING sharequeue OPTIONS ({given})")
    assert plain.sql("SELECT sum(from_json(value, 'id INT').id) AS total FROM numbers").first() == (3,)


def test_a_micro_batch_writes(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """The session in foreachBatch is a copy of the query's session."""
    gateway.create_topic(f"{name}-in")
    gateway.create_topic(name)
    gateway.produce(f"{name}-in", {"id": 1})

    def write(frame: DataFrame, _: int) -> None:
        pipeline.write(frame.select("value"), topic=name, valueFormat="json")

    stream = pipeline.stream(topics=f"{name}-in", group=name, valueFormat="string").writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    assert pipeline.started(stream.trigger(availableNow=True).start()).awaitTermination(120)
    assert [json.dumps(value) for value in values(gateway, name)] == ['{"id": 1}']


SAYS = """
import os, subprocess, sys, threading
from sharequeue_pipeline.jobs.quiet_java import quiet_java
lines = ["WARNING: Using incubator modules: jdk.incubator.vector", "Setting Spark log level to \\"ERROR\\".",
         "26/01/02 03:04:05 WARN Utils: Set SPARK_LOCAL_IP", "26/01/02 03:04:05 ERROR Executor: no disk", "ours"]
with quiet_java():
    java = subprocess.Popen(["sh", "-c", "read line; printf '%s\\n' \\"$@\\" >&2", "sh", *lines], stdin=subprocess.PIPE)
print("the program's own", file=sys.stderr, flush=True)
java.communicate(b"go\\n")
[each.join() for each in threading.enumerate() if each.name == "sharequeue stderr"]
"""


def test_what_java_says_at_a_start_is_left_out() -> None:
    """Java goes on after the start; its errors and what workers say are shown."""
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr.splitlines() == ["the program's own", "26/01/02 03:04:05 ERROR Executor: no disk", "ours"]


def test_an_older_spark_is_refused_in_one_line() -> None:
    check(pyspark.__version__)
    check("4.0.0.dev1")
    check("5.0.0")
    with pytest.raises(ImportError, match=r"needs PySpark 4\.0 or later, and this is 3\.5\.9"):
        check("3.5.9")


IMPORTED = """
import pyspark
from sharequeue_pipeline import session
spark = session(master="local[1]")
print("imported:", spark.range(1).rdd.map(lambda row: __import__("pyspark").__file__).first() == pyspark.__file__)
"""


@pytest.mark.soak
def test_workers_import_the_installed_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the archive in Spark's own home each worker would compile it again."""
    for set_here in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(set_here, raising=False)
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["imported:", "True"], done.stderr
    assert "statically registered" not in done.stderr  # Spark has found the format, and nothing replaces it


@pytest.mark.soak
def test_a_session_uses_unix_sockets_unless_it_is_told_otherwise() -> None:
    """A program of its own for each: Java reads the setting when it starts."""
    setting = "spark.python.unix.domain.socket.enabled"
    program = f"""
import sys
from sharequeue_pipeline import session
spark = session(master="local[1]", config={{"{setting}": sys.argv[1]}} if sys.argv[1:] else {{}})
print("sockets:", spark.sparkContext.getConf().get("{setting}"), spark.range(3).rdd.map(lambda row: row.id).sum())
"""
    for arguments, found in (((), "true 3"), (("false",), "false 3")):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, timeout=240
        )
        assert f"sockets: {found}" in done.stdout
