"""The speed of a job grows with its tasks, even on one partition."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.http.calls import Gateway
from tests.pipeline import rates
from tests.pipeline.conftest import Pipeline

RECORDS = 20_000


@pytest.mark.soak
def test_eight_tasks_on_one_partition_are_faster_than_one(
    pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """The job waits 1 ms per record. Eight tasks must be at least three times as fast as one."""
    gateway.create_topic(name)
    gateway.create_topic(f"{name}-warm")
    for reader in ("warm", "source", "wait8", "wait1"):
        gateway.configure(f"{name}-{reader}", share_partition_max_record_locks=RECORDS)
    arguments = [pipeline.url, name, name, str(tmp_path), str(RECORDS)]
    done = subprocess.run(
        [sys.executable, rates.__file__, *arguments], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(measured, indent=1))
    took = measured["by_parallelism"]
    assert took["1"] / took["8"] >= 3
