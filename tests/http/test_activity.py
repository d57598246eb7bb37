"""The activity of the queue, as reports read it: every count, its place, its pages, over restarts and losses."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sharequeue_gateway.http.answers.page_tokens import PageTokens

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, Json, acknowledge_range, good, outcomes, problem, wait_until

HOUR_MS = 3_600_000
NO_TOPIC = "00000000-0000-0000-0000-000000000000"


def activity(gateway: Gateway, topic: str, **query: object) -> list[Json]:
    return list(good(gateway.http.get("/v1/reports/activity", params={"topic": topic, **query}))["activity"])


def total(entries: list[Json], field: str) -> int:
    return sum(entry[field] for entry in entries)


def of_group(entries: list[Json]) -> list[Json]:
    return [entry for entry in entries if "group_id" in entry]


def counted(histograms: list[Json], by: str) -> dict[object, int]:
    return {entry[by]: entry["records"] for entry in histograms}


def test_every_count_of_activity_is_kept(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_delivery_count_limit=2)
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    assert gateway.acquire(name, name) == ["0-9×1"]
    acknowledgements = [
        acknowledge_range(name, 0, 3, "accept"),
        acknowledge_range(name, 4, 6, "release"),
        acknowledge_range(name, 7, 8, "reject"),
        acknowledge_range(name, 9, 9, "gap"),
        acknowledge_range(name, 0, 0, "release"),  # refused: it counts nothing
    ]
    assert outcomes(gateway.try_acknowledge(name, acknowledgements)) == [*["applied"] * 4, 121]
    assert gateway.acquire(name, name) == ["4-6×2"]
    assert gateway.settle(name, name, 4, 4, "release") == "applied"  # its last delivery: a dead letter
    assert gateway.settle(name, name, 5, 6, "accept") == "applied"
    wait_until(lambda: gateway.http.get(f"/v1/topics/dlq.{name}").status_code == 200)
    wait_until(lambda: gateway.log_ends(f"dlq.{name}") == [3])
    entries = wait_until(lambda: [e for e in of_group(activity(gateway, name)) if len(e["dead_letters"]) == 2])
    entry = {field: total(entries, field) for field in ("delivered", "accepted", "released", "rejected", "expired")}
    assert entry == {"delivered": 13, "accepted": 6, "released": 4, "rejected": 2, "expired": 0}
    (entry,) = entries
    assert (entry["group_id"], entry["partition"], entry["produced"]) == (name, 0, 0)
    assert counted(entry["deliveries"], "delivery_count") == {1: 10, 2: 3}
    assert counted(entry["dead_letters"], "cause") == {"rejected": 2, "delivery_limit": 1}
    assert total(entry["times_to_accept"], "records") == 6
    (produced,) = [entry for entry in activity(gateway, name) if "group_id" not in entry]
    assert (produced["produced"], produced["delivered"]) == (10, 0)
    assert total(activity(gateway, f"dlq.{name}"), "produced") == 3


def test_a_repeat_of_a_produce_request_or_of_an_acknowledgement_counts_nothing(gateway: Gateway, name: str) -> None:
    for _ in range(2):
        body = {"records": [{"value": 1}, {"value": 2}]}
        good(gateway.http.post(f"/v1/topics/{name}/records", json=body, headers={"Idempotency-Key": name}))
    assert gateway.acquire(name, name) == ["0-1×1"]
    for _ in range(2):
        assert gateway.settle(name, name, 1, 1, "accept", delivery_count=1) == "applied"
    entries = activity(gateway, name)
    assert (total(entries, "produced"), total(entries, "accepted"), total(entries, "delivered")) == (2, 1, 2)


def test_activity_counts_expired_locks_and_times_to_accept(gateway: Gateway, name: str) -> None:
    """The time counts from the record's own timestamp."""
    gateway.configure(name, share_record_lock_duration_ms=1000)
    gateway.create_topic(name)
    gateway.produce(name, 1, 2, timestamp_ms=int(time.time() * 1000) - 600_000)
    gateway.produce(name, 3)
    assert gateway.acquire(name, name) == ["0-2×1"]
    gateway.configure(name, share_record_lock_duration_ms=60_000)
    wait_until(lambda: gateway.acquire(name, name) == ["0-2×2"])
    assert gateway.settle(name, name, 0, 2, "accept") == "applied"
    entries = of_group(activity(gateway, name))
    assert total(entries, "expired") == 3
    times = [time for entry in entries for time in entry["times_to_accept"]]
    old = [time for time in times if time["from_ms"] <= 630_000 and time["below_ms"] > 600_000]
    assert total(old, "records") == 2
    assert total(times, "records") == 3
    assert all(time["below_ms"] - time["from_ms"] <= max(1, time["from_ms"] / 8) for time in times)


def test_activity_is_listed_by_hour_group_and_page(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 5)
    for partition in range(5):
        gateway.produce(name, 1, partition=partition)
    for group in (name, f"{name}-b"):
        assert gateway.fetch(group, name)["batches"]
    everything = activity(gateway, name)
    assert sorted({entry.get("group_id", "") for entry in everything}) == ["", name, f"{name}-b"]
    assert {entry["hour_ms"] % HOUR_MS for entry in everything} == {0}
    last = max(entry["hour_ms"] for entry in everything)
    assert activity(gateway, name, to_ms=min(entry["hour_ms"] for entry in everything)) == []
    assert activity(gateway, name, from_ms=last + HOUR_MS) == []
    assert activity(gateway, name, from_ms=last + HOUR_MS - 1)
    assert {entry["group_id"] for entry in activity(gateway, name, group_id=name)} == {name}
    pages: list[Json] = []
    query: Json = {"topic": name, "page_size": 3}
    while True:
        page = good(gateway.http.get("/v1/reports/activity", params=query))
        assert len(page["activity"]) <= 3
        pages += page["activity"]
        if "next_page_token" not in page:
            break
        query["page_token"] = page["next_page_token"]
    assert pages == everything


@pytest.mark.parametrize(
    "place",
    [
        None,
        (1, "g\x00", NO_TOPIC, 0),
        (1, "g", "no-uuid", 0),
        (1, "g", NO_TOPIC, 2**31),
        (-1, "g", NO_TOPIC, 0),
    ],
)
def test_a_page_token_of_another_query_is_refused(
    gateway: Gateway, shared_data_dir: Path, place: tuple[object, ...] | None
) -> None:
    tokens = PageTokens((shared_data_dir / "cluster.token").read_text())
    token = "x" if place is None else tokens.token(place)
    problem(gateway.http.get("/v1/reports/activity", params={"page_token": token}), 422, "INVALID_REQUEST", 42)


@pytest.mark.parametrize(
    "query", [{"topic": "t\x00"}, {"group_id": "g\n"}, {"to_ms": "-1"}, {"to_ms": "null"}, {"page_size": "0"}]
)
def test_a_query_that_breaks_the_schema_is_refused(gateway: Gateway, query: dict[str, str]) -> None:
    problem(gateway.http.get("/v1/reports/activity", params=query), 422, "INVALID_REQUEST", 42)


@pytest.fixture
def fresh_stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    """A stack that writes its counts once an hour, and when it stops."""
    settings = {"SHAREQUEUE_GATEWAY_ACTIVITY_FLUSH_MS": "3600000"}
    with temporary_stack(tmp_path, postgres_url=database_url, redis_url=redis_url, settings=settings) as stack:
        yield stack


def test_a_stop_writes_the_last_counts_and_runs_add_up(fresh_stack: Stack, name: str) -> None:
    for run in range(2):
        with httpx.Client(base_url=fresh_stack.url, timeout=40) as http:
            gateway = Gateway(http)
            gateway.produce(name, 1, 2, 3)
            if run:
                assert total(activity(gateway, name), "produced") == 6
                return
        service = fresh_stack.service("gateway")
        service.stop()
        service.start()
        wait_until(service.ready)
