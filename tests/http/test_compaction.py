"""listRecordBatches and replaceRecordBatches over HTTP, and what groups get of a topic that is compacted."""

from typing import Any

import httpx

from tests.http.calls import Gateway, Json, good, offsets, problem, wait_until


def batches(gateway: Gateway, topic: str, **query: Any) -> list[Json]:
    return list(good(gateway.http.get(f"/v1/topics/{topic}/partitions/0/batches", params=query))["batches"])


def try_replace(gateway: Gateway, topic: str, *changes: tuple[int, int, list[tuple[int, int]]]) -> httpx.Response:
    """Each change: base offset, generation, ranges to remove."""
    body = {
        "batches": [
            {
                "base_offset": base,
                "generation": generation,
                "remove": [{"first_offset": first, "last_offset": last} for first, last in removed],
            }
            for base, generation, removed in changes
        ]
    }
    return gateway.http.post(f"/v1/topics/{topic}/partitions/0/replace-batches", json=body)


def compacted(gateway: Gateway, topic: str, *sizes: int) -> None:
    gateway.create_topic(topic, cleanup_policy="compact")
    gateway.produce_batches(topic, *sizes)


def test_batches_are_listed_and_replaced(gateway: Gateway, name: str) -> None:
    compacted(gateway, name, 5, 3, 1)
    listed = batches(gateway, name)
    assert [(b["base_offset"], b["last_offset"], b["record_count"], b["generation"]) for b in listed] == [
        (0, 4, 5, 0),
        (5, 7, 3, 0),
        (8, 8, 1, 0),
    ]
    assert all(batch["size_bytes"] > 0 and batch["max_timestamp_ms"] > 0 for batch in listed)
    assert [batch["base_offset"] for batch in batches(gateway, name, offset=6, max_batches=1)] == [5]
    answer = good(try_replace(gateway, name, (0, 0, [(0, 0), (2, 3)]), (5, 0, [(5, 7)])))
    assert answer["batches"] == [
        {"base_offset": 0, "generation": 1, "record_count": 2},
        {"base_offset": 5, "generation": 1, "record_count": 0},
    ]
    read = gateway.read(name)
    assert [record["offset"] for record in read["records"]] == [1, 4, 8]
    assert (read["next_offset"], read["log_end_offset"]) == (9, 9)
    assert gateway.read(name, offset=5, max_records=3)["next_offset"] == 8


def test_invalid_replacements_are_refused(gateway: Gateway, name: str) -> None:
    compacted(gateway, name, 5, 3, 1)
    good(try_replace(gateway, name, (0, 0, [(0, 0)])))
    problem(try_replace(gateway, name, (0, 0, [(1, 1)])), 409, "INVALID_UPDATE_VERSION", 95)
    problem(try_replace(gateway, name, (8, 0, [(8, 8)])), 422, "INVALID_REQUEST", 42)
    problem(try_replace(gateway, name, (5, 0, [(5, 5)]), (0, 1, [(1, 1)])), 422, "INVALID_REQUEST", 42)
    problem(try_replace(gateway, name, (5, 0, [(4, 5)])), 422, "INVALID_REQUEST", 42)
    problem(try_replace(gateway, name, (5, 0, [])), 422, "INVALID_REQUEST", 42)
    problem(try_replace(gateway, f"{name}-no", (0, 0, [(0, 0)])), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    gateway.create_topic(f"{name}-delete")
    gateway.produce_batches(f"{name}-delete", 2, 2)
    refused = problem(try_replace(gateway, f"{name}-delete", (0, 0, [(0, 0)])), 422, "INVALID_REQUEST", 42)
    assert "cleanup.policy is not compact" in refused["detail"]
    outside = gateway.http.get(f"/v1/topics/{name}/partitions/0/batches", params={"offset": 10})
    problem(outside, 422, "OFFSET_OUT_OF_RANGE", 1)
    problem(gateway.http.get(f"/v1/topics/{name}/partitions/7/batches"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def test_a_group_in_the_middle_gets_the_remaining_records(gateway: Gateway, name: str) -> None:
    """Held, released and never fetched records leave the log; the rest of each kind is delivered once."""
    compacted(gateway, name, 10, 10, 10, 1)
    group = f"{name}-g"
    gateway.acquire(group, name, max_records=8)
    for first, last, what in ((0, 1, "accept"), (2, 4, "release")):
        assert gateway.settle(group, name, first, last, what) == "applied"
    good(try_replace(gateway, name, (0, 0, [(2, 3), (6, 8)]), (10, 0, [(10, 19)]), (20, 0, [(20, 28)])))
    assert offsets(gateway.fetch(group, name, member="m2", max_records=1)) == [4]
    assert gateway.settle(group, name, 5, 7, "accept") == "applied", "its holder may still say so, compacted or not"
    assert gateway.settle(group, name, 4, 4, "accept", member="m2") == "applied"
    found: list[int] = []
    while got := offsets(gateway.fetch(group, name, max_records=3)):
        found += got
        for offset in got:
            assert gateway.settle(group, name, offset, offset, "accept") == "applied"
    assert found == [9, 29, 30]
    assert gateway.offsets(group)[name, 0][1] == 0


def test_a_record_redriven_to_one_group_survives_compaction_for_it_alone(gateway: Gateway, name: str) -> None:
    """Even after its batch was compacted, when the other group begins later."""
    compacted(gateway, name, 2)
    assert gateway.acquire(name, name) == ["0-1×1"]
    assert gateway.settle(name, name, 0, 1, "reject") == "applied"
    wait_until(lambda: gateway.offsets(name)[name, 0] == (2, 0))
    assert good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={}))["redriven"] == 2
    gateway.produce(name, "newest")
    assert [batch["record_count"] for batch in batches(gateway, name)] == [2, 2, 1]
    good(try_replace(gateway, name, (2, 0, [(2, 2)])))
    other = f"{name}-other"
    gateway.configure(other, share_auto_offset_reset="earliest")
    assert offsets(gateway.fetch(name, name)) == [3, 4]
    assert offsets(gateway.fetch(other, name)) == [0, 1, 4]
