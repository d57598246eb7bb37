"""A gateway that was installed without the extra [arrow]: it refuses Arrow with a reason, and reads in JSON."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.protocol.apis import ARROW_STREAM
from tests.system.up_command import Up


@pytest.fixture
def http(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[httpx.Client]:
    """Calls a stack whose Python finds no pyarrow."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    stores = ("--postgres-url", database_url, "--redis-url", redis_url)
    with Up(tmp_path, tmp_path / "data", *stores, environment={"PYTHONPATH": str(tmp_path)}) as up:
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
