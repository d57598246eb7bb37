"""A gateway that takes callers without a key too, one that has not heard of changes for long, one that reads none."""

import os
import signal
from pathlib import Path

import httpx
import pytest

from sharequeue.protocol.access.keys import make_key
from sharequeue.stack.stack import Stack
from tests.http.access import ADMIN, Access, caller
from tests.http.calls import Gateway, acknowledge_range, good, outcomes, problem, wait_until

pytestmark = pytest.mark.three_programs  # one of them is paused
STALE_MS = 3000
WRONG = make_key(bytes(8), bytes(32)).text


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        "SHAREQUEUE_GATEWAY_AUTHENTICATION": "optional",
        "SHAREQUEUE_GATEWAY_SUPER_USERS": ADMIN,
        "SHAREQUEUE_GATEWAY_ACCESS_STALE_MS": str(STALE_MS),
    }


def test_a_caller_without_a_key_is_served_and_counted(
    own_gateway: Gateway, stack: Stack, data_dir: Path, name: str
) -> None:
    own_gateway.produce(name, 1)
    own_gateway.fetch(name, name)
    own_gateway.http.get("/livez")
    told = good(own_gateway.http.get("/readyz"))["dependencies"]["authentication"]
    assert told.startswith("optional: this mode protects nothing")
    counted = own_gateway.metrics()
    for operation in ("produceRecords", "fetchRecords"):
        assert counted[f'sharequeue_anonymous_calls_total{{operation="{operation}"}}'] >= 1
    assert 'sharequeue_anonymous_calls_total{operation="livez"}' not in counted
    lines = [line for line in (data_dir / "logs" / "gateway.log").read_text().splitlines() if "without a key" in line]
    assert any('"operation": "produceRecords"' in line and f'"resources": ["TOPIC {name}"]' in line for line in lines)
    assert any(f'"resources": ["GROUP {name}", "TOPIC {name}"]' in line for line in lines)


def test_a_caller_with_a_key_has_its_rights_and_no_more(
    stack: Stack, access: Access, own_gateway: Gateway, name: str
) -> None:
    own_gateway.create_topic(name)
    with caller(stack, access.key("User:limited")) as limited:
        problem(limited.http.get(f"/v1/topics/{name}"), 403, "TOPIC_AUTHORIZATION_FAILED", 29)
    with caller(stack, WRONG) as wrong:
        problem(wrong.http.get(f"/v1/topics/{name}"), 401, "SASL_AUTHENTICATION_FAILED", 58)


def test_keys_and_rights_need_a_key(own_gateway: Gateway) -> None:
    for path in ("/v1/keys", "/v1/acls"):
        problem(own_gateway.http.get(path), 401, "SASL_AUTHENTICATION_FAILED", 58)
    problem(own_gateway.http.post("/v1/keys", json={"principal": ADMIN}), 401, "SASL_AUTHENTICATION_FAILED", 58)


def test_work_that_has_begun_is_finished_under_the_last_known_keys(
    stack: Stack, admin: Gateway, own_gateway: Gateway, name: str
) -> None:
    admin.configure(name, share_auto_offset_reset="earliest")
    admin.produce(name, 1, 2, 3)
    admin.fetch(name, name)
    begun = good(admin.http.post("/v1/transactions", json={}), 201)["transaction_id"]
    pid = stack.service("group coordinator").pid
    os.kill(pid, signal.SIGSTOP)
    try:

        def refused() -> bool:
            produced = admin.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": 4}]})
            return produced.status_code == 503

        wait_until(refused)
        problem(admin.try_fetch(name, name), 503, "COORDINATOR_NOT_AVAILABLE", 15)
        problem(admin.http.get(f"/v1/topics/{name}"), 503, "COORDINATOR_NOT_AVAILABLE", 15)
        renew = {"member_id": "m1", "is_renew_ack": True, "acknowledgements": [acknowledge_range(name, 0, 0, "renew")]}
        renewed = good(admin.http.post(f"/v1/share-groups/{name}/fetch", json=renew))
        assert renewed["acknowledgement_results"][0]["status"] == "applied"
        assert outcomes(admin.try_acknowledge(name, [acknowledge_range(name, 0, 0, "accept")])) == ["applied"]
        accepts = [acknowledge_range(name, 1, 1, "accept"), acknowledge_range(name, 2, 2, "release", delay_ms=0)]
        carried = good(admin.try_fetch(name, name, acknowledgements=accepts, max_wait_ms=30_000))
        assert [result["status"] for result in carried["acknowledgement_results"]] == ["applied", "applied"]
        assert carried["batches"] == []
        good(admin.http.post(f"/v1/transactions/{begun}/commit", json={}))
        with caller(stack, WRONG) as wrong:
            problem(
                wrong.try_acknowledge(name, [acknowledge_range(name, 2, 2, "accept")]),
                401,
                "SASL_AUTHENTICATION_FAILED",
                58,
            )
        own_gateway.produce(name, 5)  # without a key nothing depends on what the gateway knows
        ready = own_gateway.http.get("/readyz").json()
        assert "keys and rights" in ready["lacks"]
        assert ready["works"] == ["acknowledge"]
        assert ready["dependencies"]["keys and rights"].startswith("are too old")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not refused())


def test_a_gateway_that_reads_no_keys_serves_any(gateway: Gateway, name: str) -> None:
    answer = gateway.http.get("/v1/topics", headers={"Authorization": f"Bearer {WRONG}"})
    good(answer)
    told = good(httpx.get(f"{gateway.http.base_url}/readyz"))["dependencies"]
    assert "authentication" not in told


def test_two_authorizations_are_refused_where_no_keys_are_read_too(gateway: Gateway) -> None:
    header = ("Authorization", "Basic of-a-proxy")
    good(gateway.http.get("/v1/topics", headers=[header]))
    problem(gateway.http.get("/v1/topics", headers=[header, header]), 400, "INVALID_REQUEST", 42)


def test_keys_outlive_crashes(stack: Stack, access: Access) -> None:
    key, other = access.key("User:crash"), access.key("User:crash")
    for crashes in ("group coordinator", "gateway"):
        service = stack.service(crashes)
        service.kill()
        service.start()
        wait_until(service.ready)
        with caller(stack, key) as mine:
            wait_until(lambda mine=mine: mine.http.get("/v1/topics").status_code == 200)
    access.revoke(other)
    access.until_known()
    with caller(stack, key) as mine, caller(stack, other) as revoked:
        problem(revoked.http.get("/v1/topics"), 401, "SASL_AUTHENTICATION_FAILED", 58)
        good(mine.http.get("/v1/topics"))
