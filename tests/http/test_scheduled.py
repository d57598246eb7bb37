"""Scheduled records over HTTP: each enters the log once and not early; list, cancel, and what is refused."""

import time
from typing import Any

import httpx
import pytest

from tests.http.calls import LONG_MS, Gateway, Json, good, problem, wait_until

WEEK_MS = 7 * 86_400_000


def schedule(gateway: Gateway, topic: str, *records: Json, **headers: str) -> list[Json]:
    answer = try_schedule(gateway, topic, *records, **headers)
    return list(good(answer)["scheduled"])


def try_schedule(gateway: Gateway, topic: str, *records: Json, **headers: str) -> httpx.Response:
    body = {"records": [{"value": 1} | record if "value_base64" not in record else record for record in records]}
    return gateway.http.post(f"/v1/topics/{topic}/scheduled", json=body, headers=headers)


def listed(gateway: Gateway, topic: str, **query: Any) -> Json:
    return dict(good(gateway.http.get(f"/v1/topics/{topic}/scheduled", params=query)))


def cancel(gateway: Gateway, topic: str, **which: Any) -> Json:
    return dict(good(gateway.http.post(f"/v1/topics/{topic}/cancel-scheduled", json=which)))


def test_records_enter_the_log_in_the_order_of_their_times_and_not_early(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    far = schedule(gateway, name, {"value": "next week", "delay_ms": WEEK_MS})
    given = schedule(
        gateway,
        name,
        {"value": "second", "delay_ms": 600},
        {"value": "first", "delay_ms": 300, "key": "k", "headers": {"own": "1"}},
        {"value": "at once", "deliver_at_ms": 0},
    )
    assert [each["partition"] for each in given] == [0, 0, 0]
    assert gateway.produce(name, "now")[0] in (0, 1)
    wait_until(lambda: gateway.log_ends(name) == [4])
    records = gateway.read(name)["records"]
    assert [record["value"] for record in records if record["value"] != "now"] == ["at once", "first", "second"]
    by_value = {record["value"]: record for record in records}
    for each, value in ((given[0], "second"), (given[1], "first")):
        assert by_value[value]["timestamp_ms"] >= each["deliver_at_ms"]
    headers = by_value["first"]["headers"]
    assert (by_value["first"]["key"], headers.pop("own"), list(headers)) == ("k", "1", ["__scheduled.created_ms"])
    assert [each["schedule_id"] for each in listed(gateway, name)["scheduled"]] == [far[0]["schedule_id"]]


def test_a_due_record_wakes_a_waiting_fetch(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    schedule(gateway, name, {"delay_ms": 500})
    began = time.monotonic()
    assert gateway.fetch(name, name, max_wait_ms=LONG_MS)["batches"][0]["records"][0]["value"] == 1
    assert time.monotonic() - began < LONG_MS / 2000


def test_lists_count_and_page_in_the_order_of_times(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 4)
    records = [{"value": n, "key": f"k{n % 2}", "delay_ms": WEEK_MS - n * 1000} for n in range(7)]
    ids = [each["schedule_id"] for each in schedule(gateway, name, *records)]
    found: list[str] = []
    token: Json = {}
    while True:
        page = listed(gateway, name, page_size=3, **token)
        assert page["scheduled_count"] == 7
        found += [each["schedule_id"] for each in page["scheduled"]]
        if "next_page_token" not in page:
            break
        token = {"page_token": page["next_page_token"]}
    assert found == ids[::-1]
    keyed = [each for each in listed(gateway, name)["scheduled"] if each["key"] == "k1"]
    assert len(keyed) == 3
    assert {each["partition"] for each in keyed} == {
        good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1, "key": "k1"}]}))["records"][
            0
        ]["partition"]
    }


def due_of(gateway: Gateway, name: str, page_size: int) -> list[Json]:
    """What is due in the topics that begin with a name, from a list of all topics that is read page by page."""
    found: list[Json] = []
    token: Json = {}
    while True:
        page = good(gateway.http.get("/v1/scheduled", params={"page_size": page_size, **token}))
        found += [each for each in page["due"] if each["topic"].startswith(name)]
        assert len(found) <= 6, "a page begins behind the one before"
        if "next_page_token" not in page:
            return found
        token = {"page_token": page["next_page_token"]}


def test_what_is_due_in_all_topics_is_one_list(gateway: Gateway, name: str) -> None:
    """Scheduled records and schedules in the order of their times, page by page, and those at one time once each."""
    topics = [f"{name}-{letter}" for letter in "ab"]
    for topic in topics:
        for each, paused in (("b", False), ("a", False), ("no", True)):
            body = {"cron": "0 1 1 1 *", "record": {"value": 1, "key": "k"}, "paused": paused}
            put = good(gateway.http.put(f"/v1/topics/{topic}/schedules/{each}", json=body))
    record = {"key": "r", "deliver_at_ms": put["next_at_ms"]}
    ids = [schedule(gateway, topic, record)[0]["schedule_id"] for topic in topics]
    gone = f"{name}-gone"
    schedule(gateway, gone, {"delay_ms": WEEK_MS})
    assert gateway.http.delete(f"/v1/topics/{gone}").is_success
    found = due_of(gateway, name, page_size=1)
    assert {each["deliver_at_ms"] for each in found} == {put["next_at_ms"]}
    assert sorted((due["topic"], due["key"], due.get("name") or due["schedule_id"]) for due in found) == sorted(
        [
            *((topic, "k", schedule_name) for topic in topics for schedule_name in "ab"),
            *zip(topics, "rr", ids, strict=True),
        ]
    )
    assert due_of(gateway, name, page_size=1000) == found


def test_a_cancelled_record_never_enters_the_log(gateway: Gateway, name: str) -> None:
    given = schedule(gateway, name, *({"key": key, "delay_ms": 1500} for key in "aabc"))
    ids = [each["schedule_id"] for each in given]
    assert cancel(gateway, name, schedule_ids=[ids[2], ids[2]]) == {"cancelled": [ids[2]]}
    assert cancel(gateway, name, schedule_ids=[ids[2]]) == {"cancelled": []}
    assert sorted(cancel(gateway, name, key="a")["cancelled"]) == sorted(ids[:2])
    assert listed(gateway, name)["scheduled_count"] == 1
    wait_until(lambda: sum(gateway.log_ends(name)) == 1)
    assert [record["key"] for record in gateway.read(name)["records"]] == ["c"]
    assert cancel(gateway, name, schedule_ids=ids) == {"cancelled": []}, "too late"
    assert listed(gateway, name)["scheduled_count"] == 0


def test_a_repeat_with_its_key_schedules_nothing_twice(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    headers = {"Idempotency-Key": "once"}
    first = schedule(gateway, name, {"delay_ms": WEEK_MS}, **headers)
    assert schedule(gateway, name, {"delay_ms": WEEK_MS}, **headers) == first
    assert listed(gateway, name)["scheduled_count"] == 1
    problem(try_schedule(gateway, name, {"delay_ms": 1}, **headers), 422, "INVALID_REQUEST", 42)


@pytest.mark.parametrize(
    ("record", "pointer"),
    [
        ({}, "/records/1/deliver_at_ms"),
        ({"delay_ms": 1, "deliver_at_ms": 1}, "/records/1/deliver_at_ms"),
        ({"delay_ms": -1}, "/records/1/delay_ms"),
        ({"delay_ms": 2**63}, "/records/1/delay_ms"),
        ({"deliver_at_ms": 2**62}, "/records/1/deliver_at_ms"),
        ({"delay_ms": 1, "timestamp_ms": 5}, "/records/1/timestamp_ms"),
        ({"delay_ms": 1, "headers": {"a": 1}}, "/records/1/headers"),
        ({"delay_ms": 1, "tombstone": True}, "/records/1/value"),
    ],
    ids=str,
)
def test_a_bad_record_is_refused_and_nothing_is_scheduled(
    gateway: Gateway, name: str, record: Json, pointer: str
) -> None:
    gateway.create_topic(name)
    found = problem(try_schedule(gateway, name, {"delay_ms": WEEK_MS}, record), 422, "INVALID_REQUEST", 42)
    assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert listed(gateway, name)["scheduled_count"] == 0


def test_bad_filters_are_refused(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    path = f"/v1/topics/{name}/cancel-scheduled"
    for body in ({}, {"key": "a", "schedule_ids": ["0" * 8 + "-0000-0000-0000-" + "0" * 12]}, {"schedule_ids": ["x"]}):
        problem(gateway.http.post(path, json=body), 422, "INVALID_REQUEST", 42)
    for query in ({"page_token": "x"}, {"page_token": "WzEsIngiXQ=="}, {"page_size": 0}):
        problem(gateway.http.get(f"/v1/topics/{name}/scheduled", params=query), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(f"/v1/topics/{name}-no/scheduled"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def unique(gateway: Gateway, topic: str, call: str, *records: Json, **rule: Any) -> httpx.Response:
    """Send records with `unique` to `records` or `scheduled`."""
    body = {"records": [{"value": 1, **record} for record in records], "unique": rule}
    return gateway.http.post(f"/v1/topics/{topic}/{call}", json=body)


def test_a_unique_key_has_one_record_scheduled_or_in_the_log(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    ann, bob = {"key": "ann", "delay_ms": WEEK_MS}, {"key": "bob", "delay_ms": WEEK_MS}
    first, again = good(unique(gateway, name, "scheduled", ann, ann))["scheduled"]
    assert again == {**first, "duplicate": True}
    assert good(unique(gateway, name, "scheduled", ann))["scheduled"] == [
        {"partition": 0, "schedule_id": first["schedule_id"], "duplicate": True}
    ]
    for rule in ({"within_ms": 1}, {"until_group": name}):
        produced = good(unique(gateway, name, "records", {"key": "ann"}, **rule))["records"]
        assert produced == [{"partition": 0, "offset": -1, "duplicate": True}]
    good(unique(gateway, name, "records", {"key": "bob"}))
    duplicate = {"partition": 0, "offset": 0, "duplicate": True}
    assert good(unique(gateway, name, "scheduled", bob))["scheduled"] == [duplicate]
    assert (listed(gateway, name)["scheduled_count"], gateway.log_ends(name)) == (1, [1])


def test_a_cancel_frees_the_key_of_its_record_alone(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    ann = {"key": "ann", "delay_ms": WEEK_MS}
    (first,) = good(unique(gateway, name, "scheduled", ann))["scheduled"]
    (other,) = schedule(gateway, name, ann)
    cancel(gateway, name, schedule_ids=[other["schedule_id"]])
    assert good(unique(gateway, name, "scheduled", ann))["scheduled"][0]["duplicate"]
    cancel(gateway, name, schedule_ids=[first["schedule_id"]])
    (second,) = good(unique(gateway, name, "scheduled", ann))["scheduled"]
    assert "duplicate" not in second
    cancel(gateway, name, key="ann")
    good(unique(gateway, name, "records", {"key": "ann"}))
    assert gateway.log_ends(name) == [1]


def test_a_unique_key_counts_for_its_time_from_when_it_is_due(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    good(unique(gateway, name, "scheduled", {"key": "a", "delay_ms": 0}, {"key": "b", "delay_ms": 0}, within_ms=1))
    wait_until(lambda: gateway.log_ends(name) == [2])
    good(unique(gateway, name, "scheduled", {"key": "a", "delay_ms": 0}, within_ms=WEEK_MS))
    wait_until(lambda: gateway.log_ends(name) == [3])
    assert good(unique(gateway, name, "records", {"key": "a"}))["records"][0]["duplicate"]


def test_until_group_a_scheduled_key_counts_until_its_record_is_finished(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    later, job = {"key": "bob", "delay_ms": WEEK_MS}, {"key": "ann", "delay_ms": 0}
    (first,) = good(unique(gateway, name, "scheduled", later, until_group=name))["scheduled"]
    assert good(unique(gateway, name, "scheduled", later, until_group=name))["scheduled"] == [
        {"partition": 0, "schedule_id": first["schedule_id"], "duplicate": True}
    ]
    gateway.produce(name, "in front")
    schedule(gateway, name, {"key": "ann", "delay_ms": 0})
    wait_until(lambda: gateway.log_ends(name) == [2])
    good(unique(gateway, name, "scheduled", job, until_group=name))
    wait_until(lambda: gateway.log_ends(name) == [3])
    entered = {"partition": 0, "offset": 2, "duplicate": True}
    assert good(unique(gateway, name, "scheduled", job, until_group=name))["scheduled"] == [entered], "not fetched"
    gateway.acquire(name, name, max_records=3)
    assert good(unique(gateway, name, "records", {"key": "ann"}, until_group=name))["records"] == [entered], "held"
    assert gateway.settle(name, name, 2, 2, "accept") == "applied"
    (second,) = good(unique(gateway, name, "scheduled", job, until_group=name))["scheduled"]
    assert "duplicate" not in second


def test_what_cannot_be_unique_is_not_scheduled(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    answer = unique(gateway, name, "scheduled", {"delay_ms": 1})
    assert problem(answer, 422, "INVALID_REQUEST", 42)["errors"][0]["pointer"] == "/records/0/key"
    assert (listed(gateway, name)["scheduled_count"], gateway.log_ends(name)) == (0, [0])
