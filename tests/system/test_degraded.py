"""With one part away the others go on: what is known is served, what is not is told."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack import Stack
from tests.http.calls import wait_until


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    """A stack with stores of its own, which forgets idle share-partitions soon."""
    settings = {"SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "500"}
    stack = Stack(tmp_path / "data", postgres_url=database_url, settings=settings)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def test_a_share_partition_is_loaded_again_without_the_group_coordinator(own_stack: Stack) -> None:
    with httpx.Client(base_url=own_stack.url, timeout=20) as client:
        client.post("/v1/topics/orders/records", json={"records": [{"value": 1}, {"value": 2}]}).raise_for_status()
        fetch = {"topics": ["orders"], "member_id": "m", "max_records": 1}
        (batch,) = client.post("/v1/share-groups/g/fetch", json=fetch).json()["batches"]
        del batch["records"]
        acknowledge = {"member_id": "m", "acknowledgements": [{**batch, "type": "accept"}]}
        client.post("/v1/share-groups/g/acknowledge", json=acknowledge).raise_for_status()
        own_stack.service("group coordinator").kill()

        def unloaded() -> bool:
            return "sharequeue_led_share_partitions 0.0" in client.get("/metrics").text

        def told() -> bool:
            return "does not answer" in client.get("/readyz").json()["dependencies"]["group coordinator"]

        wait_until(unloaded)
        wait_until(told)
        answer = client.post("/v1/share-groups/g/fetch", json=fetch)
        assert answer.status_code == 200, answer.text
        assert [record["value"] for record in answer.json()["batches"][0]["records"]] == [2]
        refused = client.post("/v1/share-groups/new/fetch", json=fetch)
        assert (refused.status_code, refused.json()["code"]) == (503, "COORDINATOR_NOT_AVAILABLE")


def test_without_redis_and_group_coordinator_nothing_is_handed_out_but_holders_settle(own_stack: Stack) -> None:
    """Redis fences a gateway that was replaced; without it the lease does, and that cannot be renewed."""
    assert own_stack.redis is not None
    with httpx.Client(base_url=own_stack.url, timeout=20) as client:
        produce = {"records": [{"value": 1}]}
        client.post("/v1/topics/orders/records", json=produce).raise_for_status()
        fetch = {"topics": ["orders"], "member_id": "m", "max_records": 1, "max_wait_ms": 0}
        (batch,) = client.post("/v1/share-groups/g/fetch", json=fetch).json()["batches"]
        del batch["records"]
        own_stack.redis.kill()
        own_stack.service("group coordinator").kill()

        def refused() -> bool:
            answer = client.post("/v1/share-groups/g/fetch", json=fetch)
            return (answer.status_code, answer.json().get("code")) == (503, "COORDINATOR_NOT_AVAILABLE")

        wait_until(refused)
        acknowledge = {"member_id": "m", "acknowledgements": [{**batch, "type": "accept"}]}
        client.post("/v1/share-groups/g/acknowledge", json=acknowledge).raise_for_status()
        client.post("/v1/topics/orders/records", json=produce).raise_for_status()
        assert refused()
        own_stack.service("group coordinator").start()

        def served() -> bool:
            answer = client.post("/v1/share-groups/g/fetch", json=fetch)
            return bool(answer.json().get("batches"))

        wait_until(served)
