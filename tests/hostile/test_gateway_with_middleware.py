"""A real gateway with middleware: it sees every call, and every call works behind it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.protocol import apis
from sharequeue.stack.stack import Stack
from tests.event_source import EventSource
from tests.hostile import gateway_with_middleware
from tests.http.calls import ranges, wait_until

CALLS = [api for api in vars(apis).values() if isinstance(api, apis.Api) and api.tag != "Internal"]


@pytest.fixture
def gateway(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the stack's gateway, which runs with middleware while the test does."""
    service = stack.service("gateway")
    service.stop()
    environment = {**os.environ, **service.environment}
    command = [sys.executable, gateway_with_middleware.__file__, request.param]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    port = int(service.url.rpartition(":")[2])

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens)
        with httpx.Client(base_url=service.url, timeout=40) as client:
            yield client
    finally:
        process.terminate()
        process.wait()
        service.start()


@pytest.mark.parametrize("gateway", ["refuse"], indirect=True)
def test_middleware_that_refuses_refuses_every_call(gateway: httpx.Client) -> None:
    for api in CALLS:
        path = apis.path_of(api, topic="t", group="g", partition=0, member_id="m", topic_id="i", transaction="t")
        assert gateway.request(api.method, path).status_code == 403, api.operation_id


@pytest.mark.parametrize("gateway", ["pass"], indirect=True)
def test_st_023_a_stream_works_behind_middleware(gateway: httpx.Client, name: str) -> None:
    """Its records, and the end of its connection, which the gateway must notice."""
    wait_until(lambda: gateway.get("/readyz").status_code == 200)
    records = {"records": [{"value": number} for number in range(3)]}
    assert gateway.post(f"/v1/topics/{name}/records", json=records).status_code == 200
    source = EventSource(str(gateway.base_url), name, name, resume_ms=100)
    assert source.headers["seen"] == f"/v1/share-groups/{name}/stream"
    assert ranges(source.next().data) == ["0-2×1"]
    source.cut()
    fetch = {"topics": [name], "member_id": "m2", "max_wait_ms": 20_000}
    assert ranges(gateway.post(f"/v1/share-groups/{name}/fetch", json=fetch).json()) == ["0-2×2"]
