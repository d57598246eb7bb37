"""Transactions over HTTP: begin, produce, commit, abort, an operator's abort, and what is refused."""

import asyncio
import uuid
from typing import Any

import pytest

from sharequeue.protocol.errors import BY_NUMBER
from tests.http.calls import Gateway, good, wait_until
from tests.http.calls import problem as told
from tests.storage.database import session


def problem(answer: Any, status: int, code: int) -> dict[str, Any]:
    found: dict[str, Any] = told(answer, status, BY_NUMBER[code].code, code)
    return found


def begin(gateway: Gateway, **body: Any) -> dict[str, Any]:
    answer = gateway.http.post("/v1/transactions", json=body)
    assert answer.status_code == 201, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


def produce(gateway: Gateway, topic: str, transaction_id: str, *values: object, **headers: str) -> Any:
    records = [{"value": value} for value in values]
    headers = {"Transaction-Id": transaction_id} | headers
    return gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records}, headers=headers)


def end(gateway: Gateway, transaction_id: str, how: str, **body: Any) -> Any:
    return gateway.http.post(f"/v1/transactions/{transaction_id}/{how}", json=body)


def bounds(gateway: Gateway, topic: str) -> tuple[int, int]:
    """The last stable offset and the log end of partition 0."""
    (partition,) = good(gateway.http.get(f"/v1/topics/{topic}"))["partitions"]
    return partition["last_stable_offset"], partition["log_end_offset"]


def test_a_description_names_the_share_partitions_that_it_blocks(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 2)
    groups = f"{name}-c", f"{name}-u"
    gateway.configure(groups[0], share_isolation_level="read_committed")
    for group in groups:
        gateway.fetch(group, name)

    def blocks(transaction_id: str) -> Any:
        described = good(gateway.http.get(f"/v1/transactions/{transaction_id}"))
        assert "more_blocked" not in described
        return [(each["group_id"], each["topic"], each["partition"]) for each in described["blocks"]]

    first, second = (begin(gateway)["transaction_id"] for _ in range(2))
    assert blocks(first) == [], "it wrote nothing"
    records = {"records": [{"value": 1, "partition": 1}]}
    for transaction_id in (first, second):
        good(gateway.http.post(f"/v1/topics/{name}/records", json=records, headers={"Transaction-Id": transaction_id}))
    assert blocks(first) == [(groups[0], name, 1)]
    assert blocks(second) == [], "the first one is older there"
    good(end(gateway, first, "commit"))
    assert blocks(second) == [(groups[0], name, 1)]
    described = good(gateway.http.get(f"/v1/transactions/{first}"))
    assert "blocks" not in described
    good(end(gateway, second, "abort"))


def test_a_transaction_is_committed(gateway: Gateway, name: str) -> None:
    begun = begin(gateway)
    assert (begun["producer_epoch"], begun["timeout_ms"]) == (0, 60_000)
    assert "transactional_id" not in begun
    transaction = begun["transaction_id"]
    first = produce(gateway, name, transaction, 1, 2)
    assert good(first)["records"] == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]
    assert first.headers["transaction-id"] == transaction
    raw = gateway.http.post(
        f"/v1/topics/{name}/records/raw",
        content=b"3",
        headers={"Transaction-Id": transaction, "Content-Type": "text/plain"},
    )
    assert raw.headers["transaction-id"] == transaction
    assert bounds(gateway, name) == (0, 3)
    described = good(gateway.http.get(f"/v1/transactions/{transaction}"))
    (partition,) = described["partitions"]
    assert (described["state"], partition["topic"], partition["partition"], partition["first_offset"]) == (
        "open",
        name,
        0,
        0,
    )
    committed = good(end(gateway, transaction, "commit", note="batch 1"))
    assert (committed["state"], committed["reason"], committed["partitions"]) == ("committed", "client", 1)
    assert good(end(gateway, transaction, "commit")) == committed, "a repeat is answered the same"
    assert bounds(gateway, name) == (4, 4)
    described = good(gateway.http.get(f"/v1/transactions/{transaction}"))
    assert (described["state"], described["reason"], described["partitions"]) == ("committed", "client", [])
    refused = problem(end(gateway, transaction, "abort"), 409, 48)
    assert (refused["state"], refused["reason"], refused["transaction_id"]) == ("committed", "client", transaction)
    late = problem(produce(gateway, name, transaction, 4), 409, 48)
    assert (late["state"], late["definite"], late["retriable"]) == ("committed", True, False)


@pytest.mark.parametrize(
    "transaction", ["x", "%00", "A" * 300, str(uuid.UUID(int=0)), str(uuid.UUID(int=10**30)).upper()]
)
def test_a_transaction_that_is_not_known(gateway: Gateway, name: str, transaction: str) -> None:
    for how in ("commit", "abort", "terminate"):
        problem(end(gateway, transaction, how), 404, 105)
    problem(gateway.http.get(f"/v1/transactions/{transaction}"), 404, 105)
    if "%" not in transaction:
        assert problem(produce(gateway, name, transaction, 1), 404, 105)["definite"] is True


def test_a_note_is_bounded(gateway: Gateway) -> None:
    transaction = begin(gateway)["transaction_id"]
    problem(end(gateway, transaction, "commit", note="x" * 257), 422, 42)
    good(end(gateway, transaction, "commit", note="x" * 256))


def test_open_and_ended_transactions_have_metrics(gateway: Gateway, name: str) -> None:
    ended = 'sharequeue_transactions_ended_total{reason="administrator",state="aborted"}'
    timed = "sharequeue_transaction_end_seconds_count"
    before = gateway.metrics()
    transaction = begin(gateway)["transaction_id"]
    good(produce(gateway, name, transaction, 1))
    wait_until(lambda: gateway.metrics()["sharequeue_oldest_open_transaction_seconds"] > 0)
    assert gateway.metrics()["sharequeue_open_transactions"] >= 1
    for _ in range(2):
        good(end(gateway, transaction, "terminate"))
    after = gateway.metrics()
    assert after[ended] - before.get(ended, 0) == 1
    assert after[timed] - before[timed] >= 1
    assert "sharequeue_stability_questions_total" in after


def test_open_transactions_are_listed_oldest_first_by_pages(gateway: Gateway, name: str) -> None:
    def listed(**query: Any) -> Any:
        return good(gateway.http.get("/v1/transactions", params=query))

    first, *others = [begin(gateway)["transaction_id"] for _ in range(4)]
    begun = begin(gateway, transactional_id=name, timeout_ms=30_000)
    named = begun["transaction_id"]
    good(produce(gateway, name, named, 1))
    (row,) = listed(transactional_id=name)["transactions"]
    assert row.pop("age_ms") >= 0
    assert row.pop("began_at_ms") > 0
    assert row == {
        "transaction_id": named,
        "transactional_id": name,
        "producer_epoch": begun["producer_epoch"],
        "timeout_ms": 30_000,
        "partitions": 1,
    }
    seen: list[str] = []
    page = listed(page_size=1)
    while True:
        assert len(page["transactions"]) == 1
        seen += [each["transaction_id"] for each in page["transactions"]]
        if "next_page_token" not in page:
            break
        page = listed(page_size=1, page_token=page["next_page_token"])
    assert [each for each in seen if each in (first, *others, named)] == [first, *others, named]
    assert len(seen) == len(set(seen))
    assert listed(older_than_ms=3_600_000) == {"transactions": []}
    for transaction in (first, *others, named):
        good(end(gateway, transaction, "abort"))
    assert listed(transactional_id=name) == {"transactions": []}
    for token in ("x", "WzEsMl0=", "WyIyMDI2LTExLTIyVDE3OjAwOjAwIiwieCJd"):
        problem(gateway.http.get("/v1/transactions", params={"page_token": token}), 422, 42)


def test_readiness_names_a_transaction_that_stays_open(gateway: Gateway, shared_database: str, name: str) -> None:
    transaction = begin(gateway, transactional_id=name)["transaction_id"]
    good(produce(gateway, name, transaction, 1))

    async def age() -> None:
        async with session(shared_database) as connection:
            await connection.execute(
                "UPDATE log.transactions SET began_at = began_at - interval '1 day' WHERE transaction_id = $1",
                transaction,
            )

    def told() -> str:
        answer = good(gateway.http.get("/readyz"))
        assert answer["status"] == "ready", "it stops no call"
        return str(answer["dependencies"].get("transactions", ""))

    asyncio.run(age())
    wait_until(lambda: transaction in told())
    assert f"{name!r}: open for 864" in told()
    assert "wrote to 1 partitions" in told()
    good(end(gateway, transaction, "terminate"))
    wait_until(lambda: transaction not in told())


def test_ended_transactions_are_listed_last_first_by_pages(gateway: Gateway, name: str) -> None:
    def listed(**query: Any) -> Any:
        return good(gateway.http.get("/v1/transactions", params=query))

    def ids(page: dict[str, Any]) -> list[str]:
        return [each["transaction_id"] for each in page.get("ended", [])]

    made: dict[str, list[str]] = {"commit": [], "abort": []}
    for number in range(6):
        how = "abort" if number % 2 else "commit"
        begun = begin(gateway, transactional_id=f"{name}-{number}")
        good(produce(gateway, name, begun["transaction_id"], 1))
        good(end(gateway, begun["transaction_id"], how))
        made[how].insert(0, begun["transaction_id"])
    newest = listed(state="aborted", page_size=1)
    (row,) = newest["ended"]
    assert 0 < row.pop("began_at_ms") <= row.pop("ended_at_ms")
    assert row.pop("producer_epoch") > 0
    assert (row, newest["transactions"]) == (
        {
            "transaction_id": made["abort"][0],
            "transactional_id": f"{name}-5",
            "state": "aborted",
            "reason": "client",
            "partitions": 1,
        },
        [],
    )
    for how, state in (("commit", "committed"), ("abort", "aborted")):
        assert ids(listed(state=state, transactional_id_prefix=name)) == made[how]
        seen: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = listed(state=state, transactional_id_prefix=name, page_size=1, **token)
            seen += ids(page)
            if "next_page_token" not in page:
                break
            token = {"page_token": page["next_page_token"]}
        assert seen == made[how]
    assert ids(listed(state="committed", transactional_id=f"{name}-2")) == [made["commit"][1]]
    assert listed(state="committed", transactional_id=f"{name}-5") == {"transactions": []}
    assert listed(state="aborted", older_than_ms=3_600_000) == {"transactions": []}
    problem(gateway.http.get("/v1/transactions", params={"state": "ended"}), 422, 42)
