"""Settle and produce together: a commit with acknowledgements, and an acknowledgement with records."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from sharequeue.protocol.errors import BY_NUMBER
from tests.http.calls import Gateway, Json, acknowledge_range, good, outcomes, wait_until
from tests.http.calls import problem as told
from tests.http.test_transactions import begin, end, produce


def problem(answer: Any, status: int, code: int) -> dict[str, Any]:
    found: dict[str, Any] = told(answer, status, BY_NUMBER[code].code, code)
    return found


def group_with(gateway: Gateway, topic: str, records: int, *, group: str = "workers", **config: Any) -> str:
    """A group that holds `records` records of a new topic. Returns: the name of a topic for results."""
    group = f"{topic}-{group}"
    gateway.create_topic(topic)
    gateway.create_topic(f"{topic}-out")
    gateway.configure(group, share_auto_offset_reset="earliest", **config)
    gateway.produce(topic, *range(records))
    assert gateway.acquire(group, topic, max_records=records) == [f"0-{records - 1}×1"]
    return group


def commit(
    gateway: Gateway, transaction: str, group: str, *acknowledgements: Json, member: str = "m1", **body: Any
) -> Any:
    entry = {"group_id": group, "member_id": member, "acknowledgements": list(acknowledgements)}
    return end(gateway, transaction, "commit", acknowledgements=[entry], **body)


def values(gateway: Gateway, topic: str) -> list[Any]:
    """What readers of committed records see."""
    page = gateway.http.get(f"/v1/topics/{topic}/partitions/0/records", params={"isolation_level": "read_committed"})
    return [record["value"] for record in good(page)["records"]]


def accept(topic: str, first: int, last: int, **fields: Any) -> Json:
    return acknowledge_range(topic, first, last, "accept", delivery_count=1, **fields)


def test_a_commit_settles_what_its_client_consumed(gateway: Gateway, name: str) -> None:
    group = group_with(gateway, name, 10)
    transaction = begin(gateway)["transaction_id"]
    good(produce(gateway, f"{name}-out", transaction, "a", "b"))
    acknowledgements = [
        accept(name, 0, 3),
        acknowledge_range(name, 4, 5, "release", delay_ms=60_000),
        acknowledge_range(name, 6, 7, "accept reject", reason="odd"),
    ]
    committed = good(commit(gateway, transaction, group, *acknowledgements))
    assert (committed["state"], committed["partitions"]) == ("committed", 1)
    assert values(gateway, f"{name}-out") == ["a", "b"]
    settled = ["4-5 AVAILABLE×1", "6-6 ACKNOWLEDGED×1", "7-7 ARCHIVED×1", "8-9 ACQUIRED×1"]
    assert wait_until(lambda: gateway.window(group, name) == (4, settled)), "the rejected one after its dead letter"
    assert gateway.acquire(group, name, member="m2", max_wait_ms=0) == [], "a delay of a commit holds, too"
    assert good(commit(gateway, transaction, group, *acknowledgements)) == committed, "a repeat is answered the same"
    other = problem(commit(gateway, transaction, group, accept(name, 8, 9)), 409, 48)
    assert (other["state"], other["definite"]) == ("committed", True)
    assert problem(end(gateway, transaction, "commit"), 409, 48)["state"] == "committed", "none is other ones too"
    assert gateway.settle(group, name, 8, 9, "accept") == "applied", "what the commit left is still held"
    described = good(gateway.http.get(f"/v1/transactions/{transaction}"))
    assert described.get("unapplied", []) == []


def test_one_refusal_settles_nothing_and_aborts(gateway: Gateway, name: str) -> None:
    group = group_with(gateway, name, 10)
    transaction = begin(gateway)["transaction_id"]
    good(produce(gateway, f"{name}-out", transaction, "a"))
    good(gateway.try_acknowledge(group, [accept(name, 9, 9)]))
    refused = problem(commit(gateway, transaction, group, accept(name, 0, 3), accept(name, 9, 9)), 409, 48)
    assert [(result["status"], result["kafka_code"]) for result in refused["results"]] == [
        ("failed", 48),
        ("failed", 121),
    ]
    assert (refused["state"], refused["reason"], refused["failed_count"]) == ("aborted", "refused", 2)
    assert (refused["definite"], refused["retriable"]) == (True, False)
    assert values(gateway, f"{name}-out") == []
    assert problem(commit(gateway, transaction, group, accept(name, 0, 3)), 409, 48)["reason"] == "refused"
    again = wait_until(lambda: gateway.settle(group, name, 0, 3, "accept") == "applied")
    assert again, "the member still holds them"


@pytest.mark.parametrize("types", [{"type": "renew"}, {"types": ["accept", "renew"]}])
def test_a_renewal_is_refused_and_leaves_the_transaction_open(gateway: Gateway, name: str, types: Json) -> None:
    group = group_with(gateway, name, 2)
    transaction = begin(gateway)["transaction_id"]
    renewal = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 1, **types}
    problem(commit(gateway, transaction, group, renewal), 422, 42)
    assert good(commit(gateway, transaction, group, accept(name, 0, 1)))["state"] == "committed"


def test_records_pending_on_another_transaction(gateway: Gateway, shared_data_dir: Path, name: str) -> None:
    """A commit whose gateway died leaves them pending; here the transaction of a hold stays open."""
    group = group_with(gateway, name, 4)
    first, second = begin(gateway, timeout_ms=1500)["transaction_id"], begin(gateway)["transaction_id"]
    hold(gateway, shared_data_dir, group, first, accept(name, 0, 3))
    (batch,) = gateway.in_flight(group, topic=name)[0]["batches"]
    assert (batch["delivery_state"], batch["transaction_id"]) == ("ACQUIRED", first)
    assert outcomes(gateway.try_acknowledge(group, [accept(name, 0, 3)])) == [121], "nobody else settles them"
    assert gateway.metrics()["sharequeue_pending_records"] == 4
    assert wait_until(lambda: 0 < gateway.metrics()["sharequeue_oldest_pending_seconds"] < 60)
    assert good(commit(gateway, second, group, accept(name, 0, 3)))["state"] == "committed", (
        "after the time-out of first"
    )
    assert gateway.offsets(group)[name, 0] == (4, 0)
    assert gateway.metrics()["sharequeue_oldest_pending_seconds"] == 0


def hold(
    gateway: Gateway, data_dir: Path, group: str, transaction: str, *acknowledgements: Json, member: str = "m1"
) -> Json:
    """As a gateway that dies before it commits."""
    body = {"member_id": member, "transaction_id": transaction, "acknowledgements": list(acknowledgements)}
    token = (data_dir / "cluster.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    answer = good(gateway.http.post(f"/v1/leader/{group}/hold", json=body, headers=headers))
    assert [result["status"] for result in answer["results"]] == ["applied"] * len(acknowledgements)
    held: Json = answer
    return held


def test_an_acknowledgement_carries_records(gateway: Gateway, name: str) -> None:
    group = group_with(gateway, name, 5)
    produce_to = [{"topic": f"{name}-out", "records": [{"value": "a", "key": "k"}, {"value": "b"}]}]
    answer = good(gateway.try_acknowledge(group, [accept(name, 0, 1)], produce=produce_to))
    assert [result["status"] for result in answer["results"]] == ["applied"]
    assert answer["produced"] == [
        {"topic": f"{name}-out", "records": [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]}
    ]
    assert gateway.log_ends(f"{name}-out") == [2], "no marker, and never uncommitted"
    assert gateway.offsets(group)[name, 0] == (2, 3)
    refused = problem(gateway.try_acknowledge(group, [accept(name, 1, 2)], produce=produce_to), 409, 121)
    assert [result["kafka_code"] for result in refused["results"]] == [121]
    assert gateway.log_ends(f"{name}-out") == [2]
    assert gateway.settle(group, name, 2, 4, "accept") == "applied"


def test_a_repeat_with_its_key_gets_the_first_answer(gateway: Gateway, name: str) -> None:
    group = group_with(gateway, name, 5)
    body = {
        "member_id": "m1",
        "acknowledgements": [accept(name, 0, 4)],
        "produce": [{"topic": f"{name}-out", "records": [{"value": 1}]}],
    }
    key = {"Idempotency-Key": str(uuid.uuid4())}
    url = f"/v1/share-groups/{group}/acknowledge"
    first = gateway.http.post(url, json=body, headers=key)
    assert good(first)["produced"][0]["records"] == [{"partition": 0, "offset": 0}]
    again = gateway.http.post(url, json=body, headers=key)
    assert again.content == first.content
    assert gateway.log_ends(f"{name}-out") == [1]
    problem(gateway.http.post(url, json=body), 409, 121)
    body["produce"] = [{"topic": f"{name}-out", "records": [{"value": 2}]}]
    problem(gateway.http.post(url, json=body, headers=key), 422, 42)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"share_session_epoch": 1}, 42),
        ({"produce": [{"topic": "t", "records": [{"value": 1}]}, {"topic": "t", "records": [{"value": 1}]}]}, 42),
        ({"produce": [{"topic": "t", "records": []}]}, 42),
        ({"produce": [{"topic": "t", "records": [{"value": 1, "value_base64": "AA=="}]}]}, 42),
    ],
)
def test_unfit_requests_with_records_are_refused(gateway: Gateway, name: str, change: Json, code: int) -> None:
    group = group_with(gateway, name, 1)
    fields = {"produce": [{"topic": f"{name}-out", "records": [{"value": 1}]}]} | change
    found = problem(gateway.try_acknowledge(group, [accept(name, 0, 0)], **fields), 422, code)
    assert found["definite"]
    assert gateway.settle(group, name, 0, 0, "accept") == "applied"


def test_a_commit_of_a_transaction_that_wrote_nothing_settles(gateway: Gateway, name: str) -> None:
    group = group_with(gateway, name, 3)
    transaction = begin(gateway)["transaction_id"]
    committed = good(commit(gateway, transaction, group, accept(name, 0, 2)))
    assert committed["partitions"] == 0
    assert gateway.offsets(group)[name, 0] == (3, 0)
    assert good(commit(gateway, transaction, group, accept(name, 0, 2))) == committed


def test_groups_and_members_settle_in_one_commit(gateway: Gateway, name: str) -> None:
    one = group_with(gateway, name, 4)
    other = f"{name}-others"
    gateway.configure(other, share_auto_offset_reset="earliest")
    for member in ("a", "b"):
        gateway.acquire(other, name, member=member, max_records=2)
    transaction = begin(gateway)["transaction_id"]
    entries = [
        {"group_id": one, "member_id": "m1", "acknowledgements": [accept(name, 0, 3)]},
        {"group_id": other, "member_id": "a", "acknowledgements": [accept(name, 0, 1)]},
        {"group_id": other, "member_id": "b", "acknowledgements": [accept(name, 2, 3)]},
    ]
    good(end(gateway, transaction, "commit", acknowledgements=entries))
    assert [gateway.offsets(group)[name, 0] for group in (one, other)] == [(4, 0), (4, 0)]
