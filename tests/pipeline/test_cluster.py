"""A standalone cluster on this machine: one master, two workers that lack the package, and an archive with it.

The driver and an executor are killed with SIGKILL.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pyspark
import pytest
from sharequeue_pipeline.java import find_java_home

from sharequeue.stack.process import free_port
from tests.http.calls import Gateway
from tests.pipeline import driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import numbers, produce, settled

SHIPPED = ("sharequeue", "sharequeue_pipeline", "pyspark_sharequeue", "msgspec", "httptools")
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
        self.master = f"spark://127.0.0.1:{free_port()}"
        nodes = directory / "nodes"
        nodes.mkdir()
        for package in ON_NODES:
            if find_spec(package) is not None:
                place = place_of(package)
                (nodes / place.name).symlink_to(place)
        self.python = directory / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{nodes}" exec {sys.executable} -S "$@"\n')
        self.python.chmod(0o755)

    def start(self) -> None:
        port = self.master.rpartition(":")[2]
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for number in (1, 2):
            self.start_worker(number)
        for number in (1, 2):
            log = self._directory / f"worker-{number}.log"
            wait_for(lambda log=log: "Successfully registered" in log.read_text(), log.name, 240)

    def start_worker(self, number: int) -> None:
        words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._run(f"worker-{number}", "worker.Worker", *words, "--work-dir", str(self._directory / "work"), self.master)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as a crash of its machine does."""
        _kill(self._processes[f"worker-{number}"])

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


def run(cluster: Cluster, log: Path, *arguments: object) -> subprocess.Popen[str]:
    """A driver program in its own process group, with this environment's packages."""
    kept = {key: to for key, to in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    environment = {**kept, "PYSPARK_PYTHON": str(cluster.python), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, driver.__file__, *map(str, arguments)]
    with log.open("ab") as errors:
        return subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
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


@pytest.mark.soak
def test_a_killed_executor_and_a_killed_driver_lose_nothing(
    cluster: Cluster, pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    gateway.configure(name, share_record_lock_duration_ms=600_000)
    produce(gateway, name, 6000, partitions=2)
    pack(tmp_path / "site.tar.gz")
    log = tmp_path / "driver.log"
    arguments = (pipeline.url, name, name, tmp_path)

    def batches(process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        for line in process.stdout:
            if re.match(r"batch \d+", line):
                yield line.strip()
        assert process.wait() == 0, log.read_text()[-3000:]

    first = run(cluster, log, *arguments, 500, 6, cluster.master, tmp_path / "site.tar.gz")
    try:
        for line in batches(first):
            if line == "batch 2":
                (victim, *_) = cluster.executors()
                victim.kill()
            if line == "batch 6":
                wait_for((tmp_path / "out/batch=6/_SUCCESS").exists, "batch 6 is written", 240)
                break
    finally:
        kill(first)
    second = run(cluster, log, *arguments, 500, -1, cluster.master, tmp_path / "site.tar.gz")
    try:
        assert next(batches(second)) == "batch 6", "it begins with the batch that did not end"
        for _ in batches(second):
            pass
    finally:
        if second.poll() is None:
            kill(second)
    found = pipeline.out()
    assert numbers(found) == list(range(6000))
    assert {row.delivery_count for row in found.select("delivery_count").distinct().collect()} == {1}
    assert settled(gateway, name, name)
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
