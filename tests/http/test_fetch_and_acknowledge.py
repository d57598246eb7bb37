"""The basic cycle over HTTP: the scenario family FA, and what an answer looks like."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.http.calls import (
    CLOCKS_APART_MS,
    LONG_MS,
    Gateway,
    Json,
    acknowledge_range,
    good,
    offsets,
    outcomes,
    problem,
    ranges,
    when_loaded,
    woken,
)


def test_fa_009_a_fetch_answers_the_groups_lock_duration(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=15_000)
    gateway.produce_batches(name, 1)
    before_ms = time.time() * 1000
    answer = gateway.fetch(name, name)
    after_ms = time.time() * 1000
    assert answer["acquisition_lock_timeout_ms"] == 15_000
    expires_at_ms = answer["batches"][0]["lock_expires_at_ms"]
    assert before_ms - CLOCKS_APART_MS <= expires_at_ms - 15_000 <= after_ms + CLOCKS_APART_MS
    settled = good(gateway.try_acknowledge(name, [acknowledge_range(name, 0, 0, "accept")]))
    assert settled == {"results": [{"status": "applied"}], "failed_count": 0, "acquisition_lock_timeout_ms": 15_000}


def test_fa_019_a_range_has_only_its_own_records(gateway: Gateway, name: str) -> None:
    """Kafka sends whole batches and the client drops what it did not acquire; over HTTP there is nothing to drop."""
    gateway.produce_batches(name, 5, 10)
    assert offsets(gateway.fetch(name, name, max_records=5)) == [0, 1, 2, 3, 4]
    for expected in ([5, 6, 7, 8], [9, 10, 11, 12, 13], [14]):
        answer = gateway.fetch(name, name, max_records=len(expected))
        assert offsets(answer) == expected


def test_fa_021_a_partition_without_data_takes_acknowledgements(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 2, partition=1)
    assert gateway.acquire(name, name) == ["1:0-1×1"]
    gateway.produce_batches(name, 1, partition=0)
    accept = [{**acknowledge_range(name, 0, 1, "accept"), "partition": 1}]
    only_p0 = [{"topic": name, "partitions": [0]}]
    answer = gateway.fetch(name, topic_partitions=only_p0, acknowledgements=accept)
    assert ranges(answer) == ["0-0×1"]
    assert (answer["acknowledgement_results"], answer["errors"]) == ([{"status": "applied"}], [])


def test_fa_025_a_member_of_one_group_holds_nothing_in_another(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 3)
    gateway.acquire(name, name)
    other = f"{name}-other"
    never_fetched = gateway.try_acknowledge(other, [acknowledge_range(name, 0, 2, "accept")])
    problem(never_fetched, 409, "INVALID_RECORD_STATE", 121)
    assert gateway.acquire(other, name, member="m2") == ["0-2×1"]
    assert gateway.settle(other, name, 0, 2, "accept") == 121
    gateway.acquire(other, name, share_session_epoch=0)
    held_elsewhere = gateway.try_acknowledge(other, [acknowledge_range(name, 0, 2, "accept")], share_session_epoch=1)
    assert outcomes(held_elsewhere) == [121]
    assert gateway.settle(name, name, 0, 2, "accept") == "applied"


def test_a_fetched_range_with_a_type_is_an_acknowledgement(gateway: Gateway, name: str) -> None:
    """jq '{member_id, acknowledgements: [.batches[] | del(.records) + {type:"accept"}]}'"""
    gateway.create_topic(name, partitions=3)
    for partition in range(3):
        gateway.produce_batches(name, 2, 3, partition=partition)

    def one_liner(answer: Json) -> Json:
        entries = [{key: value for key, value in batch.items() if key != "records"} for batch in answer["batches"]]
        return {
            "member_id": answer["member_id"],
            "acknowledgements": [{**entry, "type": "accept"} for entry in entries],
        }

    fetched = good(
        when_loaded(
            lambda: gateway.http.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "max_wait_ms": 0})
        )
    )
    settled = good(gateway.http.post(f"/v1/share-groups/{name}/acknowledge", json=one_liner(fetched)))
    assert settled["results"] == [{"status": "applied"}] * 3
    empty = good(
        when_loaded(
            lambda: gateway.http.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "max_wait_ms": 0})
        )
    )
    assert empty["batches"] == []
    settled = good(gateway.http.post(f"/v1/share-groups/{name}/acknowledge", json=one_liner(empty)))
    assert settled == {"results": [], "failed_count": 0, "acquisition_lock_timeout_ms": 30_000}
    assert [partition["start_offset"] for partition in gateway.in_flight(name)] == [5, 5, 5]


def test_a_fetched_batch_has_the_fields_of_the_contract(gateway: Gateway, name: str) -> None:
    produced = {"key": "cust-9", "value": {"id": 1}, "headers": {"trace": "x"}, "timestamp_ms": 1_763_640_000_000}
    good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [produced, {"value": None}]}))
    answer = gateway.fetch(name, name)
    (batch,) = answer["batches"]
    first, second = batch.pop("records")
    assert batch.pop("lock_expires_at_ms") > 0
    assert (batch.pop("lock_duration_ms"), batch.pop("attempt")) == (30_000, 1)
    assert batch.pop("topic_id") == gateway.describe_topic(name)["topic_id"]
    assert batch == {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 1, "delivery_count": 1}
    assert first == {"offset": 0, **produced}
    assert second.pop("timestamp_ms") > 0
    assert second == {"offset": 1, "key": None, "value": None}


def test_a_missing_member_id_is_generated(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1, 1)
    path = f"/v1/share-groups/{name}/fetch"
    one, two = (good(gateway.http.post(path, json={"topics": [name], "max_records": 1})) for _ in range(2))
    assert one["member_id"] != two["member_id"]
    assert all(1 <= len(answer["member_id"]) <= 36 for answer in (one, two))
    assert gateway.settle(name, name, 0, 0, "accept", member=two["member_id"]) == 121
    assert gateway.settle(name, name, 0, 0, "accept", member=one["member_id"]) == "applied"
    assert gateway.settle(name, name, 1, 1, "accept", member=two["member_id"]) == "applied"


def test_a_failed_partition_does_not_stop_the_others(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 2)
    answer = gateway.fetch(name, topics=[name, "no-such-topic"], topic_partitions=[{"topic": name, "partitions": [7]}])
    assert ranges(answer) == ["0-1×1"]
    errors = {(error["topic"], error["partition"], error["code"], error["kafka_code"]) for error in answer["errors"]}
    assert errors == {
        ("no-such-topic", -1, "UNKNOWN_TOPIC_OR_PARTITION", 3),
        (name, 7, "UNKNOWN_TOPIC_OR_PARTITION", 3),
    }
    assert all(error["detail"] for error in answer["errors"])
    assert answer["failed_count"] == 0


def test_a_fetch_of_nothing_but_unknown_topics_fails_at_once(gateway: Gateway, name: str) -> None:
    with woken(gateway):
        response = gateway.try_fetch(name, "no-such-topic", max_wait_ms=LONG_MS)
    problem(response, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def test_acknowledging_an_unknown_group_does_not_break_its_first_fetch(gateway: Gateway, name: str) -> None:
    """Both load the share-partition at once, and only the fetch may initialise the group's state."""
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 2)
    accept = [acknowledge_range(name, 0, 1, "accept"), acknowledge_range(name, 0, 1, "accept", partition=1)]
    answer = gateway.fetch(name, name, acknowledgements=accept)
    assert answer["errors"] == []
    assert [result["kafka_code"] for result in answer["acknowledgement_results"]] == [121, 121]
    assert ranges(answer) == ["0-1×1"]


def test_ee_001_ee_003_several_members_of_two_groups_share_the_records(
    gateway: Gateway, name: str, background: ThreadPoolExecutor
) -> None:
    """Two members of each group at once, 2000 records: each group sees each record once, at its first delivery."""
    total = 2000
    gateway.produce_batches(name, *[100] * (total // 100))

    def consume(group: str, member: str) -> list[int]:
        seen: list[int] = []
        accept: list[Json] = []
        while True:
            answer = gateway.fetch(group, name, member=member, max_records=70, acknowledgements=accept, max_wait_ms=300)
            assert answer["failed_count"] == 0
            if not answer["batches"]:
                return seen
            assert {batch["delivery_count"] for batch in answer["batches"]} == {1}
            seen += offsets(answer)
            accept = [
                acknowledge_range(name, batch["first_offset"], batch["last_offset"], "accept", delivery_count=1)
                for batch in answer["batches"]
            ]

    groups = [f"{name}-{group}" for group in (1, 2)]
    consuming = {group: [background.submit(consume, group, member) for member in ("m1", "m2")] for group in groups}
    for group in groups:
        seen = [offset for member in consuming[group] for offset in member.result(60)]
        assert sorted(seen) == list(range(total))
        assert gateway.window(group, name) == (total, [])


def test_ee_005_a_record_larger_than_the_byte_limit_is_delivered(gateway: Gateway, name: str) -> None:
    gateway.produce(name, "small")
    gateway.produce(name, "x" * 10_000)
    seen: list[int] = []
    while len(seen) < 2:
        seen += offsets(gateway.fetch(name, name, max_bytes=1000, max_wait_ms=LONG_MS))
    assert seen == [0, 1]
