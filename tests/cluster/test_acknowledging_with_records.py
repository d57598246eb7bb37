"""An acknowledgement that carries records, while gateways are killed: both happen or neither, and a repeat is the same.

PostgreSQL holds the request up before one step at a time: the gateway that took it, or the leader of the records, dies
there. Then the client repeats the request at another gateway, with the same `Idempotency-Key`.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.gateways import GatewayCluster
from tests.cluster.settling import RECORDS, Consumed, sql
from tests.http.calls import wait_until

STEPS = {
    "begin": ("log.transactions", "BEFORE INSERT", False),
    "hold": ("share_state.share_records", "BEFORE INSERT", False),
    "settle": ("log.settlements", "BEFORE INSERT", False),
    "append": ("log.record_batches", "BEFORE INSERT", False),
    "keep the key": ("log.idempotency_keys", "BEFORE INSERT", False),
    "commit": ("log.settlements", "AFTER INSERT", True),
    "forget": ("log.settlements", "BEFORE DELETE", False),
}
"""The writes of one request, in order: table, moment, and whether the moment is the COMMIT itself. Between "commit" and
"forget" the leader writes the state, again at "hold"."""
DECIDED_FROM = "commit"
POINTS = [*list(STEPS)[:-1], "apply", "forget", "answer"]
"""Where a gateway dies: before each step, and when the answer is on its way."""


@pytest.fixture(scope="module")
def stack(stack_of_two_databases: Stack) -> Stack:
    """A stack of this module alone: the tests look into its databases."""
    return stack_of_two_databases


class Gates:
    """Holds up each step that is closed. A step that waits goes on when it is opened, though its client is dead."""

    def __init__(self, log_url: str, state_url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connections: dict[str, Any] = {}
        for schema, url in (("log", log_url), ("share_state", state_url)):
            statements = [
                f"""CREATE FUNCTION {schema}.wait() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN
                      PERFORM pg_advisory_xact_lock_shared(932, TG_ARGV[0]::int);
                      IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
                      RETURN NEW;
                    END $$"""
            ]
            for number, (table, moment, deferred) in enumerate(STEPS.values()):
                if table.startswith(f"{schema}."):
                    trigger = f"wait_{number} {moment} ON {table}"
                    of = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
                    late = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
                    statements.append(
                        f"CREATE {of} {trigger} {late} FOR EACH ROW EXECUTE FUNCTION {schema}.wait({number})"
                    )
            sql(url, *statements)
            self._connections[schema] = self._loop.run_until_complete(asyncpg.connect(url))

    def _run(self, step: str, statement: str) -> Any:
        connection = self._connections[STEPS[step][0].partition(".")[0]]
        return self._loop.run_until_complete(connection.fetchval(statement, list(STEPS).index(step)))

    def close(self, step: str) -> None:
        self._run(step, "SELECT pg_advisory_lock(932, $1)")

    def open(self, step: str) -> None:
        assert self._run(step, "SELECT pg_advisory_unlock(932, $1)")

    def wait(self, step: str) -> None:
        """Wait until something waits there."""
        waiting = """SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 932
                       AND objid = $1::int::oid AND NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
        wait_until(lambda: self._run(step, waiting))

    def ask(self, statement: str, *arguments: Any) -> Any:
        """A value in the database of the log."""
        return self._loop.run_until_complete(self._connections["log"].fetchval(statement, *arguments))

    def end(self) -> None:
        for connection in self._connections.values():
            self._loop.run_until_complete(connection.close())
        self._loop.close()


@pytest.fixture(scope="module")
def gates(stack: Stack, log_url: str, state_url: str) -> Iterator[Gates]:
    gates = Gates(log_url, state_url)
    yield gates
    gates.end()


class Step(Consumed):
    """One request: it accepts all records that the member holds, and has one result."""

    def __init__(self, cluster: GatewayCluster, client: httpx.Client, gates: Gates, name: str) -> None:
        super().__init__(cluster, client, name, lock_ms=600_000)
        self.gates = gates
        self.answers: list[httpx.Response] = []

    def send(self, client: httpx.Client) -> httpx.Response:
        """Send it, again with the same key. A refusal must say that a repeat may help: it is never 121."""
        body = {
            "member_id": "m",
            "acknowledgements": self.acknowledgements(),
            "produce": [{"topic": self.results, "records": [{"value": "result"}]}],
        }
        path = f"/v1/share-groups/{self.group}/acknowledge"
        answer = client.post(path, json=body, headers={"Idempotency-Key": self.group}, timeout=40)
        self.answers.append(answer)
        assert answer.status_code == 200 or answer.json()["retriable"], answer.text
        return answer

    def try_to_send(self, client: httpx.Client) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.send(client)

    def let_time_pass(self) -> None:
        """A transaction that its gateway has left open times out."""
        self.gates.ask("WITH passed AS (UPDATE log.transactions SET deadline = clock_timestamp()) SELECT 1")

    def results_stored(self) -> int:
        """How many batches the topic of results has. A marker would be one."""
        count: int = self.gates.ask(
            "SELECT count(*) FROM log.record_batches WHERE topic_id = (SELECT $1::uuid)", self.results_id
        )
        return count

    @property
    def results_id(self) -> str:
        topic_id: str = self.client.get(f"/v1/topics/{self.results}").json()["topic_id"]
        return topic_id

    def unapplied(self) -> int:
        count: int = self.gates.ask("SELECT count(*) FROM log.settlements WHERE group_id = $1", self.group)
        return count

    def pending(self) -> bool:
        partitions = self.client.get(f"/v1/share-groups/{self.group}/in-flight").json()["partitions"]
        return any("transaction_id" in batch for each in partitions for batch in each["batches"])

    def wait_for_the_outcome(self) -> bool:
        """Wait until nothing is pending. Returns: whether both have happened; otherwise neither has."""
        self.let_time_pass()
        wait_until(lambda: not self.unapplied() and not self.pending())
        happened = self.visible()
        assert self.results_stored() == int(happened)
        assert (self.start() == RECORDS) is happened, (self.start(), happened)
        return happened

    def check_the_repeat(self, client: httpx.Client) -> None:
        """The client repeats it until it hears what became of it: it has happened once."""
        wait_until(lambda: self.send(client).status_code == 200)
        assert self.wait_for_the_outcome()
        again = self.send(client)
        told = {answer.content for answer in self.answers if answer.status_code == 200}
        assert told == {again.content}, told
        assert again.json()["produced"] == [{"topic": self.results, "records": [{"partition": 0, "offset": 0}]}]
        assert [result["status"] for result in again.json()["results"]] == ["applied"]
        assert (self.results_stored(), self.taken()) == (1, set())


@pytest.fixture
def step(cluster: GatewayCluster, clients: list[httpx.Client], gates: Gates, name: str) -> Step:
    return Step(cluster, clients[0], gates, name)


def is_held_up(gates: Gates, point: str) -> str:
    """Wait until the request is at a point, whose gate is closed. Returns: the step that waits."""
    if point != "apply":
        gates.wait(point)
        return point
    gates.wait("commit")
    gates.close("hold")
    gates.open("commit")
    gates.wait("hold")
    return "hold"


def kill_at(step: Step, clients: list[httpx.Client], point: str, front: int, victim: ServiceProcess) -> None:
    """Send the request to a gateway, and kill one when it is at a point. Then let what waits in PostgreSQL go on."""
    sending = threading.Thread(target=step.try_to_send, args=(clients[front],))
    if point == "answer":
        sending.start()
        step.gates.ask("SELECT 1")
        sending.join()
        victim.kill()
        return
    step.gates.close("commit" if point == "apply" else point)
    sending.start()
    waits = is_held_up(step.gates, point)
    if point == "apply":
        sending.join()
        assert [answer.status_code for answer in step.answers] == [200], "its answer does not wait for the state"
        assert step.taken() == set()
    victim.kill()
    step.gates.open(waits)
    sending.join()


def check_kill(
    step: Step, clients: list[httpx.Client], point: str, *, of_leader: bool, alone: bool, at_once: bool
) -> None:
    """`alone`: the leader takes the request itself. `at_once`: the client repeats before the outcome is looked at."""
    gateways = step.cluster.gateways
    front = gateways.index(step.leader) if alone else 0
    victim = step.leader if of_leader else gateways[front]
    kill_at(step, clients, point, front, victim)
    step.client = clients[next(i for i, gateway in enumerate(gateways) if gateway is not victim)]
    if at_once:
        step.try_to_send(step.client)
    step.wait_until_replaced(victim)
    happened = step.wait_for_the_outcome()
    if victim is gateways[front] and not at_once:
        assert happened is (POINTS.index(point) >= POINTS.index(DECIDED_FROM))
    step.check_the_repeat(step.client)


@pytest.mark.parametrize("point", POINTS[::2])
def test_a_gateway_is_killed_before_each_step(step: Step, clients: list[httpx.Client], seed: int, point: str) -> None:
    """The gateways that take the request turn with the leaders. Every second step: the others are in the long run."""
    rng = random.Random(f"{seed} {point}")
    of_leader = (seed + POINTS.index(point)) % 2 == 1
    alone, at_once = rng.random() < 0.25, rng.random() < 0.5
    print(f"{of_leader=} {alone=} {at_once=}")
    check_kill(step, clients, point, of_leader=of_leader, alone=alone, at_once=at_once)


@pytest.mark.soak
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("of_leader", [False, True], ids=["gateway", "leader"])
@pytest.mark.parametrize("point", POINTS)
def test_every_gateway_is_killed_before_each_step(
    step: Step, clients: list[httpx.Client], point: str, of_leader: bool, alone: bool, at_once: bool
) -> None:
    check_kill(step, clients, point, of_leader=of_leader, alone=alone, at_once=at_once)


def test_a_lost_begin_refuses_the_request_and_a_repeat_happens(step: Step, clients: list[httpx.Client]) -> None:
    """The begin does not wait for the disk: a crash of PostgreSQL may forget it after the records are held."""
    step.gates.close("hold")
    sending = threading.Thread(target=step.send, args=(clients[0],))
    sending.start()
    step.gates.wait("hold")
    lost = "WITH lost AS (DELETE FROM log.transactions RETURNING 1) SELECT count(*) FROM lost"
    assert step.gates.ask(lost) == 1
    step.gates.open("hold")
    sending.join()
    (answer,) = step.answers
    assert (answer.status_code, answer.json()["code"]) == (409, "CONCURRENT_TRANSACTIONS"), answer.text
    assert not step.wait_for_the_outcome()
    step.check_the_repeat(clients[1])


def test_a_settlement_that_comes_back_changes_nothing(step: Step, clients: list[httpx.Client]) -> None:
    """Its removal does not wait for the disk, either."""
    step.gates.close("forget")
    sending = threading.Thread(target=step.send, args=(clients[0],))
    sending.start()
    step.gates.wait("forget")
    kept = step.gates.ask("SELECT to_jsonb(s)::text FROM log.settlements s WHERE group_id = $1", step.group)
    step.gates.open("forget")
    sending.join()
    wait_until(lambda: not step.unapplied())
    step.gates.ask(
        """WITH back AS (INSERT INTO log.settlements
             SELECT * FROM jsonb_populate_record(NULL::log.settlements, $1::jsonb) RETURNING 1)
           SELECT count(*) FROM back""",
        kept,
    )
    assert step.unapplied() == 1
    step.check_the_repeat(clients[1])
