"""With one part away the others go on: what is known is served, what is not is told."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack import Stack
from tests.http.calls import wait_until


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack with stores of its own, which forgets idle share-partitions soon."""
    settings = {"SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "500"}
    stack = Stack(tmp_path / "data", settings=settings)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        if stack.postgres is not None:
            stack.postgres.remove()


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
