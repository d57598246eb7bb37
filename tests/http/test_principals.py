"""What belongs to a principal: transactions and idempotency keys; and fetches and streams, which end with their key."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.event_source import EventSource
from tests.http.access import SETTINGS, Access, caller
from tests.http.calls import Gateway, acknowledge_range, good, problem, ranges, wait_until

WITHIN_MS = 30_000
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
As = Callable[..., Gateway]


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    bounds = {"OPEN_TRANSACTIONS": "20", "WAITING_FETCHES": "8", "STREAMS": "20"}
    return {**SETTINGS, **{f"SHAREQUEUE_GATEWAY_MAX_{name}": bound for name, bound in bounds.items()}}


@pytest.fixture
def by(stack: Stack, access: Access, name: str) -> Iterator[Callable[[str], Gateway]]:
    """The gateway, called with a key."""
    with ExitStack() as open_ones:
        yield lambda key: open_ones.enter_context(caller(stack, key))


@pytest.fixture
def team(access: Access, admin: Gateway, name: str) -> str:
    """A principal that may use the topic and the group of the test's name, and transactional ids that begin with it."""
    principal = f"User:{name}"
    for operation, kind in (("READ", "TOPIC"), ("WRITE", "TOPIC"), ("READ", "GROUP")):
        access.allow(principal, operation, kind, name)
    access.allow(principal, "WRITE", "TRANSACTIONAL_ID", name, "PREFIXED")
    admin.create_topic(name)
    admin.configure(name, share_auto_offset_reset="earliest")
    return principal


def later(call: Callable[[], Any]) -> "Future[Any]":
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as fault:
            future.set_exception(fault)

    threading.Thread(target=run, daemon=True).start()
    return future


def waits(admin: Gateway, group: str, member: str = "m1") -> None:
    """Wait until a member's fetch has come, and a moment more."""

    def there() -> bool:
        answer = admin.http.get(f"/v1/share-groups/{group}")
        return any(each["member_id"] == member for each in answer.json().get("workers", ()))

    wait_until(there)
    wait_until(lambda: admin.metrics()["sharequeue_waiting_fetches"] >= 1)


def produce(gateway: Gateway, topic: str, *values: Any, **headers: str) -> httpx.Response:
    return gateway.http.post(
        f"/v1/topics/{topic}/records",
        json={"records": [{"value": value} for value in values]},
        headers={key.replace("_", "-"): value for key, value in headers.items()},
    )


# Transactions and idempotency keys


def test_anothers_transaction_is_as_one_that_never_began(
    access: Access, admin: Gateway, by: As, team: str, name: str
) -> None:
    mine, other = by(access.key(team)), by(access.key(f"User:other.{name}"))
    for operation in ("READ", "WRITE"):
        access.allow(f"User:other.{name}", operation, "TOPIC", name)
    access.allow(f"User:other.{name}", "READ", "GROUP", name)
    entry = acknowledge_range(name, 0, 0, "accept")
    settling = {"acknowledgements": [{"group_id": name, "member_id": "m", "acknowledgements": [entry]}]}
    for named in ({}, {"transactional_id": f"{name}-1"}):
        begun = good(mine.http.post("/v1/transactions", json=named), 201)["transaction_id"]
        good(produce(mine, name, 1, transaction_id=begun))
        for call in (
            lambda it: produce(other, name, 2, transaction_id=it),
            lambda it: other.http.post("/v1/transactions", json={"part_of": it}),
            lambda it: other.http.post(f"/v1/transactions/{it}/commit", json={}),
            lambda it: other.http.post(f"/v1/transactions/{it}/commit", json=settling),
            lambda it: other.http.post(f"/v1/transactions/{it}/abort", json={}),
            lambda it: other.http.get(f"/v1/transactions/{it}"),
        ):
            answers = [call(it).json() for it in (begun, UNKNOWN_ID)]
            for answer, it in zip(answers, (begun, UNKNOWN_ID), strict=True):
                answer.pop("request_id")
                answer["detail"], answer["transaction_id"] = answer["detail"].replace(it, "…"), None
                answer["instance"] = None
            assert answers[0] == answers[1]
            assert answers[0]["code"] == "TRANSACTIONAL_ID_NOT_FOUND"
        assert begun not in other.http.get("/v1/transactions").text
        assert begun in mine.http.get("/v1/transactions").text
        assert begun in admin.http.get("/v1/transactions").text
        problem(
            other.http.post(f"/v1/transactions/{begun}/terminate", json={}), 403, "CLUSTER_AUTHORIZATION_FAILED", 31
        )
        assert good(mine.http.get(f"/v1/transactions/{begun}"))["state"] == "open"
        good(by(access.key(team)).http.post(f"/v1/transactions/{begun}/commit", json={}))
    refused = other.http.post("/v1/transactions", json={"transactional_id": f"{name}-1"})
    problem(refused, 403, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 53)


def test_an_equal_idempotency_key_of_another_principal_is_another_key(
    access: Access, by: As, team: str, name: str
) -> None:
    access.allow(f"User:other.{name}", "WRITE", "TOPIC", name)
    mine, again, other = by(access.key(team)), by(access.key(team)), by(access.key(f"User:other.{name}"))
    offsets = [
        good(produce(gateway, name, 1, idempotency_key="k"))["records"][0]["offset"] for gateway in (mine, other, again)
    ]
    assert offsets == [0, 1, 0]


def test_one_principal_has_half_of_the_open_transactions(access: Access, admin: Gateway, by: As, team: str) -> None:
    mine = by(access.key(team))
    other = good(admin.http.post("/v1/transactions", json={}), 201)["transaction_id"]
    begun = [good(mine.http.post("/v1/transactions", json={}), 201)["transaction_id"] for _ in range(10)]
    refused = mine.http.post("/v1/transactions", json={})
    assert refused.status_code == 429
    assert f"{team} has 10 open transactions" in refused.json()["detail"]
    good(admin.http.post(f"/v1/transactions/{other}/abort", json={}))
    for transaction_id in begun:
        good(mine.http.post(f"/v1/transactions/{transaction_id}/abort", json={}))


# A key ends


@pytest.mark.parametrize("session", [None, 0])
@pytest.mark.parametrize("how", ["revoked", "ended", "right"])
def test_a_waiting_fetch_ends_with_its_access(
    access: Access, admin: Gateway, by: As, team: str, name: str, how: str, session: int | None
) -> None:
    ends = {"expires_at_ms": int(time.time() * 1000) + 4000} if how == "ended" else {}
    key = access.key(team, **ends)
    fields = {} if session is None else {"share_session_epoch": session}
    waiting = later(lambda: by(key).try_fetch(name, name, max_wait_ms=WITHIN_MS, **fields))
    waits(admin, name)
    if how == "revoked":
        access.revoke(key)
    elif how == "right":
        access.withdraw(
            {
                "principal": team,
                "operation": "READ",
                "resource_type": "TOPIC",
                "resource_name": name,
                "pattern_type": "LITERAL",
            }
        )
    answer = waiting.result(WITHIN_MS / 1000 + 30)
    if how == "right":
        problem(answer, 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    else:
        problem(answer, 401, "SASL_AUTHENTICATION_FAILED", 58)
    admin.produce(name, 1)
    assert admin.acquire(name, name, member="m2") == ["0-0×1"], "it had acquired nothing"


def test_a_fetch_that_ends_with_its_key_tells_what_became_of_its_acknowledgements(
    access: Access, admin: Gateway, by: As, team: str, name: str
) -> None:
    admin.produce(name, 1)
    key = access.key(team)
    assert by(key).acquire(name, name) == ["0-0×1"]
    accept = [acknowledge_range(name, 0, 0, "accept")]
    waiting = later(lambda: by(key).try_fetch(name, name, max_wait_ms=WITHIN_MS, acknowledgements=accept))
    wait_until(lambda: admin.window(name, name)[0] == 1)
    wait_until(lambda: admin.metrics()["sharequeue_waiting_fetches"] >= 1)
    access.revoke(key)
    answer = good(waiting.result(WITHIN_MS / 1000 + 30))
    assert [result["status"] for result in answer["acknowledgement_results"]] == ["applied"]
    assert answer["batches"] == []


def test_a_stream_opened_by_another_shows_only_topics_that_it_may_read(
    stack: Stack, access: Access, admin: Gateway, team: str, name: str
) -> None:
    other = f"User:other.{name}"
    admin.create_topic(f"{name}.open")
    for operation, kind, what in (("READ", "GROUP", name), ("READ", "TOPIC", f"{name}.open")):
        access.allow(other, operation, kind, what)
    admin.produce(name, "secret")
    theirs = {"Authorization": f"Bearer {access.key(team)}"}
    source = EventSource(stack.url, name, name, headers=theirs, resume_ms=WITHIN_MS)
    assert ranges(source.next().data) == ["0-0×1"]
    taken = EventSource(
        stack.url, name, f"{name}.open", headers={"Authorization": f"Bearer {access.key(other)}"}, resume_ms=WITHIN_MS
    )
    admin.produce(f"{name}.open", "for all")
    event = taken.next()
    while not event.data.get("batches"):
        event = taken.next()
    assert {batch["topic"] for batch in event.data["batches"]} == {f"{name}.open"}
    taken.cut()


def test_records_that_were_answered_stay_with_their_member(
    access: Access, admin: Gateway, by: As, team: str, name: str
) -> None:
    admin.produce(name, 1, 2)
    key = access.key(team)
    assert by(key).acquire(name, name, max_records=1) == ["0-0×1"]
    access.revoke(key)
    access.until_known()
    assert admin.window(name, name)[1][0] == "0-0 ACQUIRED×1"


@pytest.mark.parametrize("other_key", [True, False])
def test_a_stream_ends_with_its_key_and_another_key_resumes_it(
    stack: Stack, access: Access, admin: Gateway, team: str, name: str, other_key: bool
) -> None:
    key = access.key(team)
    second = access.key(team) if other_key else None
    admin.produce(name, 1)
    source = EventSource(stack.url, name, name, headers={"Authorization": f"Bearer {key}"}, resume_ms=WITHIN_MS)
    event = source.next()
    assert ranges(event.data) == ["0-0×1"]
    access.revoke(key)
    assert source.ended()
    if second is None:
        wait_until(lambda: admin.window(name, name)[1] == ["0-0 AVAILABLE×1"], WITHIN_MS / 1000 - 5)
        return
    assert admin.window(name, name)[1] == ["0-0 ACQUIRED×1"]
    again = EventSource(
        stack.url, name, name, headers={"Authorization": f"Bearer {second}"}, resume_ms=WITHIN_MS, last_id=event.id
    )
    admin.produce(name, 2)
    assert ranges(again.next().data) == ["1-1×1"]
    again.cut()


@pytest.mark.parametrize("how", ["revoked", "ended"])
def test_what_an_interrupted_stream_holds_is_released_when_its_principal_has_no_key(
    stack: Stack, access: Access, admin: Gateway, team: str, name: str, how: str
) -> None:
    """Its connection was lost, and is not watched any more. Neither its lock nor `resume_ms` ends within the test."""
    long_ms = 600_000
    admin.configure(name, share_record_lock_duration_ms=str(long_ms))
    key = access.key(team)
    admin.produce(name, 1)
    source = EventSource(stack.url, name, name, headers={"Authorization": f"Bearer {key}"}, resume_ms=long_ms)
    assert ranges(source.next().data) == ["0-0×1"]
    source.cut()
    wait_until(lambda: admin.metrics()["sharequeue_streams"] == 0)
    overlap = {"overlap_ms": 3000 if how == "ended" else long_ms}
    second = good(admin.http.post(f"/v1/keys/{key.split('_')[1]}/rotate", json=overlap), 201)["key"]
    access.revoke(second)
    access.until_known()
    assert admin.window(name, name)[1] == ["0-0 ACQUIRED×1"], "another key may resume it"
    if how == "revoked":
        access.revoke(key)
    wait_until(lambda: admin.window(name, name)[1] == ["0-0 AVAILABLE×1"])


def test_keys_are_rotated_under_load_and_nothing_is_delivered_twice(
    stack: Stack, access: Access, admin: Gateway, team: str, name: str
) -> None:
    keys = [access.key(team)]
    produced, stop = 400, threading.Event()
    seen: Counter[int] = Counter()

    def work(member: str) -> None:
        with caller(stack, None) as gateway:
            while not stop.is_set():
                gateway.http.headers["Authorization"] = f"Bearer {keys[-1]}"
                answer = gateway.try_fetch(name, name, member=member, max_records=3, max_wait_ms=1000)
                if answer.status_code == 401:
                    continue
                for batch in good(answer)["batches"]:
                    seen.update(record["value"] for record in batch["records"])
                    entry = {part: value for part, value in batch.items() if part != "records"} | {"type": "accept"}
                    while gateway.try_acknowledge(name, [entry], member=member).status_code == 401:
                        gateway.http.headers["Authorization"] = f"Bearer {keys[-1]}"

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, f"m{number}") for number in range(3)]
        try:
            for first in range(0, produced, 40):
                admin.produce(name, *range(first, first + 40))
                keys.append(access.key(team))
                access.revoke(keys[-2])
                access.until_known()
            wait_until(lambda: len(seen) == produced)
        finally:
            stop.set()
        for worker in workers:
            worker.result(60)
    assert set(seen.values()) == {1}


def test_one_principal_has_half_of_the_waiting_fetches(
    access: Access, admin: Gateway, by: As, team: str, name: str
) -> None:
    mine = by(access.key(team))
    with ThreadPoolExecutor(8) as pool:
        admins = pool.submit(lambda: admin.try_fetch(name, name, member="admin", max_wait_ms=8000))
        waits(admin, name, "admin")
        fetches = [
            pool.submit(lambda n=n: mine.try_fetch(name, name, member=f"m{n}", max_wait_ms=6000)) for n in range(6)
        ]
        statuses = Counter(fetch.result(60).status_code for fetch in fetches)
        assert statuses == {200: 4, 429: 2}
        (refused, *_) = [fetch.result().json() for fetch in fetches if fetch.result().status_code == 429]
        assert f"{team} has 4 waiting fetches" in refused["detail"]
        good(admins.result(60))


def test_one_principal_has_half_of_the_streams(
    stack: Stack, access: Access, admin: Gateway, by: As, team: str, name: str
) -> None:
    mine = by(access.key(team))
    with ExitStack() as open_ones:
        for gateway, member in ((admin, "admin"), *((mine, f"m{number}") for number in range(10))):
            headers = {"Authorization": gateway.http.headers["authorization"]}
            source = EventSource(stack.url, name, name, member=member, headers=headers, resume_ms=0)
            open_ones.callback(source.cut)
        refused = mine.http.get(
            f"/v1/share-groups/{name}/stream",
            params={"topic": name, "member_id": "m10"},
            headers={"accept": "text/event-stream"},
        )
        assert f"{team} has 10 streams" in problem(refused, 429, "THROTTLING_QUOTA_EXCEEDED", 89)["detail"]
