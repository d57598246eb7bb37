"""A second stack on one database, and a second service with one node id: the later one is refused and names the first.
If the first one is dead, the later one takes over."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import ServiceProcess, Stack, StackError, temporary_stack
from tests.http.calls import Gateway, wait_until
from tests.http.database import sql

PREFIXES = {"gateway": "GATEWAY", "group coordinator": "COORDINATOR", "share coordinator": "SHARE_COORDINATOR"}


def twin_of(service: ServiceProcess, log_file: Path) -> ServiceProcess:
    """The same service, with the same node id, at another port."""
    port = free_port(service)
    variable = f"SHAREQUEUE_{PREFIXES[service.name]}_PORT"
    environment = {**service.environment, variable: str(port)}
    return ServiceProcess(
        service.name, service._module, {service.name: f"http://127.0.0.1:{port}"}, environment, log_file
    )


def causes(log_file: Path) -> list[str]:
    """Why a service could not start."""
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    return [line["cause"] for line in lines if line["message"] == "cannot start"]


def test_a_second_stack_on_the_database_of_another_one_is_refused(
    stack: Stack, database: str, tmp_path: Path, own_gateway: Gateway, name: str
) -> None:
    own_gateway.produce_batches(name, 2)
    second = Stack(tmp_path, postgres_url=database)
    try:
        with pytest.raises(StackError, match=r"database belongs to another stack, whose '(share-)?coordinator-0' at"):
            second.start()
    finally:
        second.stop()
    stack.check()
    assert own_gateway.acquire(name, name) == ["0-1×1"]


@pytest.mark.soak
def test_a_copy_of_a_database_takes_nothing_from_its_original_in_one_redis(
    tmp_path: Path, new_database: Callable[[], str], redis_url: str
) -> None:
    original = new_database()
    with (
        temporary_stack(tmp_path / "first", postgres_url=original, redis_url=redis_url) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as http,
    ):
        Gateway(http).produce_batches("orders", 4)
        assert Gateway(http).acquire("g", "orders", max_records=1) == ["0-0×1"]
    server, _, name = original.rpartition("/")
    sql(f"{server}/sharequeue", f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    copied = {"postgres_url": f"{original}_copy", "redis_url": redis_url}
    with (
        temporary_stack(tmp_path / "copy", **copied) as copy,
        temporary_stack(tmp_path / "first", postgres_url=original, redis_url=redis_url) as stack,
        httpx.Client(base_url=copy.url, timeout=60) as http_of_copy,
        httpx.Client(base_url=stack.url, timeout=60) as http,
    ):
        assert Gateway(http_of_copy).acquire("g", "orders", member="staging") == ["0-3×1"]
        assert Gateway(http).acquire("g", "orders") == ["1-3×1"]
        assert Gateway(http).settle("g", "orders", 0, 0, "accept") == "applied", "its lock outlived the restart"


@pytest.mark.parametrize("kind", PREFIXES)
def test_of_two_services_with_one_node_id_the_later_one_is_refused(stack: Stack, tmp_path: Path, kind: str) -> None:
    first = stack.service(kind)
    later = twin_of(first, tmp_path / "log")
    later.start()
    try:
        assert later.process is not None
        assert later.process.wait(60) == 1
        (cause,) = causes(tmp_path / "log")
        assert f"runs at {first.url}, and renews its lease" in cause
        assert "another node id" in cause
    finally:
        later.stop()
    stack.check()


def test_after_a_kill_a_service_starts_at_another_port(tmp_path: Path, database_url: str, redis_url: str) -> None:
    with temporary_stack(tmp_path / "stack", postgres_url=database_url, redis_url=redis_url) as stack:
        first = stack.service("gateway")
        later = twin_of(first, tmp_path / "log")
        first.kill()
        later.start()
        try:
            wait_until(lambda: later.ready() or not later.running())
            assert later.running(), (tmp_path / "log").read_text()
        finally:
            later.stop()
