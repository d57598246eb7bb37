"""Service-wide settings of groups over HTTP: defaults and bounds, also after a restart with other ones."""

import json
from typing import Any

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, problem, wait_until
from tests.http.cli.conftest import Run

PREFIX = "SHAREQUEUE_COORDINATOR_GROUP_SHARE_"
LOCK = "share.record.lock.duration.ms"
MAX_LOCK = "group.share.max.record.lock.duration.ms"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        f"{PREFIX}RECORD_LOCK_DURATION_MS": "20000",
        f"{PREFIX}MAX_RECORD_LOCK_DURATION_MS": "40000",
        f"{PREFIX}DELIVERY_COUNT_LIMIT": "1",
        f"{PREFIX}PARTITION_MAX_RECORD_LOCKS": "3",
        f"{PREFIX}SESSION_TIMEOUT_MS": "50000",
        f"{PREFIX}HEARTBEAT_INTERVAL_MS": "4000",
    }


def config(gateway: Gateway, group: str) -> Any:
    return good(gateway.http.get(f"/v1/share-groups/{group}/config"))


def service(gateway: Gateway, group: str) -> Any:
    return good(gateway.http.get(f"/v1/share-groups/{group}/config/service"))


def test_a_group_that_says_nothing_has_the_services_defaults(own_gateway: Gateway, name: str) -> None:
    own_gateway.produce_batches(name, 5)
    (batch,) = own_gateway.fetch(name, name)["batches"]
    assert (batch["first_offset"], batch["last_offset"], batch["lock_duration_ms"]) == (0, 2, 20_000)
    assert own_gateway.settle(name, name, 0, 2, "release") == "applied"
    acquired = wait_until(lambda: own_gateway.acquire(name, name))  # once the dead letters are written
    assert acquired == ["3-4×1"], "one delivery was the limit"
    joined = {"member_id": "m1", "member_epoch": 0, "subscribed_topic_names": [name]}
    answer = good(own_gateway.http.post(f"/v1/share-groups/{name}/heartbeat", json=joined))
    assert answer["heartbeat_interval_ms"] == 4000
    in_force = config(own_gateway, name)
    assert (in_force[LOCK], in_force["share.session.timeout.ms"]) == ("20000", "50000")


def test_a_value_out_of_the_operators_bounds_is_refused_and_both_are_named(own_gateway: Gateway, name: str) -> None:
    for value in ("40001", "43200001"):
        refused = own_gateway.http.patch(f"/v1/share-groups/{name}/config", json={"config": {LOCK: value}})
        detail = problem(refused, 422, "INVALID_CONFIG", 40)["detail"]
        assert detail == f"{LOCK} must be in the range 1000 to 40000 inclusive, not {value}; {MAX_LOCK} is 40000"
    own_gateway.configure(name, share_record_lock_duration_ms="40000")


def test_the_lock_of_a_fetch_and_of_a_renewal_has_the_operators_bounds(own_gateway: Gateway, name: str) -> None:
    own_gateway.produce_batches(name, 1)
    refused = own_gateway.try_fetch(name, name, lock_duration_ms=40_001)
    assert "1000 to 40000" in problem(refused, 422, "INVALID_REQUEST", 42)["detail"]
    (batch,) = own_gateway.fetch(name, name, lock_duration_ms=40_000)["batches"]
    assert batch["lock_duration_ms"] == 40_000
    assert own_gateway.settle(name, name, 0, 0, "renew", lock_duration_ms=40_001) == 42
    assert own_gateway.settle(name, name, 0, 0, "renew", lock_duration_ms=40_000) == "applied"


def test_what_the_answer_has_can_be_sent_back(own_gateway: Gateway, name: str) -> None:
    in_force = config(own_gateway, name)
    assert all(isinstance(value, str) for value in in_force.values())
    sent = {"config": in_force}
    assert good(own_gateway.http.patch(f"/v1/share-groups/{name}/config", json=sent)) == in_force
    answer = service(own_gateway, name)
    assert (answer["service"][MAX_LOCK], answer["service"]["group.share.min.delivery.count.limit"]) == (40_000, 1)
    assert "clamped" not in answer


def test_bounds_that_shrink_clamp_what_is_stored_and_say_so(
    own_gateway: Gateway, stack: Stack, run: Run, name: str
) -> None:
    def next_lock_ms() -> int:
        (batch,) = own_gateway.fetch(name, name, max_records=1)["batches"]
        own_gateway.settle(name, name, batch["first_offset"], batch["last_offset"], "release", begun=False)
        return int(batch["lock_duration_ms"])

    own_gateway.produce_batches(name, 1)
    own_gateway.configure(name, share_record_lock_duration_ms="40000", share_delivery_count_limit="100")
    assert next_lock_ms() == 40_000
    coordinator = stack.service("group coordinator")
    before = dict(coordinator.environment)
    try:
        coordinator.environment[f"{PREFIX}MAX_RECORD_LOCK_DURATION_MS"] = "30000"
        coordinator.stop()
        coordinator.start()
        wait_until(coordinator.ready)
        wait_until(lambda: next_lock_ms() == 30_000)  # the gateway had loaded the share-partition
        assert own_gateway.try_fetch(name, name, lock_duration_ms=30_001).status_code == 422
        said = {LOCK: {"stored": 40_000, "used": 30_000, "bound": MAX_LOCK}}
        assert service(own_gateway, name)["clamped"] == said
        in_force = config(own_gateway, name)
        assert in_force[LOCK] == "30000"
        shown = run("groups", "config", name)
        assert f"{LOCK} is stored as 40000 and counts as 30000, because of {MAX_LOCK}" in shown.stderr.decode()
        rows = dict(line.split() for line in shown.stdout.decode().splitlines())
        assert (rows[LOCK], rows[MAX_LOCK]) == ("30000", "30000")
        assert json.loads(run("groups", "config", name, "--json").stdout) == in_force
        assert json.loads(run("groups", "config", name, "--service", "--json").stdout)["clamped"] == said
        assert LOCK not in [
            line.split()[0] for line in run("groups", "config", name, "--service").stdout.decode().splitlines()
        ]
        good(own_gateway.http.patch(f"/v1/share-groups/{name}/config", json={"config": in_force}))
        assert "clamped" not in service(own_gateway, name)
    finally:
        coordinator.environment.clear()
        coordinator.environment.update(before)
        coordinator.stop()
        coordinator.start()
        wait_until(coordinator.ready)
