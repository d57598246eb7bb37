"""The three services in one process, as `sharequeue up` runs them: each its own service, and one fate for all."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import psutil
import pytest

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, wait_until

NAMES = ("gateway", "group coordinator", "share coordinator")
OWN = {
    "gateway": "sharequeue_led_share_partitions",
    "group coordinator": "sharequeue_coordinator_topics",
    "share coordinator": "sharequeue_share_coordinator_writes_total",
}
"""A metric of each."""

PROGRAM = """
import asyncio, os, signal
from sharequeue_http.application.app import App
from sharequeue_http.calling.caller import Client
from sharequeue_http.log import configure
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.operations import Operations
from sharequeue.service.service import Program, Service, run
from sharequeue.service.settings import ServiceSettings

def part(name, host="127.0.0.1"):
    async def loop():
        if LOOPS == name:
            return
        if LOOPS == "signal" and name == "three":
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)
    async def ready(strict):
        return Readiness(status="ready", dependencies={})
    async def stop():
        for other, port in PORTS.items():
            client = Client(f"http://127.0.0.1:{port}")
            try:
                await client.call(apis.LIVEZ, retry=False)
                print(name, "stops,", other, "answers", flush=True)
            except ApiError as error:
                print(name, "stops,", other, error.error.code, error.definite, flush=True)
            await client.close()
    async def close():
        print(name, "closes", flush=True)
    async def prepare(settings):
        if FAILS == name:
            raise ValueError("no")
        app = App(name, "")
        return Service(app, f"http://127.0.0.1:{PORTS[name]}", (loop,), Operations(ready), stop=stop, close=close)
    settings = ServiceSettings(cluster_token="x" * 16, port=PORTS[name], host=host)
    return Program(name, ServiceSettings, "", prepare), settings

configure({"one": "info", "two": "warning", "three": "info"})
raise SystemExit(run(part("one"), part("two"), part("three", HOST)))
"""
"""Three services. Some of them do what LOOPS and FAILS say; each asks all of them when it stops."""


@pytest.fixture(scope="module")
def one_process() -> bool:
    return True


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {f"SHAREQUEUE_{kind}_IDLE_TIMEOUT_MS": "100" for kind in ("COORDINATOR", "SHARE_COORDINATOR")}


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    with temporary_stack(tmp_path, postgres_url=database_url, redis_url=redis_url, one_process=True) as stack:
        yield stack


def lines(stack: Stack) -> list[dict[str, str]]:
    (process,) = stack.services
    return [json.loads(line) for line in process.log_file.read_text().splitlines()]


def use(gateway: Gateway, name: str) -> None:
    gateway.produce(name, "one", "two")
    assert gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 1, "accept") == "applied"


def test_one_process_listens_on_three_ports_and_each_is_ready(stack: Stack) -> None:
    (process,) = stack.services
    assert tuple(sorted(process.urls)) == NAMES
    listening = [each.laddr.port for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
    assert sorted(f"http://127.0.0.1:{port}" for port in listening) == sorted(process.urls.values())
    for url in process.urls.values():
        readiness = httpx.get(f"{url}/readyz", params={"strict": "true"}, timeout=60).json()
        assert (readiness["status"], {*readiness["dependencies"].values()}) == ("ready", {"ok"})


def test_services_call_each_other_without_a_connection(stack: Stack, own_gateway: Gateway, name: str) -> None:
    """Those that they needed while they started are closed soon."""
    (process,) = stack.services
    ours = {int(url.rpartition(":")[2]) for url in process.urls.values()}

    def connections() -> list[int]:
        found = psutil.Process(process.pid).net_connections()
        assert any(each.raddr for each in found), "those to the stores are seen"
        return [each.raddr.port for each in found if each.raddr and each.raddr.port in ours]

    wait_until(lambda: not connections())
    use(own_gateway, name)
    assert connections() == []


def test_each_service_has_metrics_of_its_own(stack: Stack, own_gateway: Gateway, name: str) -> None:
    """Its families, the calls that it answered, its refusals; and those of the process on each port."""
    before = {service: Gateway(httpx.Client(base_url=stack.addresses[service])).metrics() for service in NAMES}
    use(own_gateway, name)
    assert own_gateway.http.get(f"/v1/topics/{name}-none").status_code == 404
    httpx.get(f"{stack.addresses['share coordinator']}/v1/no-such-path", timeout=60)
    httpx.get(f"{stack.addresses['group coordinator']}/v1/topics", timeout=60)
    calls: dict[str, Counter[str]] = {}
    for service in NAMES:
        metrics = Gateway(httpx.Client(base_url=stack.addresses[service])).metrics()
        assert [other for other in NAMES if OWN[other] in metrics] == [service]
        assert ("sharequeue_owned_shards" in metrics) == (service != "gateway")
        assert metrics.keys() >= {"process_resident_memory_bytes", "sharequeue_postgres_starts_total"}
        calls[service] = Counter(
            {
                sample.partition('operation="')[2].partition('"')[0]: int(value - before[service].get(sample, 0))
                for sample, value in metrics.items()
                if sample.startswith("sharequeue_http_request_seconds_count")
            }
        )
        refused = 'sharequeue_http_refused_total{status="401"}'
        assert metrics[refused] - before[service][refused] == (service == "group coordinator")
    assert calls["gateway"]["produceRecords"] == calls["gateway"]["acknowledgeRecords"] == 1
    assert calls["share coordinator"]["writeShareGroupStates"] >= 1
    for service, others in (("gateway", "writeShareGroupStates"), ("share coordinator", "produceRecords")):
        assert others not in calls[service]


def test_lines_of_the_log_name_their_service(stack: Stack, own_gateway: Gateway, name: str) -> None:
    use(own_gateway, name)
    found = lines(stack)
    assert Counter(line["service"] for line in found if line["message"] == "listening") == Counter(NAMES)
    assert {line["service"] for line in found if line["logger"].startswith("sharequeue_gateway")} == {"gateway"}
    owners = {(line["service"], line["owner"]) for line in found if line["message"] == "took over"}
    assert owners == {("group coordinator", "coordinator-0"), ("share coordinator", "share-coordinator-0")}


def test_services_stop_in_order_and_a_start_goes_on(own_stack: Stack, name: str) -> None:
    (process,) = own_stack.services
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        gateway = Gateway(http)
        gateway.produce(name, "one", "two")
        assert gateway.acquire(name, name, member="m1")
        process.stop()
        assert process.process is not None
        assert process.process.returncode == 0
        assert [line["service"] for line in lines(own_stack) if line["message"] == "stopping"] == list(NAMES)
        process.start()
        wait_until(process.ready)
        assert gateway.settle(name, name, 0, 1, "accept", member="m1") == "applied"


def test_a_service_that_dies_ends_all_of_them(own_stack: Stack, database_url: str, name: str) -> None:
    """Another process takes the share coordinator's name; `up` starts the process again."""

    async def take_the_name() -> None:
        connection = await asyncpg.connect(database_url)
        await connection.execute("UPDATE share_state.instances SET incarnation = incarnation || '-another'")
        await connection.close()

    (process,) = own_stack.services
    asyncio.run(take_the_name())
    wait_until(lambda: not process.running())
    assert process.process is not None
    assert process.process.returncode == 1
    (line,) = [line for line in lines(own_stack) if "died of a fault of its own" in line["message"]]
    assert line["service"] == "share coordinator"
    assert "another process is called share-coordinator-0 now" in line["message"]

    def again() -> bool:
        own_stack.keep_up()
        return process.ready()

    wait_until(again)
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        use(Gateway(http), name)


class Ports(dict[str, int]):
    """Reserves its ports as long as it exists."""


def ended(*around: str, **values: object) -> "subprocess.CompletedProcess[str]":
    """Run PROGRAM with these values until it ends. `around`: a command that runs it."""
    ports = Ports()
    ports |= {name: free_port(ports) for name in ("one", "two", "three")}
    given = {"LOOPS": "", "FAILS": "", "HOST": "127.0.0.1", "PORTS": {**ports}, **values}
    program = "\n".join(f"{name} = {value!r}" for name, value in given.items())
    command = [*around, sys.executable, "-c", program + PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_open_files_of_the_process_are_for_the_clients() -> None:
    """256 are kept for each service's own files, and a service that takes no clients gets no more connections."""
    done = ended("sh", "-c", 'ulimit -Sn 256; ulimit -Hn 2000; exec "$@"', "sh", LOOPS="signal")
    lines = [line for line in map(json.loads, done.stderr.splitlines()) if "open_files" in line]
    assert [(line["service"], line["open_files"], line["connections"]) for line in lines] == [("three", 2000, 1232)]


@pytest.mark.parametrize("dies", ["one", "two", "three"])
def test_a_loop_that_ends_is_logged_by_its_service_and_closes_the_others(dies: str) -> None:
    done = ended(LOOPS=dies)
    assert done.returncode == 1
    (line,) = [line for line in map(json.loads, done.stderr.splitlines()) if "died" in line["message"]]
    assert line["service"] == dies
    assert "ended; it must run as long as the service" in line["message"]
    assert sorted(done.stdout.splitlines()) == ["one closes", "three closes", "two closes"], (
        "none of them stops cleanly"
    )


@pytest.mark.parametrize(
    ("values", "service", "message"),
    [
        ({"FAILS": "two"}, "two", "the service died of a fault of its own: ValueError: no"),
        ({"HOST": "192.0.2.1"}, "three", "cannot start"),
    ],
    ids=["not prepared", "no such address"],
)
def test_a_service_that_cannot_start_ends_the_others(values: dict[str, str], service: str, message: str) -> None:
    done = ended(**values)
    assert done.returncode == 1
    errors = [line for line in map(json.loads, done.stderr.splitlines()) if line["level"] == "error"]
    assert [(line["service"], line["message"]) for line in errors] == [(service, message)]


def test_each_service_has_a_log_level_of_its_own() -> None:
    found = [json.loads(line) for line in ended(LOOPS="three").stderr.splitlines()]
    listening = {line["service"] for line in found if line["message"] == "listening"}
    assert listening == {"one", "three"}
