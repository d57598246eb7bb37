"""A listener of its own for operations: metrics and readiness there without a key, and little at the port of calls."""

import json
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import KINDS, ServiceProcess, Stack, temporary_stack
from tests.conftest import NewDatabase
from tests.http.access import SETTINGS
from tests.http.calls import Gateway, good, problem, wait_until

APART = {f"SHAREQUEUE_{kind.prefix}_OPERATIONS_PORT": "0" for kind in KINDS.values()}
OWN = {
    "gateway": "sharequeue_waiting_fetches",
    "group coordinator": "sharequeue_coordinator_topics",
    "share coordinator": "sharequeue_owned_shards",
}


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS | APART


def operations(process: ServiceProcess, service: str = "gateway") -> httpx.Client:
    """Calls the listener of operations. Its port is a free one: the log says which."""
    lines = [json.loads(line) for line in process.log_file.read_text().splitlines()]
    port = next(
        line["operations_port"] for line in lines if (line["message"], line["service"]) == ("listening", service)
    )
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)


@pytest.mark.parametrize("service", KINDS)
def test_metrics_and_details_are_at_a_port_of_their_own(stack: Stack, data_dir: Path, service: str) -> None:
    with operations(stack.service(service), service) as there, httpx.Client(base_url=stack.addresses[service]) as here:
        assert there.get("/livez").status_code == here.get("/livez").status_code == 200
        assert OWN[service] in Gateway(there).metrics()
        problem(here.get("/metrics"), 404, "UNKNOWN_PATH", 42)
        told = good(there.get("/readyz", params={"strict": "true"}))
        assert told["dependencies"]["postgresql"] == "ok"
        bare = {"status": "ready", "dependencies": {}}
        for headers in ({}, {"Authorization": "Bearer é".encode()}, {"Authorization": "Bearer x"}):
            assert good(here.get("/readyz", headers=headers)) == bare
        token = (data_dir / "cluster.token").read_text()
        details = good(here.get("/readyz", headers={"Authorization": f"Bearer {token}"}))
        assert details["dependencies"].keys() == told["dependencies"].keys(), "other services learn them"


@pytest.mark.parametrize("service", KINDS)
def test_nothing_else_is_at_the_port_of_operations(stack: Stack, service: str) -> None:
    with operations(stack.service(service), service) as there:
        for path in (
            "/v1/topics",
            "/v1/keys",
            "/v1/metadata/access",
            "/v1/shards",
            "/docs",
            "/ui",
            "/openapi.json",
            "/",
        ):
            problem(there.get(path), 404, "UNKNOWN_PATH", 42)
        assert there.post("/metrics").status_code == 405


def test_a_page_of_another_site_reads_no_metrics_of_a_gateway(stack: Stack) -> None:
    with operations(stack.service("gateway")) as there:
        assert there.get("/metrics", headers={"Host": "rebound.example"}).status_code == 421


def test_a_stopping_gateway_is_not_ready_at_both_ports_while_it_serves(
    tmp_path: Path, new_database: NewDatabase, redis_url: str
) -> None:
    settings = APART | {"SHAREQUEUE_GATEWAY_DRAIN_MS": "8000"}
    with temporary_stack(
        tmp_path, gateways=2, postgres_url=new_database(), redis_url=redis_url, settings=settings
    ) as stack:
        process = next(each for each in stack.services if each.url == stack.urls[1])
        with operations(process) as there, httpx.Client(base_url=process.url, timeout=60) as here:
            process.terminate()
            wait_until(lambda: there.get("/readyz").status_code == 503)
            assert here.get("/readyz").status_code == 503
            assert here.get("/v1/topics").status_code == 200
            assert good(httpx.get(f"{stack.url}/readyz"))["status"] == "ready"
        process.kill()
