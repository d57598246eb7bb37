"""A sink whose tasks and driver are killed writes each record once: in transactions, and without if the rows of a task
are the same in any order."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.http.calls import Gateway
from tests.pipeline import writing_driver
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_cluster import kill
from tests.pipeline.test_source import produce
from tests.pipeline.test_transactional_sink import _of_earlier_tests, committed, open_transactions, stored

__all__ = ["_of_earlier_tests"]


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    return (line.strip() for line in process.stdout)


def driven(directory: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start `writing_driver`."""
    words = [sys.executable, writing_driver.__file__, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (directory / "driver.log").open("ab") as errors:
        return subprocess.Popen(
            words, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )


def each_once(values: list[Any], count: int) -> None:
    ids = Counter((json.loads(value) if isinstance(value, str) else value)["id"] for value in values)
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


@pytest.mark.soak
@pytest.mark.parametrize("how", ["plain", "transactional"])
def test_a_killed_worker_and_a_killed_driver_write_each_record_once(
    pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path, how: str
) -> None:
    """The worker dies after it has written records; the driver dies within a batch.
    The stage gives other rows each time, or the same rows in another order."""
    produce(gateway, f"{name}-in", 600)
    gateway.create_topic(name, 2)
    stuck = tmp_path / "stuck"
    stuck.touch()
    arguments = (how, pipeline.url, f"{name}-in", name, tmp_path, 200)

    def batch_1_began() -> bool:
        return how == "plain" or bool(open_transactions(gateway))

    first = driven(tmp_path, *arguments)
    try:
        wait_for(lambda: stored(gateway, name) >= 10, "a task writes", 240)
        for worker in task_workers(first):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                worker.kill()
        assert "batch 0" in lines(first), "second attempts do not wait"
        wait_for(lambda: stored(gateway, name) > 200 and batch_1_began(), "a task of batch 1 writes", 240)
        if how == "transactional":
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
    if how == "transactional":
        assert stored(gateway, name) > 600, "what the killed ones wrote is there, and aborted"
    assert open_transactions(gateway) == []
