"""The answer of `/readyz`, and its time, while a store or a coordinator hangs or refuses;
a stack with its own stores."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import LONG_MS, Gateway, acknowledge_range, problem, wait_until
from tests.http.database import sql

ANSWER_S = 1.0
SLACK_S = 1.0
"""The delay that a busy machine may add to the quickest of ASKED answers."""
ASKED = 5
MOST_S = 20
"""Every answer comes in this time, even from a busy machine."""
HANGS_S = 8
"""Longer than the checks of PostgreSQL and the leases of the coordinators take."""
SERVICES = ("gateway", "group coordinator", "share coordinator")
alone = partial(pytest.param, marks=pytest.mark.three_programs)
SECRETS = ("base/", "record_batches", "extend", "HINT")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, one_process: bool) -> Iterator[Stack]:
    data_dir: Path = tmp_path_factory.mktemp("stores")
    with temporary_stack(data_dir, one_process=one_process) as stack:
        yield stack


@pytest.fixture
def gateway(client: httpx.Client) -> Gateway:
    return Gateway(client)


def pids_of(stack: Stack, part: str) -> list[int]:
    assert stack.postgres is not None
    assert stack.redis is not None
    if part == "postgresql":
        return [stack.postgres.pid, *(child.pid for child in psutil.Process(stack.postgres.pid).children())]
    return [stack.redis.pid if part == "redis" else stack.service(part).pid]


@contextmanager
def paused(pids: Sequence[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def readiness(stack: Stack, service: str) -> dict[str, Any]:
    answer = httpx.get(f"{stack.addresses[service]}/readyz", timeout=MOST_S, verify=False)
    found: dict[str, Any] = answer.json()
    assert (answer.status_code == 503) is (found["status"] == "unavailable")
    return found


def statuses(stack: Stack, without: str = "") -> dict[str, str]:
    return {service: readiness(stack, service)["status"] for service in SERVICES if service != without}


def seconds_to_answer(stack: Stack, service: str) -> float:
    """Of the quickest of some answers: a busy machine delays some, and a wait of the service's own delays all."""
    taken = []
    for _ in range(ASKED):
        started = time.monotonic()
        readiness(stack, service)
        taken.append(time.monotonic() - started)
    return min(taken)


def until_ready(stack: Stack) -> None:
    wait_until(lambda: set(statuses(stack).values()) == {"ready"}, 90)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("postgresql", {**dict.fromkeys(SERVICES, "unavailable"), "gateway": "degraded"}),
        ("redis", {"gateway": "degraded", "group coordinator": "ready", "share coordinator": "ready"}),
        alone("group coordinator", {"gateway": "ready", "share coordinator": "degraded"}),
        alone("share coordinator", {"gateway": "degraded", "group coordinator": "degraded"}),
    ],
)
def test_readyz_answers_within_a_second_while_a_dependency_hangs(
    stack: Stack, part: str, expected: dict[str, str]
) -> None:
    until_ready(stack)
    with paused(pids_of(stack, part)):
        wait_until(lambda: statuses(stack, without=part) == expected)
        for service in expected:
            assert seconds_to_answer(stack, service) < ANSWER_S + SLACK_S
    until_ready(stack)


def test_a_hanging_check_accumulates_neither_tasks_nor_connections(stack: Stack) -> None:
    until_ready(stack)
    processes = {service: psutil.Process(stack.service(service).pid) for service in SERVICES}
    before = {service: len(process.net_connections()) for service, process in processes.items()}
    with paused(pids_of(stack, "postgresql")):
        for _ in range(2):
            with ThreadPoolExecutor() as threads:
                for found in threads.map(lambda service: readiness(stack, service), SERVICES * 8):
                    assert "postgresql" in found["lacks"]
        after = {service: len(process.net_connections()) for service, process in processes.items()}
    assert all(after[service] <= before[service] + 4 for service in SERVICES), (before, after)
    until_ready(stack)


@contextmanager
def full_disk(database_url: str) -> Iterator[None]:
    """Every write to the growing tables is refused in PostgreSQL's words and with its SQLSTATE."""
    text = 'could not extend file "base/12769/16513": No space left on device'
    sql(
        database_url,
        f"""CREATE FUNCTION public.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = '{text}', HINT = 'Check free disk space.';
            END $$""",
    )
    tables = sql(
        database_url,
        """SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('log', 'share_state', 'groups')
           AND tablename NOT IN ('shards', 'instances', 'alembic_version')""",
    )
    for (table,) in tables:
        sql(
            database_url,
            f"""CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table}
                FOR EACH STATEMENT EXECUTE FUNCTION public.full_disk()""",
        )
    try:
        yield
    finally:
        sql(database_url, "DROP FUNCTION public.full_disk CASCADE")


def refused(response: httpx.Response, code: str = "KAFKA_STORAGE_ERROR", kafka_code: int = 56) -> None:
    """503, worth a retry, surely not done; and nothing of PostgreSQL's own words."""
    answer = problem(response, 503, code, kafka_code)
    assert (answer["retriable"], answer["definite"]) == (True, True)
    assert ("no disk space" in answer["detail"]) is (kafka_code == 56)
    assert not [secret for secret in SECRETS if secret in response.text]


def test_without_disk_space_every_call_is_refused_as_retriable_and_readyz_says_so(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    assert stack.postgres is not None
    until_ready(stack)
    http = gateway.http
    gateway.create_topic(name)
    gateway.produce(name, *range(6))
    held = gateway.acquire(name, name, max_records=2, acquire_mode="record_limit", lock_duration_ms=600_000)
    assert held == ["0-1×1"]
    produce = {"records": [{"value": 1}]}
    token = (stack._data_dir / "cluster.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    groups = httpx.Client(base_url=stack.addresses["group coordinator"], headers=headers, timeout=20, verify=False)
    with full_disk(stack.postgres.url), groups, ThreadPoolExecutor() as background:
        of_new_group = background.submit(
            gateway.try_fetch, "new", name
        )  # a gateway asks coordinators again for a while
        refused(http.post(f"/v1/topics/{name}/records", json=produce))
        refused(http.post(f"/v1/topics/{name}/records", json=produce, headers={"Idempotency-Key": "k"}))
        refused(groups.post("/v1/topics", json={"name": f"{name}x", "partitions": 1}))
        refused(
            groups.patch(f"/v1/share-groups/{name}/config", json={"config": {"share.heartbeat.interval.ms": "5001"}})
        )
        (result,) = gateway.try_acknowledge(name, [acknowledge_range(name, 0, 0, "accept")]).json()["results"]
        assert (result["status"], result["code"], result["retriable"]) == ("failed", "KAFKA_STORAGE_ERROR", True)
        assert "no disk space" in result["detail"]
        wait_until(lambda: set(statuses(stack, without="gateway").values()) == {"unavailable"})
        found = readiness(stack, "gateway")
        assert (found["status"], found.get("works", [])) == ("degraded", []), "topics and settings are refused too"
        words = found["dependencies"]
        assert "no disk space" in words["postgresql"]
        assert "no disk space" in words["share coordinator"]
        problem(gateway.try_fetch(name, name, max_records=1, max_wait_ms=0), 503, "COORDINATOR_NOT_AVAILABLE", 15)
        refused(of_new_group.result(), "COORDINATOR_LOAD_IN_PROGRESS", 14)
    until_ready(stack)
    records = {"max_records": 1, "acquire_mode": "record_limit", "max_wait_ms": LONG_MS}
    assert gateway.acquire(name, name, **records) == ["2-2×1"]
    for offset in range(3):
        assert gateway.settle(name, name, offset, offset, "accept", delivery_count=1) == "applied"
    gateway.produce(name, "again")
    assert gateway.log_ends(name) == [7]


def test_a_postgresql_that_hangs_is_named_by_every_call_and_told_from_one_that_refuses(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    """For longer than the checks and the leases take: after some seconds all connections are new ones."""
    until_ready(stack)
    gateway.create_topic(name)
    http, produce, words = gateway.http, {"records": [{"value": 1}]}, set()
    calls: list[Callable[[], httpx.Response]] = [
        lambda: http.post("/v1/topics", json={"name": f"{name}-x"}),
        lambda: http.post(f"/v1/topics/{name}/records", json=produce),
        lambda: http.post(f"/v1/topics/{name}/records", json=produce, headers={"Idempotency-Key": name}),
        lambda: http.post("/v1/transactions", json={}),
        lambda: http.get("/v1/share-groups"),
        lambda: http.patch(f"/v1/share-groups/{name}/config", json={"config": {"share.heartbeat.interval.ms": "5001"}}),
    ]
    with ThreadPoolExecutor(len(calls)) as background, paused(pids_of(stack, "postgresql")):
        asked = [background.submit(call) for call in calls]
        end = time.monotonic() + HANGS_S
        while time.monotonic() < end or not all(call.done() for call in asked):
            words |= {readiness(stack, service)["dependencies"]["postgresql"] for service in SERVICES}
    assert all("does not answer" in word for word in words - {"ok"}), words
    for call in asked:
        answer = call.result()
        assert (answer.status_code, answer.json()["retriable"]) == (503, True), answer.text
        assert "PostgreSQL" in answer.json()["detail"], answer.text
    until_ready(stack)


@contextmanager
def only_test_writes(database_url: str) -> Iterator[None]:
    """A service's test write is taken, and its other writes are refused: as if their connections led to two servers."""
    sql(
        database_url,
        """CREATE FUNCTION public.read_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION USING ERRCODE = '25006';
           END $$""",
    )
    for table, real in (("log.record_batches", "record_count > 0"), ("share_state.share_records", "key_id >= 0")):
        sql(
            database_url,
            f"""CREATE TRIGGER read_only BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.{real})
                EXECUTE FUNCTION public.read_only()""",
        )
    try:
        yield
    finally:
        sql(database_url, "DROP FUNCTION public.read_only CASCADE")


def test_readiness_counts_a_refused_write_though_the_test_write_is_taken(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    assert stack.postgres is not None
    until_ready(stack)
    gateway.create_topic(name)
    gateway.produce(name, 1)
    assert gateway.acquire(name, name, lock_duration_ms=600_000) == ["0-0×1"]
    calls: dict[str, Callable[[], httpx.Response]] = {
        "gateway": lambda: gateway.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1}]}),
        "share coordinator": lambda: gateway.try_acknowledge(name, [acknowledge_range(name, 0, 0, "accept")]),
    }

    def counts(service: str) -> bool:
        """After a refused write; on a busy machine the look may come after its time."""
        assert "read-only" in calls[service]().text
        found = readiness(stack, service)
        return found["status"] != "ready" and "read-only" in found["dependencies"]["postgresql"]

    with only_test_writes(stack.postgres.url):
        for service in calls:
            wait_until(lambda service=service: counts(service))
    until_ready(stack)
    assert calls["gateway"]().status_code == 200
