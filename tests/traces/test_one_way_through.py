"""A request takes one way through the gateway: few functions, few files, not deep. Counted on one gateway, warm.

Functions of `sharequeue/http/` are shown and not counted: the HTTP edge and the calling end, the same for every
request. So is `sharequeue/distribution.py`, which takes the place of the histograms of prometheus_client: of libraries
nothing is counted.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from http.client import HTTPResponse
from operator import and_
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.traces import traced_gateway

WARM = 3
REPEATS = 12
READY_S = 120
LEVELS = ("read_uncommitted", "read_committed")
UNCOUNTED = ("sharequeue/http/", "sharequeue/distribution.py")


class Trace(NamedTuple):
    """What one request ran, and in which order."""

    calls: list[tuple[str, str, int, int]]
    clock_reads: list[str]

    @property
    def counted(self) -> list[tuple[str, str, int, int]]:
        return [call for call in self.calls if not call[0].startswith(UNCOUNTED)]

    @property
    def functions(self) -> int:
        return len(self.counted)

    @property
    def files(self) -> int:
        return len({place for place, *_ in self.counted})

    @property
    def depth(self) -> int:
        return max(depth for _, _, depth, _ in self.counted)

    def times(self, place: str, name: str) -> int:
        """How often a function ran."""
        return sum(times for *called, _, times in self.calls if called == [place, name])

    def __str__(self) -> str:
        counts = f"{self.functions} functions, {self.files} files, {self.depth} deep"
        readers = f"the clock is read by {', '.join(self.clock_reads) or 'nobody'}"
        calls = [f"{'  ' * depth}{place}: {name} × {times}" for place, name, depth, times in self.calls]
        return "\n".join([counts, readers, *calls])


class TracedGateway:
    """The gateway of a stack, traced."""

    def __init__(self, url: str, file: Path) -> None:
        self._client = httpx.Client(base_url=url, timeout=READY_S)
        self._file = file

    def post(self, path: str, body: dict) -> dict:
        """Send head and body in one piece: a body that comes later takes further functions of the edge."""
        host, content = self._client.base_url.netloc, json.dumps(body).encode()
        head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with socket.create_connection((self._client.base_url.host, self._client.base_url.port), READY_S) as connection:
            connection.sendall(head % (path.encode(), host, len(content)) + content)
            answer = HTTPResponse(connection)
            answer.begin()
            text = answer.read()
        assert answer.status == 200, text
        answered: dict = json.loads(text)
        return answered

    def configure(self, group: str, level: str) -> None:
        config = {"config": {"share.isolation.level": level}}
        answer = self._client.patch(f"/v1/share-groups/{group}/config", json=config)
        assert answer.status_code == 200, answer.text

    def produce(self, topic: str) -> dict:
        return self.post(f"/v1/topics/{topic}/records", {"records": [{"value": n} for n in range(3)]})

    def fetch(self, group: str, topic: str) -> dict:
        body = {"topics": [topic], "member_id": "m", "max_wait_ms": 0, "max_records": 3}
        answer = self.post(f"/v1/share-groups/{group}/fetch", body)
        assert [len(batch["records"]) for batch in answer["batches"]] == [3]
        return answer

    def acknowledge(self, group: str, fetched: dict, acknowledge_type: str) -> None:
        acknowledgements = [{**batch, "type": acknowledge_type} for batch in fetched["batches"]]
        for acknowledgement in acknowledgements:
            del acknowledgement["records"]
        body = {"member_id": "m", "acknowledgements": acknowledgements}
        assert self.post(f"/v1/share-groups/{group}/acknowledge", body)["failed_count"] == 0

    def common(self, path: str, *, after: int = WARM, every: int = 1) -> Trace:
        """What all requests to a path ran, each `every`-th one `after` the first ones: the gateway's own loops run in
        some of their traces alone."""
        first, *others = traces = self.traces(path)[after::every]
        calls = [call for call in first.calls if all(trace.times(*call[:2]) for trace in others)]
        depths = [
            min(depth for trace in traces for *at, depth, _ in trace.calls if at == [*call[:2]]) for call in calls
        ]
        reads = reduce(and_, (Counter(trace.clock_reads) for trace in traces))
        merged = [(place, name, depth, n) for (place, name, _, n), depth in zip(calls, depths, strict=True)]
        return Trace(merged, list(reads.elements()))

    def traces(self, path: str) -> list[Trace]:
        """The traces of the requests to a path so far, in their order."""
        self._client.get("/livez")  # ends the last trace
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [
            Trace([*map(tuple, line["calls"])], line["clock_reads"])
            for line in lines
            if line["request"] == f"POST {path}"
        ]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[TracedGateway]:
    """The stack's gateway, run under the tracer."""
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
        yield TracedGateway(service.url, folder / "traces")
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def traces(gateway: TracedGateway) -> dict[str, Trace]:
    """Traces of requests. One group accepts at once, another one at the second delivery."""
    for _ in range(WARM + REPEATS):
        gateway.produce("orders")
        gateway.acknowledge("billing", gateway.fetch("billing", "orders"), "accept")
        gateway.acknowledge("retries", gateway.fetch("retries", "orders"), "release")
        gateway.acknowledge("retries", gateway.fetch("retries", "orders"), "accept")
    return {
        "produce": gateway.common("/v1/topics/orders/records"),
        "fetch": gateway.common("/v1/share-groups/billing/fetch"),
        "acknowledge": gateway.common("/v1/share-groups/billing/acknowledge"),
        "release": gateway.common("/v1/share-groups/retries/acknowledge", after=2 * WARM, every=2),
    }


@pytest.mark.parametrize(
    ("request_name", "functions", "depth", "files"),
    [("produce", 30, 7, 15), ("fetch", 56, 12, 15), ("acknowledge", 53, 10, 14)],
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


def test_a_read_committed_group_without_transactions_costs_no_call_more(gateway: TracedGateway) -> None:
    """Neither a function nor a statement: a statement is several functions. The first of two fetches leaves records.

    The gateway's own loops run in some traces. So a call is one more if each trace has it more often than any trace of
    the other level.
    """
    found: dict[str, dict[str, list[Trace]]] = {}
    for level in LEVELS:
        gateway.configure(level, level)
    for _ in range(WARM + REPEATS):
        for level in LEVELS:
            gateway.produce(level)
            gateway.produce(level)
            for _ in range(2):
                gateway.acknowledge(level, gateway.fetch(level, level), "accept")
    for level in LEVELS:
        produces = gateway.traces(f"/v1/topics/{level}/records")[2 * WARM :]
        fetches = gateway.traces(f"/v1/share-groups/{level}/fetch")[2 * WARM :]
        acknowledges = gateway.traces(f"/v1/share-groups/{level}/acknowledge")[2 * WARM :]
        found[level] = {
            "produce": produces[::2],
            "produce behind a record": produces[1::2],
            "fetch that leaves records": fetches[::2],
            "fetch of the last records": fetches[1::2],
            "acknowledge": acknowledges[::2],
            "acknowledge of the last records": acknowledges[1::2],
        }
    for what, committed in found["read_committed"].items():
        uncommitted = found["read_uncommitted"][what]
        assert len(committed) == len(uncommitted) == REPEATS
        for place, name, *_ in committed[0].calls:
            fewest = min(trace.times(place, name) for trace in committed)
            most = max(trace.times(place, name) for trace in uncommitted)
            assert fewest <= most, f"{what}: {place}: {name}"
