"""Services that start while Kafka is away."""

import json
import os
import subprocess
import sys

import pytest

from sharequeue.stack.process import free_port

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("module", "prefix", "more"),
    [
        ("sharequeue_gateway", "SHAREQUEUE_GATEWAY_", {"REDIS_URL": "redis://127.0.0.1:1", "COORDINATOR_URL": NOBODY}),
        ("sharequeue_coordinator", "SHAREQUEUE_COORDINATOR_", {}),
    ],
)
def test_a_service_that_starts_without_kafka_says_so_in_one_line(
    module: str, prefix: str, more: dict[str, str], database_url: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "DATABASE_URL": database_url,
        "PORT": "0",
        "CLUSTER_TOKEN": "x" * 16,
        "RECORD_LOG": "kafka",
        "SHARE_COORDINATOR_URL": NOBODY,
        **more,
        "KAFKA_BOOTSTRAP_SERVERS": address,
    }
    environment = {**os.environ, **{prefix + name: value for name, value in settings.items()}}
    command = [sys.executable, "-P", "-m", module]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (line,) = (ended.stdout + ended.stderr).splitlines()
    said = json.loads(line)
    assert said["message"] == "cannot start", line
    assert said["cause"].startswith(f"no broker of Kafka answers at {address}: start one, or correct the settings"), (
        line
    )
