"""After a switch-over the old server is up and read-only, and connections made before still lead to it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.postgres_connection import YOUNG_S
from sharequeue.stack.migrate import upgrade
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import wait_until
from tests.system.test_postgres_goes_back import AskedPostgres

CONNECTIONS = 8
"""Of a pool. Each of them may answer once that it can only read."""
CALLS = 30


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[AskedPostgres]:
    server = AskedPostgres(tmp_path / "postgres")
    server.start()
    try:
        upgrade(server.url)
        yield server
    finally:
        server.stop()


@pytest.fixture
def stack(tmp_path: Path, postgres: AskedPostgres, new_redis: Callable[[], str], one_process: bool) -> Iterator[Stack]:
    stores = {"postgres_url": postgres.url, "redis_url": new_redis()}
    with temporary_stack(tmp_path / "stack", **stores, one_process=one_process) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=60, verify=False) as client:
        yield client


def switch(postgres: AskedPostgres, new: str) -> None:
    """Sessions of before can only read; new ones are as `new` says."""
    postgres.ask(f"ALTER ROLE CURRENT_USER SET default_transaction_read_only = {new}")
    postgres.ask("ALTER SYSTEM SET default_transaction_read_only = on")
    postgres.ask("SELECT pg_reload_conf()")


def produce(client: httpx.Client, key: str | None = None) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/v1/topics/t/records", json={"records": [{"value": 1}]}, headers=headers)


def test_connections_that_lead_to_the_old_server_are_made_again(client: httpx.Client, postgres: AskedPostgres) -> None:
    def begin() -> httpx.Response:
        return client.post("/v1/transactions", json={"timeout_ms": 60_000})

    def settle() -> httpx.Response:
        answer = client.post("/v1/share-groups/g/fetch", json={"topics": ["t"], "max_records": 1, "member_id": "m"})
        if answer.status_code != 200:
            return answer
        batches = [{**batch, "type": "accept"} for batch in answer.json()["batches"]]
        for batch in batches:
            del batch["records"]
        settled = client.post("/v1/share-groups/g/acknowledge", json={"member_id": "m", "acknowledgements": batches})
        return settled if settled.json().get("failed_count") == 0 else httpx.Response(503)

    number = iter(range(10**6))
    calls: dict[str, Callable[[], httpx.Response]] = {
        "produce": lambda: produce(client),
        "produce with a key": lambda: produce(client, key=f"k{next(number)}"),
        "begin": begin,
        "settle": settle,
        "configure": lambda: client.patch(
            "/v1/share-groups/g/config", json={"config": {"share.session.timeout.ms": "50000"}}
        ),
        "create": lambda: client.post("/v1/topics", json={"name": f"t{next(number)}"}),
    }
    for call in calls.values():
        wait_until(lambda call=call: call().status_code in (200, 201))
    time.sleep(2 * YOUNG_S)  # none of them is so young that it would be kept
    switch(postgres, "off")
    for name, call in calls.items():
        refused = [answer.text for _ in range(CALLS) if (answer := call()).status_code not in (200, 201)]
        assert len(refused) <= CONNECTIONS, (name, refused)
    wait_until(lambda: client.get("/readyz").status_code == 200)
