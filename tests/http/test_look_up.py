"""The life of one record in a group, by its offset and by its key, whatever gateway leads."""

from typing import Any

from tests.http.calls import Gateway, Json, good, problem, wait_until
from tests.http.test_redrive import dead, redrive


def path(group: str, topic: str, offset: object, partition: object = 0) -> str:
    return f"/v1/share-groups/{group}/topics/{topic}/partitions/{partition}/records/{offset}"


def life(gateway: Gateway, group: str, topic: str, offset: int) -> Json:
    return dict(good(gateway.http.get(path(group, topic, offset))))


def find(gateway: Gateway, group: str, topic: str, **query: Any) -> Json:
    return dict(good(gateway.http.get(f"/v1/share-groups/{group}/topics/{topic}/records", params=query)))


def test_lu_101_a_record_is_new_then_held_delayed_held_again_and_finished(gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(5))
    gateway.acquire(name, name, max_records=3, member="w-1")
    new = life(gateway, name, name, 4)
    assert (new["state"], new["unfinished_before"]) == ("new", 4)
    held = life(gateway, name, name, 1)
    assert (held["state"], held["in_flight"]["member_id"], held["in_flight"]["attempt"]) == ("held", "w-1", 1)
    assert held["in_flight"]["lock_expires_at_ms"] > held["timestamp_ms"]
    gateway.settle(name, name, 0, 0, "accept", member="w-1")
    gateway.settle(name, name, 1, 1, "release", member="w-1", delay_ms=3_600_000, reason="busy")
    gateway.settle(name, name, 2, 2, "release", member="w-1", reason="odd")
    assert life(gateway, name, name, 0)["state"] == "finished"
    delayed = life(gateway, name, name, 1)
    assert (delayed["state"], delayed["in_flight"]["reason"]) == ("delayed", "busy")
    assert delayed["in_flight"]["available_at_ms"] > delayed["timestamp_ms"]
    assert (delayed["unfinished_before"], life(gateway, name, name, 4)["unfinished_before"]) == (0, 3)
    assert life(gateway, name, name, 2)["state"] == "ready"


def test_lu_101b_a_group_may_keep_who_has_finished_a_record(gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(5))
    gateway.acquire(name, name, max_records=5, member="w-0")
    gateway.settle(name, name, 0, 0, "accept", member="w-0")
    assert "finished_by" not in life(gateway, name, name, 0), "it is off by default"
    gateway.configure(name, **{"share.outcomes.keep.ms": "60000"})
    gateway.settle(name, name, 1, 2, "accept", member="w-0")
    gateway.settle(name, name, 3, 3, "reject", member="w-0", reason="poison")
    gateway.settle(name, name, 4, 4, "release", member="w-0")
    done = life(gateway, name, name, 2)
    assert (done["state"], done["finished_by"]) == ("finished", "w-0")
    assert done["finished_at_ms"] >= done["timestamp_ms"]
    died = wait_until(lambda: (found := life(gateway, name, name, 3))["state"] == "dead" and found)
    assert (died["finished_by"], died["dead_letters"][0]["reason"]) == ("w-0", "poison")
    assert "finished_by" not in life(gateway, name, name, 4)


def test_lu_102_why_a_record_died_and_what_it_was_redriven_as(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1, 2)
    dead(gateway, name, name, 2, reason="poison")
    died = life(gateway, name, name, 1)
    (letter,) = died["dead_letters"]
    assert (died["state"], letter["state"], letter["reason"]) == ("dead", "open", "poison")
    assert letter["letter"] == {"topic": f"dlq.{name}", "partition": 0, "offset": 1}
    redrive(gateway, name, topic=name, offset=1)
    (letter,) = life(gateway, name, name, 1)["dead_letters"]
    assert (letter["state"], letter["redriven_to"]["offset"]) == ("redriven", 2)
    assert life(gateway, name, name, 2)["state"] == "new"
    other = f"{name}-other"
    gateway.acquire(other, name)
    assert life(gateway, other, name, 2)["state"] == "skipped"
    gateway.delete_records(name, 2)
    gone = life(gateway, name, name, 0)
    assert (gone["state"], gone["log_start_offset"], "timestamp_ms" in gone) == ("dead", 2, False)


def test_lu_103_records_of_an_aborted_transaction_are_skipped(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1)
    gateway.acquire(name, name, member="w-1")
    transaction = good(gateway.http.post("/v1/transactions", json={}), 201)["transaction_id"]
    body = {"records": [{"value": 2}]}
    good(gateway.http.post(f"/v1/topics/{name}/records", json=body, headers={"Transaction-Id": transaction}))
    gateway.configure(name, share_isolation_level="read_committed")
    assert life(gateway, name, name, 1)["state"] == "new"
    good(gateway.http.post(f"/v1/transactions/{transaction}/abort", json={}))
    assert life(gateway, name, name, 1)["state"] == "skipped"
    assert life(gateway, name, name, 2)["state"] == "skipped", "the marker"


def test_lu_104_what_is_mistaken_is_refused(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1)
    problem(gateway.http.get(path(name, name, 0)), 404, "GROUP_ID_NOT_FOUND", 69)
    gateway.acquire(name, name)
    problem(gateway.http.get(path(name, name, 1)), 422, "OFFSET_OUT_OF_RANGE", 1)
    problem(gateway.http.get(path(name, name, 2**63 - 1)), 422, "OFFSET_OUT_OF_RANGE", 1)
    for offset in ("x", "-1", "1.0", 2**63):
        problem(gateway.http.get(path(name, name, offset)), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(path(name, name, 0, partition=7)), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    records = f"/v1/share-groups/{name}/topics/{name}/records"
    problem(gateway.http.get(records), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(records, params={"key": "k", "page_token": "x"}), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(f"/v1/share-groups/{name}/in-flight?topic={name}&offset=0"), 422, "INVALID_REQUEST", 42)


def test_lu_105_records_are_found_by_key_the_newest_first(gateway: Gateway, name: str) -> None:
    """A value that has the key is not taken for a key; a key beside it is not, either."""
    gateway.create_topic(name, 3)
    keys = ["wanted \u00e9", "wanted \u00e9+", None]
    for _ in range(5):
        for key in keys:
            gateway.produce(name, "wanted \u00e9", key=key)
    gateway.acquire(name, name)
    first = find(gateway, name, name, key=keys[0], page_size=3)
    rest = find(gateway, name, name, key=keys[0], page_size=3, page_token=first["next_page_token"])
    offsets = [record["offset"] for page in (first, rest) for record in page["records"]]
    assert len(offsets) == 5
    assert offsets == sorted(offsets, reverse=True)
    assert {record["state"] for record in first["records"]} == {"held"}
    assert "next_page_token" not in rest
    elsewhere = next(partition for partition in range(3) if partition != first["partition"])
    assert find(gateway, name, name, key=keys[0], partition=elsewhere)["records"] == []


def test_lu_106_a_call_looks_at_a_bounded_part_of_the_log(gateway: Gateway, name: str) -> None:
    gateway.produce(name, "first", key="k")
    for _ in range(11):
        good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1, "partition": 0}] * 10_000}))
    gateway.acquire(name, name, max_records=1)
    page = find(gateway, name, name, key="k")
    assert (page["records"], page["looked"] <= 101_000) == ([], True)
    pages = [page]
    while token := pages[-1].get("next_page_token"):
        pages.append(find(gateway, name, name, key="k", page_token=token))
    assert [record["offset"] for record in pages[-1]["records"]] == [0]
    assert sum(each["looked"] for each in pages) == 110_001
