"""A request takes one way through its service: few functions, few files, not deep.

Counted on one gateway and one share coordinator, warm, over one connection. Everything of ours counts, the HTTP edge
and the calling end too; of libraries nothing does.
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

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.traces import traced_service

WARM = 10
REPEATS = 12
READY_S = 120
TRACED = {"share coordinator": "sharequeue_share_coordinator", "gateway": "sharequeue_gateway"}
LEVELS = ("read_uncommitted", "read_committed")


class Trace(NamedTuple):
    """What one request ran, and in which order."""

    calls: list[tuple[str, str, int, int]]
    clock_reads: list[str]
    switches: list[str]

    @property
    def files(self) -> int:
        return len({place for place, *_ in self.calls})

    @property
    def depth(self) -> int:
        return max(depth for _, _, depth, _ in self.calls)

    def times(self, place: str, name: str) -> int:
        """How often a function ran."""
        return sum(times for *called, _, times in self.calls if called == [place, name])

    def __str__(self) -> str:
        counts = f"{len(self.calls)} functions, {self.files} files, {self.depth} deep"
        readers = f"the clock is read by {', '.join(self.clock_reads) or 'nobody'}"
        calls = [f"{'  ' * depth}{place}: {name} × {times}" for place, name, depth, times in self.calls]
        return "\n".join([counts, readers, f"tasks: {', '.join(self.switches)}", *calls])


class TracedService:
    """A service of a stack, run under the tracer in its place. `service`: stopped."""

    def __init__(self, service: ServiceProcess, package: str, folder: Path) -> None:
        self._file = folder / f"{package}.traces"
        self._log = folder / f"{package}.log"
        self._service = service
        command = [sys.executable, traced_service.__file__, package, str(self._file)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **service.environment}, stdout=log, stderr=log)
        self.client = httpx.Client(base_url=service.url, timeout=READY_S)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while not self._service.ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"{self._service.name} is not ready under the tracer"
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def common(self, path: str, *, after: int = WARM, every: int = 1) -> Trace:
        """What all requests to a path ran, each `every`-th one `after` the first ones: the gateway's own loops run in
        some of their traces alone."""
        first, *others = traces = self.traces(path)[after::every]
        calls = [call for call in first.calls if all(trace.times(*call[:2]) for trace in others)]
        depths = [
            min(depth for trace in traces for *at, depth, _ in trace.calls if at == [*call[:2]]) for call in calls
        ]
        reads, switches = (
            list(reduce(and_, map(Counter, each)).elements())
            for each in zip(*[(trace.clock_reads, trace.switches) for trace in traces], strict=True)
        )
        merged = [(place, name, depth, n) for (place, name, _, n), depth in zip(calls, depths, strict=True)]
        return Trace(merged, reads, switches)

    def traces(self, path: str) -> list[Trace]:
        """The traces of the requests to a path so far, in their order."""
        self.client.get("/livez")  # ends the last trace
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [
            Trace([*map(tuple, line["calls"])], line["clock_reads"], line["switches"])
            for line in lines
            if line["request"] == f"POST {path}"
        ]


class Calls:
    """Calls a gateway over one connection."""

    def __init__(self, gateway: TracedService) -> None:
        self._client = gateway.client
        self._connection = socket.create_connection((self._client.base_url.host, self._client.base_url.port), READY_S)

    def close(self) -> None:
        self._connection.close()

    def post(self, path: str, body: dict) -> dict:
        """Send head and body in one piece: a body that comes later takes further functions of the edge."""
        host, content = self._client.base_url.netloc, json.dumps(body).encode()
        head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._connection.sendall(head % (path.encode(), host, len(content)) + content)
        answer = HTTPResponse(self._connection)
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


class Traced(NamedTuple):
    """The traced services of a stack, and the calls to its gateway."""

    gateway: TracedService
    share_coordinator: TracedService
    calls: Calls


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Traced]:
    folder = tmp_path_factory.mktemp("traces")
    running: list[TracedService] = []
    try:
        for name, package in TRACED.items():
            service = stack.service(name)
            service.stop()
            running.append(TracedService(service, package, folder))
            running[-1].wait_until_ready()
        share_coordinator, gateway = running
        calls = Calls(gateway)
        yield Traced(gateway, share_coordinator, calls)
        calls.close()
    finally:
        for service in reversed(running):
            service.stop()


@pytest.fixture(scope="module")
def traces(traced: Traced) -> dict[str, Trace]:
    """Traces of requests. One group accepts at once, another one at the second delivery."""
    calls, gateway = traced.calls, traced.gateway
    for _ in range(WARM + REPEATS):
        calls.produce("orders")
        calls.acknowledge("billing", calls.fetch("billing", "orders"), "accept")
        calls.acknowledge("retries", calls.fetch("retries", "orders"), "release")
        calls.acknowledge("retries", calls.fetch("retries", "orders"), "accept")
    return {
        "produce": gateway.common("/v1/topics/orders/records"),
        "fetch": gateway.common("/v1/share-groups/billing/fetch"),
        "acknowledge": gateway.common("/v1/share-groups/billing/acknowledge"),
        "release": gateway.common("/v1/share-groups/retries/acknowledge", after=2 * WARM, every=2),
        "state write": traced.share_coordinator.common("/v1/share-state/write"),
    }


def test_an_append_without_a_transaction_does_not_cross_their_room(traces: dict[str, Trace]) -> None:
    places = {place for place, *_ in traces["produce"].calls}
    assert "sharequeue_gateway/record_log/appending.py" in places
    assert not [place for place in places if "record_log/transactions" in place]


@pytest.mark.parametrize(
    ("request_name", "functions", "depth", "files"),
    [("produce", 50, 13, 16), ("fetch", 80, 14, 20), ("acknowledge", 85, 13, 20), ("state write", 55, 13, 18)],
)
def test_a_request_takes_one_way_through(
    traces: dict[str, Trace], request_name: str, functions: int, depth: int, files: int
) -> None:
    trace = traces[request_name]
    assert len(trace.calls) <= functions, str(trace)
    assert trace.depth <= depth, str(trace)
    assert trace.files <= files, str(trace)


@pytest.mark.parametrize(
    ("request_name", "switches"), [("produce", 2), ("fetch", 2), ("acknowledge", 2), ("state write", 2)]
)
def test_a_request_alone_stays_in_its_task(traces: dict[str, Trace], request_name: str, switches: int) -> None:
    """It is switched to when it has come in, and when the store or the other service has answered: with nothing else
    under way, it sends its own commit, locks or state write."""
    assert len(traces[request_name].switches) <= switches, str(traces[request_name])


@pytest.mark.parametrize(("request_name", "reads"), [("produce", 0), ("fetch", 1), ("acknowledge", 1), ("release", 1)])
def test_a_request_reads_the_clock_once(traces: dict[str, Trace], request_name: str, reads: int) -> None:
    """Until the answer, all that is decided and reported about a request has one time, also behind the answers of
    PostgreSQL, Redis and the share coordinator. Stop-watches of metrics and timeouts are not this clock."""
    assert len(traces[request_name].clock_reads) == reads, str(traces[request_name])


def test_a_read_committed_group_without_transactions_costs_no_call_more(traced: Traced) -> None:
    """Neither a function nor a statement: a statement is several functions. The first of two fetches leaves records.

    The gateway's own loops run in some traces. So a call is one more if each trace has it more often than any trace of
    the other level.
    """
    calls, gateway = traced.calls, traced.gateway
    found: dict[str, dict[str, list[Trace]]] = {}
    for level in LEVELS:
        calls.configure(level, level)
    for _ in range(WARM + REPEATS):
        for level in LEVELS:
            calls.produce(level)
            calls.produce(level)
            for _ in range(2):
                calls.acknowledge(level, calls.fetch(level, level), "accept")
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


def ours(traces: list[Trace]) -> int:
    """How often functions of ours ran, each as in the trace with its fewest: the gateway's own loops run in others."""
    called = {(place, name) for place, name, *_ in traces[0].calls}
    return sum(min(trace.times(*each) for trace in traces) for each in called)


def test_a_fetch_of_a_wide_topic_costs_what_one_of_a_single_partition_costs(traced: Traced) -> None:
    """Without a share session, in one, and without records. 600 share-partitions are loaded by two fetches."""
    calls, gateway = traced.calls, traced.gateway
    counts: dict[int, list[int]] = {}
    for partitions in (1, 600):
        topic = f"wide-{partitions}"
        gateway.client.post("/v1/topics", json={"name": topic, "partitions": partitions}).raise_for_status()
        idle, session = f"idle-{partitions}", f"session-{partitions}"
        body = {"topics": [topic], "member_id": "m", "max_wait_ms": 0}
        for group in (topic, idle, session):
            for _ in range(4):
                calls.post(f"/v1/share-groups/{group}/fetch", body)
        calls.post(f"/v1/share-groups/{session}/fetch", {**body, "share_session_epoch": 0})
        for turn in range(1, WARM + REPEATS):
            calls.post(f"/v1/share-groups/{idle}/fetch", body)
            calls.post(f"/v1/topics/{topic}/records", {"records": [{"value": n, "partition": 0} for n in range(3)]})
            calls.acknowledge(topic, calls.fetch(topic, topic), "accept")
            in_session = {"member_id": "m", "max_wait_ms": 0, "share_session_epoch": turn}
            calls.acknowledge(session, calls.post(f"/v1/share-groups/{session}/fetch", in_session), "accept")
        counts[partitions] = [
            ours(gateway.traces(f"/v1/share-groups/{group}/fetch")[-REPEATS:]) for group in (topic, session, idle)
        ]
    for wide, single in zip(counts[600], counts[1], strict=True):
        assert wide <= single + 10, counts
