"""The calls of audits: for operators alone, in pages and parts, the stored state beside the answered one."""

from pathlib import Path
from typing import Any

import pytest

from tests.http.calls import Gateway, Json, good, problem


@pytest.fixture
def operator(shared_data_dir: Path, gateway: Gateway) -> dict[str, str]:
    """The headers of an operator."""
    (token,) = shared_data_dir.rglob("cluster.token")
    return {"Authorization": f"Bearer {token.read_text().strip()}"}


def states(gateway: Gateway, operator: dict[str, str], **query: Any) -> Json:
    return dict(good(gateway.http.get("/v1/audit/share-state", params=query, headers=operator)))


def test_clients_may_not_call_audit(gateway: Gateway, name: str) -> None:
    for path in ("/v1/audit/share-state", "/v1/audit/log/4799b8f4-4040-412c-b59e-000000000001/0"):
        problem(gateway.http.get(path), 401, "SASL_AUTHENTICATION_FAILED", 58)


@pytest.mark.parametrize(
    "query", [{"partition": 2**31}, {"group_id": "g\x00"}, {"topic_id": "\x00"}, {"partition": "null"}], ids=str
)
def test_a_query_out_of_the_stores_range_is_refused(
    gateway: Gateway, operator: dict[str, str], query: dict[str, Any]
) -> None:
    response = gateway.http.get("/v1/audit/share-state", params=query, headers=operator)
    problem(response, 422, "INVALID_REQUEST", 42)


def test_audit_shows_a_share_partition_as_stored(gateway: Gateway, operator: dict[str, str], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce(name, *range(10))
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 2, 4, "accept") == "applied"
    topic_id = gateway.describe_topic(name)["topic_id"]
    (found,) = states(gateway, operator, group_id=name, topic_id=topic_id, partition=0)["share_partitions"]
    assert (found["group_id"], found["topic"], found["partition"]) == (name, name, 0)
    assert (found["log_start_offset"], found["log_end_offset"]) == (0, 10)
    assert found["rows"][0]["kind"] == "snapshot"
    newest = found["rows"][-1]
    assert newest["kind"] == "update"
    batch = {"first_offset": 2, "last_offset": 4, "delivery_state": 2, "delivery_count": 1}
    assert newest["state_batches"] == [batch]
    answer = found["answer"]
    assert (answer["error_code"], answer["start_offset"], answer["delivery_complete_count"]) == (0, 0, 3)
    assert states(gateway, operator, group_id=f"{name}-no")["share_partitions"] == []


def test_pages_list_every_share_partition_once(gateway: Gateway, operator: dict[str, str], name: str) -> None:
    gateway.create_topic(name, 7)
    gateway.fetch(name, name)
    found: list[int] = []
    for part in range(3):
        query: Json = {"group_id": name, "page_size": 2, "part": part, "parts": 3}
        while True:
            page = states(gateway, operator, **query)
            assert len(page["share_partitions"]) <= 2
            found += [entry["partition"] for entry in page["share_partitions"]]
            if "next_after" not in page:
                break
            query["after"] = page["next_after"]
    assert sorted(found) == list(range(7))


def test_audit_shows_the_log_as_stored(gateway: Gateway, operator: dict[str, str], name: str) -> None:
    gateway.create_topic(name)
    gateway.produce_batches(name, 3, 4, 5)
    gateway.delete_records(name, 1)
    path = f"/v1/audit/log/{gateway.describe_topic(name)['topic_id']}/0"

    def stored(**query: int) -> list[tuple[int, int, int]]:
        answer = good(gateway.http.get(path, params=query, headers=operator))
        assert (answer["log_start_offset"], answer["log_end_offset"], answer["deleted"]) == (1, 12, False)
        return [(batch["base_offset"], batch["last_offset"], batch["record_count"]) for batch in answer["batches"]]

    assert stored() == [(0, 2, 3), (3, 6, 4), (7, 11, 5)]
    assert stored(offset=4) == [(3, 6, 4), (7, 11, 5)]
    assert stored(offset=4, page_size=1) == [(3, 6, 4)]
    assert stored(offset=99) == []
    for wrong in ("/v1/audit/log/x/0", path.removesuffix("0") + "1" * 5000):
        problem(gateway.http.get(wrong, headers=operator), 422, "INVALID_REQUEST", 42)
