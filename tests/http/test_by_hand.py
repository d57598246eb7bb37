"""Records changed by hand, fenced by their delivery count; and the window of a group in buckets."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.calls import Gateway, Json, acknowledge_range, good, outcomes, problem, wait_until


def place(name: str, offset: int | str, group: str | None = None) -> str:
    return f"/v1/share-groups/{group or name}/topics/{name}/partitions/0/records/{offset}"


def change(gateway: Gateway, name: str, offset: int, action: str, count: int = 1, **fields: Any) -> httpx.Response:
    return gateway.http.post(place(name, offset), json={"action": action, "delivery_count": count, **fields})


def state(gateway: Gateway, name: str, offset: int) -> Json:
    return dict(good(gateway.http.get(place(name, offset))))


@pytest.fixture
def held(gateway: Gateway, name: str) -> str:
    """A group whose worker m1 holds the first six of eight records; then it accepts one and delays two of them."""
    gateway.create_topic(name)
    gateway.produce(name, *range(8))
    gateway.acquire(name, name, max_records=6, acquire_mode="record_limit")
    gateway.settle(name, name, 1, 1, "accept")
    gateway.settle(name, name, 4, 5, "release", delay_ms=3_600_000, reason="later")
    return name


def test_a_held_record_is_released_by_hand_and_its_worker_is_refused(gateway: Gateway, held: str) -> None:
    done = good(change(gateway, held, 2, "release", reason="the worker hangs"))
    assert done == {"member_id": "m1", "note": "its worker may still be running it"}
    assert state(gateway, held, 2)["state"] == "ready"
    assert gateway.acquire(held, held, member="m2", max_records=1, acquire_mode="record_limit") == ["2-2×2"]
    late = acknowledge_range(held, 2, 2, "accept", delivery_count=1)
    assert outcomes(gateway.try_acknowledge(held, [late])) == [121]
    assert gateway.settle(held, held, 2, 2, "accept", member="m2") == "applied"


def test_a_held_record_is_rejected_or_extended_by_hand(gateway: Gateway, held: str) -> None:
    before = state(gateway, held, 3)["in_flight"]["lock_expires_at_ms"]
    good(change(gateway, held, 3, "extend", lock_duration_ms=600_000))
    assert state(gateway, held, 3)["in_flight"]["lock_expires_at_ms"] > before + 300_000
    good(change(gateway, held, 3, "reject", reason="no customer"))
    letters = wait_until(lambda: state(gateway, held, 3).get("dead_letters"))
    assert [letter["reason"] for letter in letters] == ["no customer"]


def test_a_delayed_record_is_delivered_now_or_rejected_by_hand(gateway: Gateway, held: str) -> None:
    assert good(change(gateway, held, 4, "deliver_now")) == {}
    assert gateway.acquire(held, held, member="m2", max_records=1, acquire_mode="record_limit") == ["4-4×2"]
    assert good(change(gateway, held, 5, "reject")) == {}
    letters = wait_until(lambda: state(gateway, held, 5).get("dead_letters"))
    assert [letter["reason"] for letter in letters] == ["rejected by hand"]


def test_what_has_changed_since_somebody_looked_stays_as_it_is(gateway: Gateway, held: str) -> None:
    before = gateway.in_flight(held)
    for offset, action, count in (
        (2, "release", 2),
        (2, "deliver_now", 1),
        (4, "extend", 1),
        (4, "deliver_now", 2),
        (1, "reject", 1),
        (7, "release", 1),
    ):
        problem(change(gateway, held, offset, action, count), 409, "INVALID_RECORD_STATE", 121)
    problem(change(gateway, held, 2, "extend", lock_duration_ms=1), 422, "INVALID_REQUEST", 42)
    problem(change(gateway, held, 2, "accept"), 422, "INVALID_REQUEST", 42)
    problem(
        gateway.http.post(place(held, "x"), json={"action": "release", "delivery_count": 1}), 422, "INVALID_REQUEST", 42
    )
    body = {"action": "release", "delivery_count": 1}
    assert gateway.http.post(place(held, 2, group=f"{held}-other"), json=body).status_code in (404, 409)
    assert gateway.in_flight(held) == before


def test_a_held_record_that_the_log_has_removed_is_not_changed(gateway: Gateway, held: str) -> None:
    gateway.delete_records(held, 3)
    wait_until(lambda: state(gateway, held, 3)["unfinished_before"] == 0)
    for action in ("release", "reject", "extend"):
        found = problem(change(gateway, held, 2, action), 409, "INVALID_RECORD_STATE", 121)
        assert "removed from the log" in found["detail"]
    assert state(gateway, held, 2)["state"] == "held", "its worker may still be running it"
    good(change(gateway, held, 3, "release"))


def test_the_command_line_changes_a_record(gateway: Gateway, held: str) -> None:
    command = [Path(sys.executable).with_name("sharequeue"), "records", "release", held, held, "2"]
    options = ["delivery_count=1", "reason=hangs", "delay_ms=10m", "--url", str(gateway.http.base_url)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    assert "m1" in done.stdout, "who held it"
    assert "its worker may still be running it" in done.stdout
    found = state(gateway, held, 2)
    assert (found["state"], found["in_flight"]["reason"]) == ("delayed", "hangs")


def window(gateway: Gateway, name: str, group: str | None = None, **query: Any) -> Json:
    path = f"/v1/share-groups/{group or name}/topics/{name}/partitions/0/window"
    return dict(good(gateway.http.get(path, params=query)))


def test_a_window_is_counted_in_buckets(gateway: Gateway, held: str) -> None:
    gateway.settle(held, held, 0, 0, "accept")
    found = window(gateway, held, from_offset=0)
    assert {key: found[key] for key in ("loaded", "start_offset", "log_end_offset", "bucket_size")} == {
        "loaded": True,
        "start_offset": 2,
        "log_end_offset": 8,
        "bucket_size": 1,
    }
    kinds = [{key: value for key, value in bucket.items() if not key.endswith("_ms")} for bucket in found["buckets"]]
    holds = {"acquired": 1, "member_id": "m1"}
    assert kinds == [*[{"finished": 1}] * 2, holds, holds, *[{"delayed": 1}] * 2, *[{"new": 1}] * 2]
    assert found["buckets"][2]["lock_expires_at_ms"] > found["buckets"][4]["available_at_ms"] - 3_600_000
    gateway.acquire(held, held, member="m2", max_records=1, acquire_mode="record_limit")
    (bucket,) = window(gateway, held, buckets=1)["buckets"]
    del bucket["lock_expires_at_ms"], bucket["available_at_ms"]
    assert bucket == {"acquired": 3, "delayed": 2, "new": 1}, "several members hold them"
    assert len(window(gateway, held, from_offset=0, buckets=3)["buckets"]) == 3
    assert window(gateway, held, from_offset=8)["buckets"] == []


def test_what_is_not_loaded_is_not_loaded_for_a_look(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(6))
    found = window(gateway, name)
    assert (found["loaded"], found["start_offset"], found["buckets"]) == (False, -1, [{"new": 1}] * 6)
    gateway.reset(name, "latest", name)
    found = window(gateway, name, from_offset=0)
    assert (found["loaded"], found["start_offset"], found["buckets"]) == (False, 6, [{"finished": 1}] * 6)
    listing = f"/v1/share-groups/{name}/in-flight"
    assert good(gateway.http.get(listing, params={"loaded": True}))["partitions"] == []
    assert window(gateway, name)["loaded"] is False
    assert len(good(gateway.http.get(listing))["partitions"]) == 1, "without it the list loads"
    assert len(good(gateway.http.get(listing, params={"loaded": True}))["partitions"]) == 1
    for query in ({"buckets": 1001}, {"buckets": 0}, {"from_offset": 3, "to_offset": 2}):
        path = f"/v1/share-groups/{name}/topics/{name}/partitions/0/window"
        problem(gateway.http.get(path, params=query), 422, "INVALID_REQUEST", 42)
