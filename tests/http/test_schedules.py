"""Schedules over HTTP: one record at each time; pause, run now, delete, and what is refused."""

from typing import Any

import pytest

from tests.http.calls import Gateway, Json, good, problem, wait_until

SECOND, NEVER = "* * * * * *", "0 0 1 1 *"
RECORD: Json = {"value": {"n": [1, ',"headers":{"__schedule.name":']}, "key": "k", "headers": {"own": "1"}}


def put(gateway: Gateway, topic: str, name: str = "s", **fields: Any) -> Json:
    body = {"cron": SECOND, "record": RECORD, **fields}
    return dict(good(gateway.http.put(f"/v1/topics/{topic}/schedules/{name}", json=body)))


def described(gateway: Gateway, topic: str, name: str = "s") -> Json:
    return dict(good(gateway.http.get(f"/v1/topics/{topic}/schedules/{name}")))


def times(gateway: Gateway, topic: str) -> list[int]:
    """The times that the records in the log were made for."""
    records = gateway.read(topic)["records"]
    assert [(record["key"], record["value"]) for record in records] == [("k", RECORD["value"])] * len(records)
    for record in records:
        assert (record["headers"]["own"], record["headers"]["__schedule.name"]) == ("1", "s")
    found = [int(record["headers"]["__schedule.time_ms"]) for record in records]
    assert all(record["timestamp_ms"] >= at for record, at in zip(records, found, strict=True))
    return found


def test_each_time_makes_one_record_until_the_schedule_is_paused(gateway: Gateway, name: str) -> None:
    first = put(gateway, name)
    assert (first["paused"], first["time_zone"], first["missed"]) == (False, "UTC", "one")
    wait_until(lambda: gateway.log_ends(name)[0] >= 3)
    path = f"/v1/topics/{name}/schedules/s"
    paused = good(gateway.http.patch(path, json={"paused": True}))
    found = times(gateway, name)
    assert found == [first["next_at_ms"] + 1000 * n for n in range(len(found))]
    assert paused["last_at_ms"] == found[-1]
    made = good(gateway.http.patch(path, json={"run": True}))
    assert (made["made_offset"], made["paused"], "made_offset" in paused) == (len(found), True, False)
    assert put(gateway, name, paused=True)["last_at_ms"] == found[-1]
    resumed = good(gateway.http.patch(path, json={"paused": False}))
    wait_until(lambda: gateway.log_ends(name)[0] >= len(found) + 2)
    assert times(gateway, name)[len(found) + 1] == resumed["next_at_ms"]
    assert gateway.http.delete(path).status_code == 204
    problem(gateway.http.get(path), 404, "RESOURCE_NOT_FOUND", 91)


def test_a_schedule_is_replaced_and_keeps_its_next_time_only_with_its_times(gateway: Gateway, name: str) -> None:
    first = put(gateway, name, cron=NEVER)
    assert put(gateway, name, cron=NEVER, missed="all")["next_at_ms"] == first["next_at_ms"]
    assert put(gateway, name, cron=NEVER, time_zone="Asia/Tokyo")["next_at_ms"] == first["next_at_ms"] - 9 * 3_600_000
    put(gateway, name, "b", cron=NEVER)
    whole = described(gateway, name)
    assert (whole["value"], whole["key"], whole["headers"]["own"]) == (RECORD["value"], "k", "1")
    listed = good(gateway.http.get(f"/v1/topics/{name}/schedules"))["schedules"]
    assert [each["name"] for each in listed] == ["b", "s"]
    assert gateway.log_ends(name) == [0]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"cron": "61 * * * *"}, "/cron"),
        ({"cron": "0 0 30 2 *"}, "/cron"),
        ({"time_zone": "Mars/Base"}, "/time_zone"),
        ({"missed": "two"}, "/missed"),
        ({"record": {"value": 1, "timestamp_ms": 1}}, "/record/timestamp_ms"),
        ({"record": {}}, "/record/value"),
        ({"record": {"value": 1, "headers": {"a": 1}}}, "/record/headers"),
    ],
    ids=str,
)
def test_a_bad_schedule_is_refused_and_not_stored(gateway: Gateway, name: str, fields: Json, pointer: str) -> None:
    gateway.create_topic(name)
    body = {"cron": NEVER, "record": {"value": 1}, **fields}
    found = problem(gateway.http.put(f"/v1/topics/{name}/schedules/s", json=body), 422, "INVALID_REQUEST", 42)
    assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert good(gateway.http.get(f"/v1/topics/{name}/schedules")) == {"schedules": []}


def test_a_bad_name_is_refused_and_a_missing_schedule_not_found(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    path = f"/v1/topics/{name}/schedules"
    for bad in ("a%20b", "a" * 101, "%C3%A9"):
        body = {"cron": NEVER, "record": {"value": 1}}
        problem(gateway.http.put(f"{path}/{bad}", json=body), 422, "INVALID_REQUEST", 42)
        problem(gateway.http.get(f"{path}/{bad}"), 404, "RESOURCE_NOT_FOUND", 91)
    problem(gateway.http.delete(f"{path}/no"), 404, "RESOURCE_NOT_FOUND", 91)
    problem(gateway.http.patch(f"{path}/no", json={"paused": True}), 404, "RESOURCE_NOT_FOUND", 91)
    problem(gateway.http.patch(f"{path}/no", json={"run": True}), 404, "RESOURCE_NOT_FOUND", 91)
