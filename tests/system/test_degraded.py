"""With one part away the others keep working: known share-partitions are served, the others are refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import redis

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import wait_until, when_loaded


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    """A stack with stores of its own, which forgets idle share-partitions soon, and whose leases are short."""
    settings = {
        "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "500",
        "SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS": "1500",
    }
    with temporary_stack(tmp_path / "data", postgres_url=database_url, settings=settings) as stack:
        yield stack


def test_a_share_partition_is_loaded_again_without_the_group_coordinator(own_stack: Stack) -> None:
    with httpx.Client(base_url=own_stack.url, timeout=60) as client:
        client.post("/v1/topics/orders/records", json={"records": [{"value": 1}, {"value": 2}]}).raise_for_status()
        fetch = {"topics": ["orders"], "member_id": "m", "max_records": 1}
        (batch,) = wait_until(lambda: client.post("/v1/share-groups/g/fetch", json=fetch).json().get("batches"))
        del batch["records"]
        acknowledge = {"member_id": "m", "acknowledgements": [{**batch, "type": "accept"}]}
        client.post("/v1/share-groups/g/acknowledge", json=acknowledge).raise_for_status()
        own_stack.service("group coordinator").kill()

        def unloaded() -> bool:
            return "sharequeue_led_share_partitions 0.0" in client.get("/metrics").text

        def noticed() -> bool:
            return "does not answer" in client.get("/readyz").json()["dependencies"]["group coordinator"]

        wait_until(unloaded)
        wait_until(noticed)
        answer = client.post("/v1/share-groups/g/fetch", json=fetch)
        assert answer.status_code == 200, answer.text
        assert [record["value"] for record in answer.json()["batches"][0]["records"]] == [2]
        refused = client.post("/v1/share-groups/new/fetch", json=fetch)
        assert (refused.status_code, refused.json()["code"]) == (503, "COORDINATOR_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("how", "trouble"),
    [
        ("killed", "does not answer"),
        pytest.param("full", "refuses writes, its memory is full", marks=pytest.mark.soak),
    ],
)
def test_without_redis_and_group_coordinator_holders_settle_and_nothing_is_acquired(
    own_stack: Stack, how: str, trouble: str
) -> None:
    """Redis fences a gateway that was replaced; without it the lease does, and that cannot be renewed."""
    assert own_stack.redis is not None
    with httpx.Client(base_url=own_stack.url, timeout=60) as client:
        produce = {"records": [{"value": 1}]}
        client.post("/v1/topics/orders/records", json=produce).raise_for_status()
        fetch = {"topics": ["orders"], "member_id": "m", "max_records": 1, "max_wait_ms": 0}
        long = {**fetch, "lock_duration_ms": 600_000}
        (batch,) = wait_until(lambda: client.post("/v1/share-groups/g/fetch", json=long).json().get("batches"))
        del batch["records"]
        if how == "killed":
            own_stack.redis.kill()
        else:
            with redis.Redis.from_url(own_stack.redis.url) as server:
                server.config_set("maxmemory", 1)
        own_stack.service("group coordinator").kill()

        def refused() -> bool:
            answer = client.post("/v1/share-groups/g/fetch", json=fetch)
            return (answer.status_code, answer.json().get("code")) == (503, "COORDINATOR_NOT_AVAILABLE")

        wait_until(refused)
        detail = client.post("/v1/share-groups/g/fetch", json=fetch).json()["detail"]
        assert f"the group coordinator does not answer, and Redis {trouble}" in detail
        acknowledge = {"member_id": "m", "acknowledgements": [{**batch, "type": "accept"}]}
        client.post("/v1/share-groups/g/acknowledge", json=acknowledge).raise_for_status()
        client.post("/v1/topics/orders/records", json=produce).raise_for_status()
        assert refused()
        own_stack.service("group coordinator").start()

        def served() -> bool:
            answer = client.post("/v1/share-groups/g/fetch", json=fetch)
            return bool(answer.json().get("batches"))

        wait_until(served)


@pytest.mark.soak
def test_a_redis_that_may_evict_locks_is_named_and_used(own_stack: Stack) -> None:
    assert own_stack.redis is not None
    with (
        httpx.Client(base_url=own_stack.url, timeout=60) as client,
        redis.Redis.from_url(own_stack.redis.url) as server,
    ):

        def told() -> str | None:
            answer = client.get("/readyz").json()
            assert "redis" not in answer.get("lacks", ())
            told: str | None = answer["dependencies"].get("eviction")
            return told

        assert told() is None
        server.config_set("maxmemory-policy", "allkeys-lru")
        wait_until(lambda: told() is not None, 60)
        assert "maxmemory-policy is allkeys-lru: set it to noeviction" in (told() or "")
        assert "maxmemory-policy is allkeys-lru" in (own_stack.logs / "gateway.log").read_text()
        server.config_set("maxmemory-policy", "noeviction")
        wait_until(lambda: told() is None, 60)


@pytest.mark.parametrize("how", [pytest.param("renewal", marks=pytest.mark.soak), "poll"])
def test_held_records_stay_held_when_the_group_coordinator_is_back_before_redis(own_stack: Stack, how: str) -> None:
    """While nothing may be acquired, no request makes the gateway forget a lock: only its memory knows them."""
    assert own_stack.redis is not None
    with httpx.Client(base_url=own_stack.url, timeout=60) as client, ThreadPoolExecutor(1) as pool:

        def produce(value: int) -> None:
            client.post("/v1/topics/orders/records", json={"records": [{"value": value}]}).raise_for_status()

        def fetch(member: str, max_wait_ms: int = 0, **fields: int) -> httpx.Response:
            body = {"topics": ["orders"], "member_id": member, "max_wait_ms": max_wait_ms, **fields}
            return client.post("/v1/share-groups/g/fetch", json=body)

        produce(0)
        (batch,) = when_loaded(lambda: fetch("m", 5000, lock_duration_ms=600_000)).json()["batches"]
        del batch["records"]
        if how == "poll":
            waiting = pool.submit(fetch, "n", 20_000)
            wait_until(lambda: "sharequeue_waiting_fetches 1.0" in client.get("/metrics").text)
        own_stack.redis.kill()
        own_stack.service("group coordinator").kill()
        wait_until(lambda: fetch("o").status_code == 503)
        produce(1)
        if how == "poll":
            assert not waiting.result(90).json().get("batches")
        else:
            renew = {"member_id": "m", "acknowledgements": [{**batch, "type": "renew"}]}
            answer = client.post("/v1/share-groups/g/acknowledge", json=renew)
            assert answer.json()["results"][0]["retriable"], "nothing keeps another gateway from handing it out"
        own_stack.service("group coordinator").start()
        served = wait_until(lambda: fetch("o").json().get("batches"))
        assert [(taken["first_offset"], taken["last_offset"]) for taken in served] == [(1, 1)]
        accept = {"member_id": "m", "acknowledgements": [{**batch, "type": "accept"}]}
        settled = client.post("/v1/share-groups/g/acknowledge", json=accept)
        assert settled.json()["results"][0]["status"] == "applied", settled.text
