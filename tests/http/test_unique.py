"""Produce with `unique`: one record for each key within a time, whatever the values."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.http.calls import Gateway, Json, good, problem, wait_until

DAY_MS = 86_400_000


def send(gateway: Gateway, topic: str, *records: Json, within_ms: int = DAY_MS, **headers: str) -> httpx.Response:
    body = {"records": list(records), "unique": {"within_ms": within_ms}}
    return gateway.http.post(f"/v1/topics/{topic}/records", json=body, headers=headers)


def send_until(gateway: Gateway, topic: str, key: str = "a", **unique: object) -> Json:
    """Send one record that is unique until the group of the topic's name has finished it. Returns: its place."""
    body = {"records": [record(key)], "unique": {"until_group": topic, **unique}}
    (place,) = good(gateway.http.post(f"/v1/topics/{topic}/records", json=body))["records"]
    return dict(place)


def record(key: str, value: object = 1) -> Json:
    return {"key": key, "value": value}


def test_a_repeat_is_answered_with_the_first_place_whatever_its_value(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 4)
    first = good(send(gateway, name, record("a"), record("b"), record("a", 2)))["records"]
    assert first[2] == {**first[0], "duplicate": True}
    assert "duplicate" not in first[0].keys() | first[1].keys()
    again = good(send(gateway, name, record("c"), record("b", 3), record("a", 4)))["records"]
    assert again[1:] == [{**first[1], "duplicate": True}, {**first[0], "duplicate": True}]
    assert good(send(gateway, name, {"key_base64": "YQ==", "value": 9}))["records"] == [{**first[0], "duplicate": True}]
    assert sum(gateway.log_ends(name)) == 3
    gateway.produce(name, 5, key="a")
    assert sum(gateway.log_ends(name)) == 4, "without unique it is appended"


def test_a_key_counts_until_its_time_has_passed(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    assert good(send(gateway, name, record("a"), within_ms=1))["records"] == [{"partition": 0, "offset": 0}]
    assert good(send(gateway, name, record("b")))["records"] == [{"partition": 0, "offset": 1}]
    assert good(send(gateway, name, record("a")))["records"] == [{"partition": 0, "offset": 2}]
    assert good(send(gateway, name, record("a"), within_ms=1))["records"][0]["duplicate"]


def test_of_requests_at_once_one_appends(gateway: Gateway, name: str, background: ThreadPoolExecutor) -> None:
    gateway.create_topic(name)
    for n in range(10):
        keys = [record(f"{n}-{k}") for k in range(20)]
        sent = [background.submit(send, gateway, name, *(keys if half else keys[::-1])) for half in (0, 1, 0, 1)]
        answers = [good(each.result())["records"] for each in sent]
        assert sum("duplicate" not in each for answer in answers for each in answer) == 20
    assert gateway.log_ends(name) == [200]


def test_until_group_a_key_counts_until_its_record_is_finished(gateway: Gateway, name: str) -> None:
    """The records in front of it are not: the start offset of the group does not move."""
    gateway.create_topic(name)
    gateway.produce(name, "in front")
    first = send_until(gateway, name)
    repeat = {**first, "duplicate": True}
    assert send_until(gateway, name) == repeat, "not fetched yet"
    assert gateway.acquire(name, name) == ["0-1×1"]
    assert send_until(gateway, name) == repeat, "held"
    assert gateway.settle(name, name, 1, 1, "release") == "applied"
    assert send_until(gateway, name) == repeat, "released"
    assert gateway.acquire(name, name) == ["1-1×2"]
    assert gateway.settle(name, name, 1, 1, "accept") == "applied"
    assert good(send(gateway, name, record("a")))["records"] == [repeat], "within_ms asks no group"
    assert send_until(gateway, name) == {"partition": 0, "offset": 2}
    assert send_until(gateway, name) == {"partition": 0, "offset": 2, "duplicate": True}


def test_until_group_a_dead_or_removed_record_is_finished(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    send_until(gateway, name)
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, 0, "reject")
    gateway.letters(f"dlq.{name}", 1)
    assert wait_until(lambda: send_until(gateway, name).get("duplicate", False) is False)
    gateway.delete_records(name, 2)
    assert send_until(gateway, name) == {"partition": 0, "offset": 2}, "no group was asked to finish 1"


def test_until_group_the_time_ends_a_key_too(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    assert send_until(gateway, name, within_ms=1) == {"partition": 0, "offset": 0}
    gateway.produce(name, "later")
    assert send_until(gateway, name, within_ms=DAY_MS) == {"partition": 0, "offset": 2}


def test_until_group_of_requests_at_once_one_appends(
    gateway: Gateway, name: str, background: ThreadPoolExecutor
) -> None:
    gateway.create_topic(name)
    for n in range(5):
        sent = [background.submit(send_until, gateway, name) for _ in range(4)]
        assert sorted("duplicate" in each.result() for each in sent) == [False, True, True, True]
        assert gateway.acquire(name, name) == [f"{n}-{n}×1"]
        assert gateway.settle(name, name, n, n, "accept") == "applied"


def test_a_repeat_with_its_idempotency_key_gets_the_same_answer(gateway: Gateway, name: str) -> None:
    headers = {"Idempotency-Key": "once"}
    first = good(send(gateway, name, record("a"), **headers))
    assert good(send(gateway, name, record("a"), **headers)) == first
    assert "duplicate" not in first["records"][0]


@pytest.mark.parametrize(
    ("records", "within_ms", "pointer"),
    [
        ([{"value": 1}], 1, "/records/0/key"),
        ([{"key": 5, "value": 1}], 1, "/records/0/key"),
        ([{"key": "a", "value": 1}], 0, "/unique/within_ms"),
        ([{"key": "a", "value": 1}], 31 * DAY_MS, "/unique/within_ms"),
    ],
    ids=str,
)
def test_what_cannot_be_unique_is_refused(
    gateway: Gateway, name: str, records: list[Json], within_ms: int, pointer: str
) -> None:
    gateway.create_topic(name)
    found = problem(send(gateway, name, *records, within_ms=within_ms), 422, "INVALID_REQUEST", 42)
    assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert gateway.log_ends(name) == [0]


def test_unique_within_a_transaction_is_refused(gateway: Gateway, name: str) -> None:
    begun = good(gateway.http.post("/v1/transactions", json={}), 201)
    answer = send(gateway, name, record("a"), **{"Transaction-Id": begun["transaction_id"]})
    problem(answer, 422, "INVALID_REQUEST", 42)
