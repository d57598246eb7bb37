"""A request takes one way through the gateway: few functions, few files, not deep. Counted on one gateway, warm.

Functions of `sharequeue/http/` are shown and not counted: the HTTP edge and the calling end, the same for every
request. So is `sharequeue/distribution.py`, which takes the place of the histograms of prometheus_client: of libraries
nothing is counted.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.traces import traced_gateway

WARM = 3
REPEATS = 12
READY_S = 30
UNCOUNTED = ("sharequeue/http/", "sharequeue/distribution.py")


class Trace(NamedTuple):
    """What one request ran, and in which order."""

    calls: list[tuple[str, str, int]]
    clock_reads: list[str]

    @property
    def counted(self) -> list[tuple[str, str, int]]:
        return [call for call in self.calls if not call[0].startswith(UNCOUNTED)]

    @property
    def functions(self) -> int:
        return len(self.counted)

    @property
    def files(self) -> int:
        return len({place for place, _, _ in self.counted})

    @property
    def depth(self) -> int:
        return max(depth for _, _, depth in self.counted)

    def __str__(self) -> str:
        counts = f"{self.functions} functions, {self.files} files, {self.depth} deep"
        readers = f"the clock is read by {', '.join(self.clock_reads) or 'nobody'}"
        return "\n".join([counts, readers, *(f"{'  ' * depth}{place}: {name}" for place, name, depth in self.calls)])


class TracedGateway:
    """The gateway of a stack, traced."""

    def __init__(self, url: str, file: Path) -> None:
        self._client = httpx.Client(base_url=url, timeout=READY_S)
        self._file = file

    def post(self, path: str, body: dict) -> dict:
        answer = self._client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        answered: dict = answer.json()
        return answered

    def produce(self, topic: str) -> dict:
        return self.post(f"/v1/topics/{topic}/records", {"records": [{"value": n} for n in range(3)]})

    def fetch(self, group: str, topic: str) -> dict:
        answer = self.post(f"/v1/share-groups/{group}/fetch", {"topics": [topic], "member_id": "m", "max_wait_ms": 0})
        assert [len(batch["records"]) for batch in answer["batches"]] == [3]
        return answer

    def acknowledge(self, group: str, fetched: dict, acknowledge_type: str) -> None:
        acknowledgements = [{**batch, "type": acknowledge_type} for batch in fetched["batches"]]
        for acknowledgement in acknowledgements:
            del acknowledgement["records"]
        body = {"member_id": "m", "acknowledgements": acknowledgements}
        assert self.post(f"/v1/share-groups/{group}/acknowledge", body)["failed_count"] == 0

    def shortest(self, path: str, *, after: int = WARM, every: int = 1) -> Trace:
        """The shortest trace of the requests to a path so far, of every `every`-th one `after` the first ones."""
        self._client.get("/livez")  # ends the last trace
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        traces = [
            Trace([(place, name, depth) for place, name, depth in line["calls"]], line["clock_reads"])
            for line in lines
            if line["request"] == f"POST {path}"
        ]
        return min(traces[after::every], key=lambda trace: (trace.functions, trace.depth))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[dict[str, Trace]]:
    """Traces by the stack's gateway, run under the tracer. One group accepts at once, another one at the second
    delivery."""
    folder = tmp_path_factory.mktemp("traces")
    service = stack.service("gateway")
    service.stop()
    command = [sys.executable, traced_gateway.__file__, str(folder / "traces")]
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **service.environment}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_S
        while not service.ready():
            assert process.poll() is None, (folder / "gateway.log").read_text()
            assert time.monotonic() < deadline, "the traced gateway is not ready"
            time.sleep(0.05)
        gateway = TracedGateway(service.url, folder / "traces")
        for _ in range(WARM + REPEATS):
            gateway.produce("orders")
            gateway.acknowledge("billing", gateway.fetch("billing", "orders"), "accept")
            gateway.acknowledge("retries", gateway.fetch("retries", "orders"), "release")
            gateway.acknowledge("retries", gateway.fetch("retries", "orders"), "accept")
        yield {
            "produce": gateway.shortest("/v1/topics/orders/records"),
            "fetch": gateway.shortest("/v1/share-groups/billing/fetch"),
            "acknowledge": gateway.shortest("/v1/share-groups/billing/acknowledge"),
            "release": gateway.shortest("/v1/share-groups/retries/acknowledge", after=2 * WARM, every=2),
        }
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    ("request_name", "functions", "depth", "files"),
    [("produce", 30, 7, 16), ("fetch", 54, 12, 15), ("acknowledge", 54, 10, 14)],
)
def test_a_request_takes_one_way_through(
    traces: dict[str, Trace], request_name: str, functions: int, depth: int, files: int
) -> None:
    trace = traces[request_name]
    assert trace.functions <= functions, str(trace)
    assert trace.depth <= depth, str(trace)
    assert trace.files <= files, str(trace)


@pytest.mark.parametrize("request_name", ["produce", "fetch", "acknowledge", "release"])
def test_a_request_reads_the_clock_once(traces: dict[str, Trace], request_name: str) -> None:
    """Until the answer, all that is decided and reported about a request has one time, also behind the answers of
    PostgreSQL, Redis and the share coordinator. Stop-watches of metrics and timeouts are not this clock."""
    assert len(traces[request_name].clock_reads) == 1, str(traces[request_name])
