"""Clients that commit and abort again and again: each call is answered, the waiting ones are bounded, and appends and
commits of others go on."""

import asyncio
import contextlib
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx
import pytest
from sharequeue_gateway.record_log.transactions.ending import AT_ONCE, MOST_UNDER_WAY

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, acknowledge_range, good, wait_until
from tests.outages import paused
from tests.sharequeue_http.raw import Answered, Raw, head

MIB = 1 << 20
CROWD = 2000
BYTES_OF_ONE = 30_000
"""What a connection with a request may take."""
PRODUCED = 16 * MIB
AROUND = 32 * MIB
LARGE = 10_000
CLIENTS = 30


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        "SHAREQUEUE_GATEWAY_MAX_PRODUCE_BYTES": str(PRODUCED),
    }


@pytest.fixture
def port(stack: Stack) -> int:
    return int(stack.url.rpartition(":")[2])


class Honest:
    """A client that appends all the time, and between its appends commits a transaction of its own."""

    def __init__(self, url: str, topic: str) -> None:
        self._url, self._topic = url, topic
        self.appends = self.commits = 0
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._runs = [self._pool.submit(run) for run in (self._append, self._commit)]

    def _append(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._stop.is_set():
                good(client.post(f"/v1/topics/{self._topic}/records", json={"records": [{"value": 1}]}))
                self.appends += 1

    def _commit(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._stop.is_set():
                transaction = begin(client, self._topic)
                answer = client.post(f"/v1/transactions/{transaction}/commit", json={})
                while answer.status_code in (429, 503):
                    assert answer.json()["retriable"]
                    answer = client.post(f"/v1/transactions/{transaction}/commit", json={})
                assert good(answer)["state"] == "committed"
                self.commits += 1

    def end(self) -> None:
        self._stop.set()
        for run in self._runs:
            run.result(30)
        self._pool.shutdown()


@contextlib.contextmanager
def others_go_on(stack: Stack, topic: str) -> Iterator[None]:
    """While the block runs, another client appends and commits, and each of its calls succeeds."""
    honest = Honest(stack.url, topic)
    try:
        wait_until(lambda: honest.appends and honest.commits)
        before = honest.appends, honest.commits
        yield
        wait_until(lambda: honest.appends > before[0] and honest.commits > before[1])
    finally:
        honest.end()


def begin(client: httpx.Client, topic: str, **body: Any) -> str:
    """A transaction with one record."""
    transaction: str = good(client.post("/v1/transactions", json=body), 201)["transaction_id"]
    records = {"records": [{"value": 1}]}
    good(client.post(f"/v1/topics/{topic}/records", json=records, headers={"Transaction-Id": transaction}))
    return transaction


def end(transaction: str, call: str = "commit", body: bytes = b"{}") -> bytes:
    size = f"Content-Length: {len(body)}"
    return head(f"POST /v1/transactions/{transaction}/{call}", "Content-Type: application/json", size) + body


def all_at_once(port: int, requests: list[bytes]) -> list[Answered]:
    """Send each request on a connection of its own, then take the answers, in order."""
    with contextlib.ExitStack() as closing:
        lines = [closing.enter_context(Raw(port, timeout_s=60)) for _ in requests]
        for line, request in zip(lines, requests, strict=True):
            line.send(request)
        return [line.answer("POST") for line in lines]


def told(answers: list[Answered]) -> Counter[tuple[int, str]]:
    """How often which status came with which state or code. One that was turned away says that a repeat may help."""
    found: Counter[tuple[int, str]] = Counter()
    for answer in answers:
        body = json.loads(answer.body)
        if answer.status == 429:
            assert (body["retriable"], body["limit"]) == (True, MOST_UNDER_WAY)
        assert answer.status != 503 or body["retriable"]  # a busy machine reaches the deadlines of the gateway
        found[answer.status, body.get("state") or body["code"]] += 1
    return found


CROWDS: dict[str, tuple[str, str, set[tuple[int, str]]]] = {
    "commits of an ended one": ("committed", "commit", {(200, "committed")}),
    "aborts of an ended one": ("committed", "abort", {(409, "committed")}),
    "commits of an open one": ("open", "commit", {(200, "committed")}),
    "commits of a fenced one": ("fenced", "commit", {(409, "aborted")}),
    "commits of unknown ones": ("unknown", "commit", {(404, "TRANSACTIONAL_ID_NOT_FOUND")}),
}


@pytest.mark.parametrize(
    ("state", "call", "expected"),
    [
        pytest.param(*crowd, id=name, marks=pytest.mark.soak if "ended" in name else ())
        for name, crowd in CROWDS.items()
    ],
)
def test_a_crowd_ends_transactions(
    stack: Stack,
    port: int,
    own_gateway: Gateway,
    name: str,
    state: str,
    call: str,
    expected: set[tuple[int, str]],
) -> None:
    own_gateway.create_topic(name)
    producer = {"transactional_id": name} if state == "fenced" else {}
    transaction = begin(own_gateway.http, name, **producer)
    if state == "committed":
        good(own_gateway.http.post(f"/v1/transactions/{transaction}/commit", json={}))
    elif state == "fenced":
        good(own_gateway.http.post("/v1/transactions", json=producer), 201)
    ids = [str(uuid.uuid4()) if state == "unknown" else transaction for _ in range(CROWD)]
    pid = stack.service("gateway").pid
    with others_go_on(stack, f"{name}-other"):
        reset_peak(pid)
        before = resident_bytes(pid)
        found = told(all_at_once(port, [end(each, call) for each in ids]))
        assert peak_resident_bytes(pid) - before < CROWD * BYTES_OF_ONE + AROUND
    turned_away = sum(count for (status, _), count in found.items() if status == 429)
    assert {kind for kind in found if kind[0] not in (429, 503)} == expected, found
    most = CROWD - MOST_UNDER_WAY // 2 if state == "unknown" else 0  # equal calls for one transaction are one
    assert turned_away <= most, found


@pytest.mark.soak
def test_ends_that_wait_are_bounded(stack: Stack, port: int, own_gateway: Gateway, database: str, name: str) -> None:
    """PostgreSQL holds up as many ends as there may be at a time; the rest wait, and those above the bound do not."""
    own_gateway.create_topic(name)
    slow = [begin(own_gateway.http, name) for _ in range(AT_ONCE)]
    further = 500
    loop = asyncio.new_event_loop()

    async def hold_up() -> Any:
        connection = await asyncpg.connect(database)
        await connection.execute("BEGIN")
        await connection.fetch("SELECT FROM log.transactions WHERE transaction_id = ANY($1::text[]) FOR UPDATE", slow)
        return connection

    async def held_up(connection: Any) -> int:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE"
            " datname = current_database()) OR NOT granted AND locktype = 'transactionid'"
        )
        return count

    connection = loop.run_until_complete(hold_up())
    try:
        with contextlib.ExitStack() as closing:
            lines = [closing.enter_context(Raw(port, timeout_s=60)) for _ in slow]
            for line, transaction in zip(lines, slow, strict=True):
                line.send(end(transaction))
            wait_until(lambda: loop.run_until_complete(held_up(connection)) >= AT_ONCE)
            lines += [closing.enter_context(Raw(port, timeout_s=60)) for _ in range(MOST_UNDER_WAY + further - AT_ONCE)]
            for line in lines[AT_ONCE:]:
                line.send(end(str(uuid.uuid4())))
            refused = [line.answer("POST") for line in lines[MOST_UNDER_WAY:]]
            assert told(refused) == {(429, "THROTTLING_QUOTA_EXCEEDED"): further}
            assert str(MOST_UNDER_WAY) in json.loads(refused[0].body)["detail"]
            own_gateway.produce(name, "appends go on")
            loop.run_until_complete(connection.execute("COMMIT"))
            assert told([line.answer("POST") for line in lines[:AT_ONCE]]) == {(200, "committed"): AT_ONCE}
            waited = told([line.answer("POST") for line in lines[AT_ONCE:MOST_UNDER_WAY]])
            assert waited.keys() <= {
                (404, "TRANSACTIONAL_ID_NOT_FOUND"),
                (503, "KAFKA_STORAGE_ERROR"),
                (503, "REQUEST_TIMED_OUT"),
            }, waited
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


@pytest.mark.soak
def test_large_commits_that_wait_are_bounded(stack: Stack, port: int, own_gateway: Gateway, name: str) -> None:
    """Many transactions commit the same 10,000 acknowledgements, each with a reason, while the share coordinator is
    paused: the first one waits for it, and the others wait for the first one."""
    own_gateway.create_topic(name)
    own_gateway.configure(name, share_record_lock_duration_ms=600_000, share_partition_max_record_locks=LARGE)
    own_gateway.produce(name, *range(LARGE))
    assert own_gateway.acquire(name, name, max_records=LARGE) == [f"0-{LARGE - 1}×1"]
    reason = {"delivery_count": 1, "reason": "x" * 800}
    settled = [acknowledge_range(name, offset, offset, "release", **reason) for offset in range(LARGE)]
    entry = {"group_id": name, "member_id": "m1", "acknowledgements": settled}
    body = json.dumps({"acknowledgements": [entry]}).encode()
    assert 8 * MIB < len(body) < 10 * MIB
    transactions = [begin(own_gateway.http, name) for _ in range(CLIENTS)]
    pid = stack.service("gateway").pid
    with others_go_on(stack, f"{name}-other"):
        reset_peak(pid)
        before = resident_bytes(pid)
        with paused(stack, "share coordinator"), ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(lambda each: _send(port, end(each, body=body)), transactions))
        grown = peak_resident_bytes(pid) - before
    assert grown < 8 * (PRODUCED + len(body)) + AROUND, grown
    problems = [json.loads(answer.body) for answer in answers if answer is not None]
    assert all(problem["retriable"] for problem in problems), problems
    assert any("max_produce_bytes" in problem["detail"] for problem in problems)
    assert any("max_produce_bytes" not in problem["detail"] for problem in problems), "one was tried"


def test_a_commit_that_names_a_record_again_and_again(own_gateway: Gateway, name: str) -> None:
    own_gateway.create_topic(name)
    own_gateway.produce(name, 1)
    own_gateway.acquire(name, name)
    transaction = begin(own_gateway.http, name)
    same = acknowledge_range(name, 0, 0, "release", delivery_count=1, reason="x" * 800)
    body = {"acknowledgements": [{"group_id": name, "member_id": "m1", "acknowledgements": [same] * LARGE}]}
    answer = own_gateway.http.post(f"/v1/transactions/{transaction}/commit", json=body)
    assert (answer.status_code, answer.json()["state"]) == (409, "aborted")
    assert answer.json()["failed_count"] == LARGE
    assert len(answer.content) < 4 * len(answer.request.content)
    assert own_gateway.settle(name, name, 0, 0, "accept") == "applied", "nothing was settled, and it is still held"


def _send(port: int, request: bytes) -> Answered | None:
    """None: the gateway has refused it before it took all, and closed the connection."""
    with Raw(port, timeout_s=60) as line, contextlib.suppress(OSError):
        line.send_until_refused([request])
        return line.answer("POST")
    return None
