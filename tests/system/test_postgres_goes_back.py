"""PostgreSQL goes back in time under running services: what it lost is gone, and nothing else is.

Two gateways, two group coordinators and two share coordinators run on, as with a restore behind the same address.
"""

import asyncio
import contextlib
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from sharequeue.stack.migrate import upgrade
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, outcomes, wait_until
from tests.older_postgres import copy_with_owner, forget, own_as, stop_and_copy, stop_and_put_back

TOPIC = "orders"
COUNTS = {"kept": 100, "lost": 100, "new": 40}


class AskedPostgres(Postgres):
    def ask(self, query: str) -> Any:
        """The first value that a query answers."""

        async def run() -> Any:
            connection = await asyncpg.connect(self.url)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return asyncio.run(run())


class OwnPostgres(AskedPostgres):
    """A server whose data can be replaced by an older copy of it."""

    def keep(self) -> None:
        """Copy the data as it is now."""
        stop_and_copy(self)
        self.start()

    def go_back(self) -> None:
        """Put the copy in the place of the data."""
        stop_and_put_back(self)
        self.start()


class Standby(AskedPostgres):
    """An asynchronous replica, made of a copy of a primary that is stopped."""

    def follow(self, primary: Postgres) -> None:
        shutil.copy(primary._password_file, self._password_file)
        shutil.copytree(primary.home, self.home, copy_function=copy_with_owner, dirs_exist_ok=True)
        (self.home / "standby.signal").touch()
        password = self._password_file.read_text().strip()
        settings = f"user=sharequeue password={password} host=127.0.0.1 port={primary.port}"
        with (self.home / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{settings}'\n")
        own_as(primary.home, self.home)

    def _accepts(self) -> bool:
        try:
            lines = (self.home / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() in ("ready", "standby")

    def lag(self) -> None:
        """Receive nothing more."""
        self.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.ask("SELECT pg_reload_conf()")
        wait_until(lambda: self.ask("SELECT count(*) FROM pg_stat_wal_receiver") == 0)

    def promote(self) -> None:
        assert self.ask("SELECT pg_promote()")


class Load:
    """Produces one record after the other, at the gateways in turn, until it is stopped."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self._gateways = itertools.cycle(gateways)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.is_set():
                return
            body = {"records": [{"value": f"record-{number}"}]}
            with contextlib.suppress(httpx.HTTPError):
                answer = next(self._gateways).http.post(f"/v1/topics/{TOPIC}/records", json=body)
                if answer.status_code == 200:
                    self.answered.append(f"record-{number}")

    def wait(self, count: int) -> None:
        """Wait for this many further records."""
        until = len(self.answered) + count
        wait_until(lambda: len(self.answered) >= until)


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[OwnPostgres]:
    server = OwnPostgres(tmp_path / "postgres", temporary=True)
    server.start()
    upgrade(server.url)
    yield server
    forget(server)
    server.remove()


@pytest.fixture
def running(tmp_path: Path, own_postgres: OwnPostgres, new_redis: Callable[[], str]) -> Iterator[Stack]:
    options: dict[str, Any] = {"gateways": 2, "coordinators": 2, "share_coordinators": 2}
    stores = {"postgres_url": own_postgres.url, "redis_url": new_redis()}
    with temporary_stack(tmp_path / "stack", **stores, **options) as stack:
        yield stack


@pytest.fixture
def gateways(running: Stack) -> Iterator[list[Gateway]]:
    with ExitStack() as clients:
        yield [
            Gateway(clients.enter_context(httpx.Client(base_url=url, timeout=60, verify=False))) for url in running.urls
        ]


def produce(gateways: list[Gateway], values: list[str], topic: str = TOPIC) -> None:
    """Each value as a request of its own, at the gateways in turn, until it is answered 200."""
    for gateway, value in zip(itertools.cycle(gateways), values, strict=False):
        body = {"records": [{"value": value}]}
        wait_until(
            lambda gateway=gateway, body=body: (
                gateway.http.post(f"/v1/topics/{topic}/records", json=body).status_code == 200
            )
        )


def consume(gateways: list[Gateway], group: str, count: int) -> list[str]:
    """Fetch and accept at both gateways until this many records are accepted."""
    accepted: list[str] = []
    turns = itertools.cycle(gateways)

    def enough() -> bool:
        gateway = next(turns)
        answer = gateway.try_fetch(group, TOPIC, max_records=min(50, count - len(accepted)))
        if answer.status_code != 200:
            return False
        for batch in answer.json()["batches"]:
            values = [record["value"] for record in batch.pop("records")]
            settled = gateway.try_acknowledge(group, [{**batch, "type": "accept"}])
            if settled.status_code == 200 and outcomes(settled) == ["applied"]:
                accepted.extend(values)
        return len(accepted) >= count

    wait_until(enough)
    return accepted


def read(gateway: Gateway, topic: str = TOPIC) -> list[str]:
    """All records of the log, read from its start to its end."""
    values: list[str] = []
    offset = 0
    while True:
        page = gateway.read(topic, offset=offset)
        values += [record["value"] for record in page["records"]]
        if page["next_offset"] >= page["log_end_offset"]:
            return values
        assert page["next_offset"] > offset, "a reader would loop for ever"
        offset = page["next_offset"]


@pytest.mark.soak
def test_after_a_restore_each_record_answered_is_delivered_and_all_gateways_show_one_log(
    running: Stack, gateways: list[Gateway], own_postgres: OwnPostgres
) -> None:
    kept, lost, new = ([f"{kind}-{number}" for number in range(count)] for kind, count in COUNTS.items())
    produce(gateways, kept)
    assert sorted(consume(gateways, "g", 50)) == sorted(kept[:50])
    own_postgres.keep()
    produce(gateways, lost)
    assert sorted(consume(gateways, "g", 100)) == sorted([*kept[50:], *lost[:50]])
    assert [read(gateway) for gateway in gateways] == [kept + lost] * 2
    produce(gateways, ["lost", "lost"], "later")

    own_postgres.go_back()
    produce(gateways[1:], ["again"], "later")  # the topic is made again
    produce(gateways, new)
    assert sorted(consume(gateways, "g", 90)) == sorted([*kept[50:], *new])
    assert sorted(consume(gateways[:1], "h", 140)) == sorted([*kept, *new])
    assert [read(gateway) for gateway in gateways] == [kept + new] * 2
    for gateway in gateways:
        assert read(gateway, "later") == ["again"]
        assert "went back" in gateway.http.get("/readyz").json()["dependencies"]["time line"]
        assert "sharequeue_postgres_went_back_total 1.0" in gateway.http.get("/metrics").text
    wait_until(lambda: gateways[0].offsets("g")[TOPIC, 0][1] == 0)

    for service in running.services:
        service.kill()
        service.start()
    wait_until(lambda: all(service.ready() for service in running.services))
    produce(gateways, ["last"])
    assert consume(gateways, "g", 1) == ["last"]
    assert sorted(consume(gateways, "i", 141)) == sorted([*kept, *new, "last"])
    assert [read(gateway) for gateway in gateways] == [[*kept, *new, "last"]] * 2


@pytest.fixture
def standby(tmp_path: Path, own_postgres: OwnPostgres) -> Iterator[Standby]:
    server = Standby(tmp_path / "standby", temporary=True)
    own_postgres.stop()
    server.follow(own_postgres)
    own_postgres.start()
    server.start()
    yield server
    server.remove()


@pytest.mark.soak
def test_a_fail_over_to_a_replica_that_lags_loses_what_the_replica_missed_and_nothing_else(
    tmp_path: Path, own_postgres: OwnPostgres, standby: Standby, new_redis: Callable[[], str]
) -> None:
    hosts = f"127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}"
    url = own_postgres.url.replace(f"127.0.0.1:{own_postgres.port}", hosts) + "?target_session_attrs=read-write"
    options: dict[str, Any] = {"gateways": 2, "coordinators": 2, "share_coordinators": 2}
    with (
        temporary_stack(tmp_path / "stack", postgres_url=url, redis_url=new_redis(), **options) as stack,
        ExitStack() as clients,
    ):
        gateways = [
            Gateway(clients.enter_context(httpx.Client(base_url=url, timeout=60, verify=False))) for url in stack.urls
        ]
        gateways[0].create_topic(TOPIC)
        with Load(gateways) as load:
            load.wait(30)
            consume(gateways, "g", 20)
            standby.lag()
            load.wait(60)
            consume(gateways, "g", 70)  # some of them are on the primary alone
            own_postgres.kill()
            before = len(load.answered)
            standby.promote()
            load.wait(100)
        after = load.answered[before + 1 :]  # the one under way may have been answered by the primary
        delivered: set[str] = set()
        wait_until(lambda: bool(delivered.update(consume(gateways, "g", 1)) or delivered.issuperset(after)))
        records = read(gateways[0])
        assert read(gateways[1]) == records
        assert set(after) <= set(records)
        assert len(set(load.answered) - set(records)) >= 50, "the replica did not lag"
        assert sorted(consume(gateways[1:], "h", len(records))) == sorted(records)

        for service in stack.services:
            service.kill()
            service.start()
        wait_until(lambda: all(service.ready() for service in stack.services))
        produce(gateways, ["last"])
        assert consume(gateways, "h", 1) == ["last"]
        assert [read(gateway) for gateway in gateways] == [[*records, "last"]] * 2


@pytest.mark.soak
def test_with_postgresql_older_than_redis_a_leader_takes_a_higher_epoch_and_lost_locks_go(
    tmp_path: Path, own_postgres: OwnPostgres, new_redis: Callable[[], str]
) -> None:
    """Restored with the services stopped, and Redis not emptied."""
    stores = {"postgres_url": own_postgres.url, "redis_url": new_redis()}
    with (
        temporary_stack(tmp_path / "stack", **stores) as stack,
        httpx.Client(base_url=stack.url, timeout=60, verify=False) as client,
    ):
        gateway, process = Gateway(client), stack.service("gateway")
        produce([gateway], ["kept-0", "kept-1"])
        gateway.configure("g", share_record_lock_duration_ms=600_000)
        assert consume([gateway], "g", 1) == ["kept-0"]
        own_postgres.keep()
        for _ in range(3):  # each start takes epochs that PostgreSQL loses
            process.kill()
            process.start()
            wait_until(process.ready)
        produce([gateway], ["lost-1", "lost-2"])
        wait_until(lambda: held(gateway) == ["kept-1", "lost-1", "lost-2"])
        for service in stack.services:
            service.stop()
        own_postgres.go_back()
        for service in stack.services:
            service.start()
        wait_until(lambda: all(service.ready() for service in stack.services))

        produce([gateway], ["new-1"])
        assert sorted(consume([gateway], "g", 2)) == ["kept-1", "new-1"]
        assert "PostgreSQL is older than Redis" in (stack.logs / "gateway.log").read_text()


def held(gateway: Gateway) -> list[str]:
    """The values that one fetch acquires; none if it is refused."""
    answer = gateway.try_fetch("g", TOPIC)
    batches = answer.json()["batches"] if answer.status_code == 200 else ()
    return [record["value"] for batch in batches for record in batch["records"]]


@pytest.mark.soak
def test_a_commit_cancelled_while_it_waits_for_a_standby_is_not_answered_as_done(
    tmp_path: Path, own_postgres: OwnPostgres, new_redis: Callable[[], str]
) -> None:
    """PostgreSQL answers such a commit as done, and warns."""
    waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE 'sharequeue-gateway%'"
    stores = {"postgres_url": own_postgres.url, "redis_url": new_redis()}
    with (
        temporary_stack(tmp_path / "stack", **stores) as stack,
        httpx.Client(base_url=stack.url, timeout=60, verify=False) as client,
        ThreadPoolExecutor() as threads,
    ):
        gateway = Gateway(client)
        produce([gateway], ["before"])

        def once() -> httpx.Response:
            body = {"records": [{"value": "once"}]}
            return client.post(f"/v1/topics/{TOPIC}/records", json=body, headers={"Idempotency-Key": "once"})

        own_postgres.ask("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        own_postgres.ask("SELECT pg_reload_conf()")
        answer = threads.submit(once)
        wait_until(lambda: own_postgres.ask(f"SELECT count(*) {waiting}"))
        while not answer.done():
            own_postgres.ask(f"SELECT count(pg_cancel_backend(pid)) {waiting}")
        refused = answer.result()
        assert refused.status_code in (503, 504), refused.text
        assert refused.json()["definite"] is False

        own_postgres.ask("ALTER SYSTEM RESET synchronous_standby_names")
        own_postgres.ask("SELECT pg_reload_conf()")
        wait_until(lambda: once().status_code == 200)
        assert read(gateway) == ["before", "once"]
