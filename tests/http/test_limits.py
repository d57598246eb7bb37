"""Limits and missing dependencies, over HTTP, on a stack with small limits: 429 and 503 with Retry-After."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, LONG_MS, Gateway, good, outcomes, problem, wait_until, woken
from tests.http.database import refused_dead_letters

SETTINGS = {
    "SHAREQUEUE_GATEWAY_AUTO_CREATE_TOPICS": "false",
    "SHAREQUEUE_GATEWAY_AUTO_CREATE_DEAD_LETTER_TOPICS": "false",
    "SHAREQUEUE_GATEWAY_MAX_REQUEST_BYTES": "4096",
    "SHAREQUEUE_GATEWAY_MAX_SHARE_SESSIONS": "2",
    "SHAREQUEUE_GATEWAY_MAX_WAITING_FETCHES": "1",
    "SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "200",
    "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "500",
    "SHAREQUEUE_GATEWAY_SHARE_SESSION_IDLE_MS": "6000",
    "SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": "3000",
    "SHAREQUEUE_COORDINATOR_MAX_PARTITIONS_PER_TOPIC": "3",
}


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS


def refused(response: httpx.Response, status: int, code: str, number: int) -> None:
    """A refusal that says when to try again."""
    assert problem(response, status, code, number)["retriable"]
    assert int(response.headers["retry-after"]) >= 1


def listening(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez", verify=False, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def open_session(gateway: Gateway, name: str, member: str, **fields: int) -> httpx.Response:
    return gateway.try_fetch(name, name, member=member, share_session_epoch=0, **fields)


def close_session(gateway: Gateway, name: str, member: str) -> None:
    good(gateway.try_fetch(name, member=member, share_session_epoch=-1))


def test_a_latest_group_that_fetches_rarely_misses_no_record(own_gateway: Gateway, name: str) -> None:
    """The start that the first load resolved is kept although the idle share-partition is unloaded in between."""
    gateway = own_gateway
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.create_topic(name)
    gateway.produce_batches(name, 2)
    assert gateway.acquire(name, name) == []
    loads = gateway.metrics()["sharequeue_partition_load_seconds_count"]
    gateway.produce_batches(name, 3)
    wait_until(lambda: gateway.metrics()["sharequeue_led_share_partitions"] == 0)
    assert gateway.acquire(name, name) == ["2-4×1"]
    assert gateway.metrics()["sharequeue_partition_load_seconds_count"] == loads + 1


def test_ss_017_the_refusal_of_a_session_is_delayed(own_gateway: Gateway, name: str) -> None:
    gateway = own_gateway
    gateway.create_topic(name)
    for member in ("m1", "m2"):
        good(open_session(gateway, name, member))
    started = time.monotonic()
    response = open_session(gateway, name, "m3", max_wait_ms=700)
    refused(response, 429, "SHARE_SESSION_LIMIT_REACHED", 133)
    assert response.json()["limit"] == 2
    assert time.monotonic() - started > 0.69
    good(open_session(gateway, name, "m1"))
    close_session(gateway, name, "m1")
    good(open_session(gateway, name, "m3"))
    for member in ("m2", "m3"):
        close_session(gateway, name, member)


def test_ss_019_idle_sessions_make_room_and_release_nothing(own_gateway: Gateway, name: str) -> None:
    gateway = own_gateway
    gateway.create_topic(name)
    gateway.produce_batches(name, 2)
    assert good(open_session(gateway, name, "m1"))["batches"]
    good(open_session(gateway, name, "m2"))
    refused(open_session(gateway, name, "m3"), 429, "SHARE_SESSION_LIMIT_REACHED", 133)
    wait_until(lambda: gateway.metrics()["sharequeue_share_sessions"] == 0)
    assert gateway.metrics()["sharequeue_share_session_evictions_total"] >= 2
    good(open_session(gateway, name, "m3"))
    problem(gateway.try_fetch(name, share_session_epoch=1), 404, "SHARE_SESSION_NOT_FOUND", 122)
    assert gateway.window(name, name) == (0, ["0-1 ACQUIRED×1"])
    assert gateway.settle(name, name, 0, 1, "accept") == "applied"
    close_session(gateway, name, "m3")


def test_the_number_of_waiting_fetches_is_limited(
    own_gateway: Gateway, name: str, background: ThreadPoolExecutor
) -> None:
    gateway = own_gateway
    gateway.create_topic(name)
    gateway.acquire(name, name)
    with woken(gateway):
        waiting = background.submit(gateway.acquire, name, name, max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        response = gateway.try_fetch(name, name, member="m2", max_wait_ms=LONG_MS)
        refused(response, 429, "THROTTLING_QUOTA_EXCEEDED", 89)
        assert response.json()["limit"] == 1
        gateway.produce_batches(name, 1)
        assert waiting.result(HANG_S) == ["0-0×1"]


def test_the_request_limit_is_a_setting(own_gateway: Gateway, name: str) -> None:
    own_gateway.create_topic(name)
    body = {"records": [{"value": "x" * 4096}]}
    document = problem(own_gateway.http.post(f"/v1/topics/{name}/records", json=body), 413, "MESSAGE_TOO_LARGE", 10)
    assert document["limit"] == 4096
    assert own_gateway.log_ends(name) == [0]


def test_topics_are_not_created_automatically_when_that_is_off(own_gateway: Gateway, name: str) -> None:
    body = {"records": [{"value": 1}]}
    for path in ("records", "records/raw"):
        response = own_gateway.http.post(f"/v1/topics/{name}/{path}", json=body)
        detail = problem(response, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)["detail"]
        assert detail == f"there is no topic '{name}'; make it with POST /v1/topics"
    problem(own_gateway.http.get(f"/v1/topics/{name}"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def test_the_partition_limit_of_a_topic_is_a_setting(own_gateway: Gateway, name: str) -> None:
    response = own_gateway.http.post("/v1/topics", json={"name": name, "partitions": 4})
    assert problem(response, 422, "INVALID_PARTITIONS", 37)["limit"] == 3


def test_dq_009_dead_letters_without_a_topic_are_parked(own_gateway: Gateway, name: str) -> None:
    gateway = own_gateway
    gateway.create_topic(name)
    gateway.produce_batches(name, 3)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 2, "reject") == "applied"
    wait_until(lambda: gateway.window(name, name) == (3, []))
    assert gateway.in_flight(name)[0]["parked_dead_letters"] == 3
    problem(gateway.http.get(f"/v1/topics/dlq.{name}"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert gateway.acquire(name, name) == []


# Missing dependencies: last, because these tests stop services


def test_unfinished_dead_letters_are_resumed_after_a_crash(
    own_gateway: Gateway, stack: Stack, database: str, name: str
) -> None:
    """With cause and reason, once each, although they could not be written before the gateway was killed."""
    gateway = own_gateway
    dead = f"dlq.{name}"
    gateway.create_topic(dead, errors_deadletterqueue_group_enable=True)
    gateway.configure(name, share_delivery_count_limit=1)
    gateway.create_topic(name)
    gateway.produce(name, "used up", "rejected", "open")
    gateway.acquire(name, name, lock_duration_ms=600_000)
    with refused_dead_letters(database, name, 0, 1):
        assert gateway.settle(name, name, 1, 1, "reject", reason="bad") == "applied"
        assert gateway.settle(name, name, 0, 0, "release", reason="not today") == "applied"
        wait_until(lambda: len(gateway.in_flight(name)[0].get("dead_letters", ())) == 2)
        service = stack.service("gateway")
        service.kill()
        service.start()
        wait_until(lambda: listening(service.url))
        (partition,) = gateway.in_flight(name)
        states = [(batch["first_offset"], batch["delivery_state"]) for batch in partition["batches"]]
        assert states == [(0, "ARCHIVING"), (1, "ARCHIVING"), (2, "ACQUIRED")]
    wait_until(lambda: gateway.window(name, name)[0] == 2)
    letters = gateway.read(dead)["records"]
    reasons = [(letter["value"], letter["headers"]["__dlq.errors.reason"]) for letter in letters]
    assert sorted(reasons) == [("rejected", "bad"), ("used up", "not today")]
    assert gateway.settle(name, name, 2, 2, "accept", delivery_count=1) == "applied"


@pytest.mark.three_programs
def test_retention_covers_topics_unused_since_the_start(
    own_gateway: Gateway, stack: Stack, data_dir: Path, name: str
) -> None:
    gateway = own_gateway
    topic_id = gateway.create_topic(name)["topic_id"]
    gateway.produce(name, "old", timestamp_ms=5)
    good(gateway.http.patch(f"/v1/topics/{name}", json={"reset": ["retention.ms"]}))
    service = stack.service("gateway")
    service.stop()
    token = (data_dir / "cluster.token").read_text()
    url = f"{stack.addresses['group coordinator']}/v1/topics/{name}"
    good(
        httpx.patch(
            url, json={"config": {"retention.ms": "1000"}}, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
    )
    service.start()

    def moved() -> bool:
        lines = map(json.loads, (data_dir / "logs" / "gateway.log").read_text().splitlines())
        return any(line.get("topic_id") == topic_id and line.get("log_start_offset") == 1 for line in lines)

    wait_until(moved)


@pytest.mark.three_programs
def test_an_unreachable_share_coordinator_is_503_and_nothing_is_lost(
    own_gateway: Gateway, stack: Stack, name: str
) -> None:
    gateway = own_gateway
    wait_until(stack.service("gateway").ready)
    gateway.create_topic(name)
    gateway.produce_batches(name, 4)
    gateway.acquire(name, name, max_records=2)
    service = stack.service("share coordinator")
    service.kill()
    accept = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 1, "delivery_count": 1, "type": "accept"}
    response = gateway.try_acknowledge(name, [accept])
    refused(response, 503, "COORDINATOR_NOT_AVAILABLE", 15)
    assert [result["status"] for result in response.json()["results"]] == ["unknown"], "it is sent again"
    readiness = good(gateway.http.get("/readyz"))
    assert (readiness["status"], readiness["lacks"]) == ("degraded", ["share coordinator"]), (
        "no gateway would do better"
    )
    strict = gateway.http.get("/readyz?strict=true")
    assert (strict.status_code, strict.json()["status"]) == (503, "unavailable")
    assert gateway.produce(name, "more") == [4]
    refused(gateway.try_fetch(name, name, member="m2", max_wait_ms=0), 503, "COORDINATOR_NOT_AVAILABLE", 15)
    service.start()
    wait_until(service.ready)
    assert gateway.acquire(name, name, member="m2", max_records=1, max_wait_ms=LONG_MS) == ["2-2×1"]
    assert outcomes(gateway.try_acknowledge(name, [accept])) == ["ignored"], "it is durable, and below the start offset"
    assert gateway.settle(name, name, 2, 2, "accept", member="m2") == "applied"
    assert good(gateway.http.get("/readyz"))["status"] == "ready"


@pytest.mark.three_programs
def test_an_unknown_outcome_is_answered_as_unknown_and_a_repeat_learns_it(
    own_gateway: Gateway, stack: Stack, name: str
) -> None:
    gateway = own_gateway
    gateway.create_topic(name)
    gateway.produce_batches(name, 2)
    gateway.acquire(name, name)
    accept = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 0, "delivery_count": 1, "type": "accept"}
    process = stack.service("share coordinator").process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        response = gateway.try_acknowledge(name, [accept])
    finally:
        process.send_signal(signal.SIGCONT)
    refused(response, 503, "REQUEST_TIMED_OUT", 7)
    assert not response.json()["definite"]
    assert [result["status"] for result in response.json()["results"]] == ["unknown"]
    learned = wait_until(lambda: gateway.settle(name, name, 0, 0, "accept", delivery_count=1) in ("applied", "ignored"))
    assert learned
    assert gateway.settle(name, name, 1, 1, "accept", delivery_count=1) == "applied"
    assert gateway.window(name, name) == (2, [])


@pytest.mark.three_programs
@pytest.mark.soak
def test_an_unreachable_group_coordinator_is_503_at_the_deadline(own_gateway: Gateway, stack: Stack, name: str) -> None:
    service = stack.service("group coordinator")
    service.kill()
    refused(own_gateway.http.post("/v1/topics", json={"name": name}), 503, "COORDINATOR_NOT_AVAILABLE", 15)
    refused(own_gateway.http.get(f"/v1/share-groups/{name}/offsets"), 503, "COORDINATOR_NOT_AVAILABLE", 15)
    service.start()
    wait_until(service.ready)
