"""A stack that was installed without the extras [arrow] and [kafka]: it starts, and says what it lacks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from sharequeue.protocol.apis import ARROW_STREAM
from tests.system.up_command import Up

MISSING = ("pyarrow", "aiokafka", "cramjam")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A Python that finds none of these libraries."""
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in MISSING)]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": str(tmp_path)}


@pytest.fixture
def http(tmp_path: Path, environment: dict[str, str], database_url: str, redis_url: str) -> Iterator[httpx.Client]:
    stores = ("--postgres-url", database_url, "--redis-url", redis_url)
    with Up(tmp_path, tmp_path / "data", *stores, environment=environment) as up:
        with httpx.Client(base_url=f"{up.ready()}/v1/topics/t", timeout=60) as http:
            yield http
        assert up.end(signal.SIGTERM) == 0


def test_arrow_is_refused_and_records_are_read_in_json(http: httpx.Client) -> None:
    refused = http.post("/records/arrow", content=b"x", headers={"Content-Type": ARROW_STREAM})
    assert (refused.status_code, refused.json()["code"]) == (415, "INVALID_REQUEST")
    assert "with the extra [arrow]" in refused.json()["detail"]
    http.post("/records", json={"records": [{"value": 1}]}).raise_for_status()
    read = http.get("/partitions/0/records", headers={"Accept": ARROW_STREAM})
    assert [record["value"] for record in read.json()["records"]] == [1]


def test_records_in_kafka_are_refused_with_the_extra_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    kafka = ("--record-log", "kafka", "--kafka", "127.0.0.1:1")
    with Up(tmp_path, tmp_path / "data", *kafka, environment=environment) as up:
        assert up.process.wait(60) == 1
    assert up.stderr == "sharequeue up: aiokafka is not installed: install sharequeue with its extra [kafka]\n"


@pytest.mark.parametrize(
    ("service", "others"),
    [
        ("gateway", ("REDIS_URL", "COORDINATOR_URL", "SHARE_COORDINATOR_URL")),
        ("coordinator", ("SHARE_COORDINATOR_URL",)),
    ],
    ids=["gateway", "coordinator"],
)
def test_a_service_whose_records_are_in_kafka_names_the_extra_to_install(
    service: str, others: Sequence[str], environment: dict[str, str]
) -> None:
    prefix = f"SHAREQUEUE_{service.upper()}_"
    settings = {
        f"{prefix}DATABASE_URL": "postgresql://127.0.0.1:1/none",
        f"{prefix}CLUSTER_TOKEN": "a token that nobody can guess",
        f"{prefix}RECORD_LOG": "kafka",
        f"{prefix}KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        **{f"{prefix}{other}": "http://127.0.0.1:1" for other in others},
    }
    command = [sys.executable, "-m", f"sharequeue_{service}"]
    environ = {**os.environ, **environment, **settings}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "aiokafka is not installed: install sharequeue with its extra [kafka]" in done.stderr
