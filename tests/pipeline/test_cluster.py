"""A standalone cluster on this machine: one master, two workers that lack the package, and an archive with it.

The driver and its executors are killed with SIGKILL.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from sharequeue_pipeline.java import find_java_home

from sharequeue.stack.process import free_port
from tests.http.calls import Gateway
from tests.pipeline import ingest_driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.driver import TOO_BUSY

SHIPPED = ("sharequeue", "sharequeue_http", "sharequeue_pipeline", "pyspark_sharequeue", "lz4", "msgspec", "httptools")
ON_NODES = ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "dateutil", "six")
"""What the Python of the nodes has."""


def place_of(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    place = Path(found.origin)
    return place.parent if place.name == "__init__.py" else place


def pack(archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as packed:
        for package in SHIPPED:
            packed.add(place_of(package), package, filter=lambda each: None if "__pycache__" in each.name else each)


class Cluster:
    """One master and two workers with one core each. Their Python imports nothing of this project."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = free_port(self)  # held: if another program took it, Spark would listen on the next one
        self.master = f"spark://127.0.0.1:{port}"
        nodes = directory / "nodes"
        nodes.mkdir()
        for package in ON_NODES:
            if find_spec(package) is not None:
                place = place_of(package)
                (nodes / place.name).symlink_to(place)
        self.python = directory / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="{nodes}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
        self.python.chmod(0o755)

    def start(self) -> None:
        port = self.master.rpartition(":")[2]
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        self._wait_for("master", f"Starting Spark master at {self.master}")  # an early worker tries again 10 s later
        for number in (1, 2):
            self.start_worker(number)
        for number in (1, 2):
            self._wait_for(f"worker-{number}", "Successfully registered")

    def _wait_for(self, name: str, line: str) -> None:
        log, process = self._directory / f"{name}.log", self._processes[name]

        def said() -> bool:
            text = log.read_text()
            assert process.poll() is None, f"the {name} ended: {text[-3000:]}"
            return line in text

        wait_for(said, f"the {name} says {line!r}", 600)

    def start_worker(self, number: int) -> None:
        words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._run(f"worker-{number}", "worker.Worker", *words, "--work-dir", str(self._directory / "work"), self.master)

    def _run(self, name: str, kind: str, *words: str) -> None:
        kept = {key: to for key, to in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        java_home = find_java_home(os.environ)
        extra = {"JAVA_HOME": java_home} if java_home else {}
        command = [str(Path(pyspark.__path__[0]) / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env={**kept, **extra}, stdout=log, stderr=log, start_new_session=True
            )

    def executors(self) -> list[psutil.Process]:
        found = []
        running = [one for one in self._processes.values() if one.poll() is None]
        for each in [child for one in running for child in psutil.Process(one.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie too: Spark starts short programs
                found += [each] if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()) else []
        return found

    def stop(self) -> None:
        for process in self._processes.values():
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            if each.is_running():
                each.kill()
    process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def run(cluster: Cluster, log: Path, program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a driver program in its own process group, with this environment's packages."""
    kept = {key: to for key, to in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    packages = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    words = [sys.executable, program, *map(str, arguments)]
    with log.open("ab") as errors:
        return subprocess.Popen(
            words,
            env={**kept, "PYSPARK_PYTHON": str(cluster.python), "PYTHONPATH": packages},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the driver with all its processes, as a crash of its machine does, unless it has ended."""
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        if child.is_running():
            child.kill()
    process.wait()


def kill_executors(cluster: Cluster) -> None:
    """Kill the executors of a driver that was killed, and wait until nothing of it writes any more."""
    for executor in cluster.executors():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has noticed that its driver is gone
            executor.kill()
    wait_for(lambda: not cluster.executors(), "no executor writes any more", 240)


INGESTED = 40_000


@pytest.mark.soak
def test_an_ingest_that_was_killed_says_what_was_new_and_what_was_known(
    cluster: Cluster, pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    rows = pa.table({"id": list(range(INGESTED)), "text": [os.urandom(100).hex() for _ in range(INGESTED)]})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=INGESTED // 40)
    gateway.create_topic(name, 2)
    pack(tmp_path / "site.tar.gz")
    log = tmp_path / "driver.log"

    def ingest() -> subprocess.Popen[str]:
        words = (name, tmp_path / "rows.parquet", "--split-mib", 1, "--json", "--url", pipeline.url)
        return run(cluster, log, ingest_driver.__file__, cluster.master, tmp_path / "site.tar.gz", *words)

    def counts() -> dict[str, int]:
        """Run the job, again if Spark ended it because this machine is busy. Returns: the counts that it printed."""
        for _ in range(10):
            began, process = log.stat().st_size, ingest()
            try:
                printed, _ = process.communicate(timeout=1200)
            finally:
                kill(process)
            if process.returncode == 0:
                report = json.loads(printed.splitlines()[-1])
                return {word: report[word] for word in ("records", "new", "known")}
            said = log.read_text()[began:]
            assert TOO_BUSY in said, said[-3000:]
        raise AssertionError("the machine was busy ten times")

    first = ingest()
    try:
        wait_for(lambda: sum(gateway.log_ends(name)) > 0, "the first requests are written", 600)
    finally:
        kill(first)
        kill_executors(cluster)
    before = sum(gateway.log_ends(name))
    assert 0 < before < INGESTED, "it was killed half-way"
    second = counts()
    assert second["records"] == second["new"] + second["known"] == INGESTED
    assert second["known"] >= before > 0
    assert sum(gateway.log_ends(name)) == INGESTED
    assert counts() == {"records": INGESTED, "new": 0, "known": INGESTED}
    assert sum(gateway.log_ends(name)) == INGESTED
    ids = []
    for partition, end in enumerate(gateway.log_ends(name)):
        offset = 0
        while offset < end:  # a page may be short
            page = gateway.read(name, partition, offset=offset, max_records=10_000)
            ids += [record["value"]["id"] for record in page["records"]]
            offset = page["next_offset"]
    assert sorted(ids) == list(range(INGESTED))
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
