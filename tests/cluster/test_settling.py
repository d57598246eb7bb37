"""Settling in a transaction while leaders move and services are away: what was committed is applied,
all else is let go.

The test is the gateway that commits: it has leaders hold records, decides in the log, and says nothing to anybody. So
each moment between the hold, the decision and its application can be met.
"""

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import acknowledge, fetch, produce
from tests.cluster.gateways import GatewayCluster
from tests.cluster.settling import RECORDS, Held, Json, sql
from tests.http.calls import wait_until
from tests.storage.database import session


@pytest.fixture(scope="module")
def stack(stack_of_two_databases: Stack) -> Stack:
    """A stack of this module alone: the tests look into its databases."""
    return stack_of_two_databases


@pytest.fixture
def held(
    request: pytest.FixtureRequest, cluster: GatewayCluster, clients: list[httpx.Client], log_url: str, name: str
) -> Held:
    """The parameter is the timeout of the transaction, and how long the member's locks last."""
    timeout_ms, lock_ms = getattr(request, "param", (120_000, None))
    return Held(cluster, clients[0], log_url, name, timeout_ms, lock_ms)


def leave(gateway: ServiceProcess, how: signal.Signals) -> None:
    assert gateway.process is not None
    gateway.process.send_signal(how)
    gateway.process.wait(60)


LEAVING = pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)], ids=["killed", "left"]
)


@LEAVING
def test_another_leader_loads_between_hold_and_decision(held: Held, how: signal.Signals) -> None:
    """The commit lands after the reload. Nobody gets the records in between, and their locks need not live."""
    held.hold(last_offset=5)
    leave(held.leader, how)
    held.wait_until_replaced(held.leader)
    assert held.taken(wait_ms=2000) == set(), "the others are still locked"
    pending = held.client.get(f"/v1/share-groups/{held.group}/in-flight").json()["partitions"][0]["batches"]
    assert [(batch["first_offset"], batch.get("transaction_id")) for batch in pending] == [
        (0, held.transaction),
        (6, None),
    ]
    held.decide()
    held.wait_until_settled(6)


@LEAVING
def test_another_leader_loads_after_the_decision(held: Held, how: signal.Signals) -> None:
    """Nobody fetches: a sweep loads what has a settlement."""
    held.hold()
    assert held.leader.process is not None
    os.kill(held.leader.process.pid, signal.SIGSTOP)  # it must not apply it
    held.decide()
    if how == signal.SIGTERM:
        os.kill(held.leader.process.pid, signal.SIGCONT)
    leave(held.leader, how)
    held.wait_until_settled()


@pytest.mark.soak
@pytest.mark.parametrize("held", [(120_000, 10_000)], indirect=True)
def test_a_gateway_dies_between_hold_and_decision(held: Held, log_url: str) -> None:
    """The timeout of the transaction bounds how long the records are pending."""
    held.hold()
    sql(log_url, "UPDATE log.transactions SET deadline = clock_timestamp() WHERE deadline > clock_timestamp()")
    got: set[int] = set()
    wait_until(lambda: got.update(held.taken(wait_ms=1000)) or got == set(range(RECORDS)))
    assert not held.visible()
    problem = held.commit(held.client).json()
    assert (problem["state"], problem["reason"]) == ("aborted", "timed_out")


def test_an_idle_share_partition_stays_loaded_while_records_are_pending(held: Held) -> None:
    """It is unloaded after a second without use."""
    held.hold()
    time.sleep(3)  # longer than the idle time; that nothing happens is the test
    held.decide()
    held.wait_until_settled()


def test_a_paused_leader_applies_nothing_when_it_wakes(held: Held) -> None:
    """Its state write is refused after the decision: another leader has applied it."""
    held.hold(last_offset=5)
    assert held.leader.process is not None
    os.kill(held.leader.process.pid, signal.SIGSTOP)
    try:
        held.decide()
        held.wait_until_settled(6)
    finally:
        os.kill(held.leader.process.pid, signal.SIGCONT)
    held.cluster.wait_until_known(held.cluster.gateways)
    acknowledge(held.client, held.group, {**held.answer, "batches": [held.answer["batches"][0] | {"first_offset": 6}]})
    assert held.start() == RECORDS


@contextlib.contextmanager
def refusing_states(state_url: str) -> Iterator[None]:
    """PostgreSQL refuses every state write."""
    sql(
        state_url,
        """CREATE OR REPLACE FUNCTION share_state.refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$""",
        """CREATE TRIGGER refuse BEFORE INSERT ON share_state.share_records
           FOR EACH ROW EXECUTE FUNCTION share_state.refuse()""",
    )
    try:
        yield
    finally:
        sql(state_url, "DROP TRIGGER refuse ON share_state.share_records")


@pytest.mark.soak
def test_the_state_write_is_refused_after_the_decision(held: Held, state_url: str) -> None:
    """What is committed is not rolled back: the leader unloads, and applies it when states can be stored."""
    held.hold()
    with refusing_states(state_url):
        held.decide()
        wait_until(lambda: oldest_unapplied_s(held.client) > 5)  # the leader has asked by now
        assert held.taken() == set()
        assert [each["group_id"] for each in held.unapplied()] == [held.group]
    held.wait_until_settled()
    wait_until(lambda: oldest_unapplied_s(held.client) == 0)


def oldest_unapplied_s(client: httpx.Client) -> float:
    """What the alert looks at."""
    found = re.search(
        r"^sharequeue_oldest_unapplied_settlement_seconds (\S+)$", client.get("/metrics").text, re.MULTILINE
    )
    assert found is not None
    return float(found[1])


def test_a_hold_that_cannot_be_stored_commits_nothing(held: Held, state_url: str) -> None:
    """The transaction stays open, and the same call may be repeated."""
    with refusing_states(state_url):
        answer = held.commit(held.client)
    assert (answer.status_code, answer.json()["definite"]) == (503, True), answer.text
    assert not held.visible()
    assert held.commit(held.client).status_code == 200
    held.wait_until_settled()


@pytest.mark.parametrize("decided_first", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_reset_wins(held: Held, decided_first: bool) -> None:
    """The settlement is of a state that is gone, so it is dropped, and the records come from where the reset says."""
    held.hold()
    paused = held.leader.process
    assert paused is not None
    if decided_first:
        os.kill(paused.pid, signal.SIGSTOP)
        held.decide()
        held.leader.kill()
        held.wait_until_replaced(held.leader)
    path = f"/v1/share-groups/{held.group}/offsets/reset"
    reset = held.client.post(path, json={"to": "earliest", "force": True}, timeout=40)
    assert reset.status_code == 200, reset.text
    if not decided_first:
        held.decide()
    wait_until(lambda: not held.unapplied())
    assert held.visible()
    got: set[int] = set()
    wait_until(lambda: got.update(held.taken(wait_ms=1000)) or got == set(range(RECORDS)))


def test_one_of_two_leaders_says_no(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> None:
    topic_id = cluster.make_spread_topic(clients[0], name, 6)
    for partition in range(6):
        produce(clients[0], name, partition, 1)
    batches: list[Json] = []
    while len(batches) < 6:
        batches += fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=5000)["batches"]
    lost = batches[0]
    acknowledge(clients[0], name, {"member_id": "m", "batches": [lost]})
    transaction = clients[0].post("/v1/transactions", json={}).json()["transaction_id"]
    entries = [
        {"topic": name, "partition": batch["partition"], "first_offset": 0, "last_offset": 0, "type": "accept"}
        | {"delivery_count": 1}
        for batch in batches
    ]
    answer = clients[1].post(
        f"/v1/transactions/{transaction}/commit",
        json={"acknowledgements": [{"group_id": name, "member_id": "m", "acknowledgements": entries}]},
    )
    assert answer.status_code == 409, answer.text
    assert [result["kafka_code"] for result in answer.json()["results"]] == [121] + 5 * [48]
    assert len({cluster.leader_of(name, topic_id, partition).name for partition in range(6)}) > 1
    rest = {"member_id": "m", "batches": batches[1:]}

    def settled() -> bool:
        with contextlib.suppress(AssertionError):
            acknowledge(clients[2], name, rest)
            return True
        return False

    wait_until(settled)


PATIENT_S = 10.0
"""The longest time for which a gateway waits here for a share coordinator, or before it looks again: to read a state,
to hold records, to write a state (`state_write_deadline_ms`), and to sweep settlements."""


@pytest.mark.soak
def test_the_share_coordinator_is_away(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], log_url: str, name: str
) -> None:
    """One commit is decided while no state can be written, another one is tried again and again.

    The locks of the decided one end in that time. They are pending, so nobody gets them.
    """
    client, away_s = clients[0], PATIENT_S + 5
    decided = Held(cluster, client, log_url, f"{name}-decided", 600_000, lock_ms=10_000)
    decided.hold()
    tried = Held(cluster, client, log_url, f"{name}-tried", 600_000, lock_ms=600_000)
    share_coordinator = stack.service("share coordinator")
    share_coordinator.kill()
    try:
        until_s = time.monotonic() + away_s
        decided.decide()
        tries = 0
        while time.monotonic() < until_s:
            answer = tried.commit(client)
            assert (answer.status_code, answer.json()["definite"]) == (503, True), answer.text
            assert not tried.visible()
            assert (decided.taken(), tried.taken()) == (set(), set())
            assert [each["group_id"] for each in decided.unapplied()] == [decided.group]
            tries += 1
            time.sleep(0.5)
        print(f"away for {away_s:.0f} s: {tries} commits were refused")
    finally:
        share_coordinator.start()
    decided.wait_until_settled()
    wait_until(lambda: tried.commit(client).status_code == 200)
    tried.wait_until_settled()
    assert (decided.taken(), tried.taken()) == (set(), set())


@contextlib.contextmanager
def database_away(url: str, seconds: float) -> Iterator[None]:
    """A database as its clients see it while PostgreSQL is started again: all connections are lost,
    none can be made."""
    base, _, database = url.rpartition("/")
    database = database.partition("?")[0]

    async def allow(allowed: bool) -> None:
        async with session(f"{base}/postgres") as connection:
            await connection.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS {str(allowed).lower()}')
            if not allowed:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database
                )

    asyncio.run(allow(False))
    timer = threading.Timer(seconds, lambda: asyncio.run(allow(True)))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("which", ["log", "states"])
def test_one_of_the_two_databases_is_started_again(held: Held, log_url: str, state_url: str, which: str) -> None:
    """First while the records are pending, then while a client commits."""
    url = log_url if which == "log" else state_url
    held.hold(last_offset=5)
    with database_away(url, 2):
        pass
    with database_away(url, 2):
        answer = held.commit(held.client)
    if answer.status_code != 200:
        wait_until(lambda: held.commit(held.client).status_code == 200)
    held.wait_until_settled()
