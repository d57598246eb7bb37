"""Topics over HTTP: create, list, describe, change, delete; delete-records and its effect on groups (LS)."""

import uuid
from concurrent.futures import ThreadPoolExecutor

from sharequeue.protocol.apis import ARROW_STREAM, RECORD_RUNS
from sharequeue.protocol.types import MAX_INT64
from tests.http.calls import HANG_S, LONG_MS, Gateway, good, problem, ranges, wait_until, woken

DEFAULTS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "retention.unsettled": "keep",
    "retention.unsettled.max.bytes": "-1",
    "cleanup.settled": "false",
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
    "errors.deadletterqueue.group.enable": "false",
    "value.format": "auto",
}


def test_a_topic_is_created_and_described(gateway: Gateway, name: str) -> None:
    config = {"retention.ms": "60000", "cleanup.policy": "compact", "errors.deadletterqueue.group.enable": "true"}
    created = good(gateway.http.post("/v1/topics", json={"name": name, "partitions": 2, "config": config}), 201)
    changed = {"retention.ms": "60000", "cleanup.policy": "compact", "errors.deadletterqueue.group.enable": "true"}
    assert created.pop("topic_id") == str(uuid.UUID(gateway.describe_topic(name)["topic_id"]))
    assert created == {"name": name, "partitions": 2, "config": {**DEFAULTS, **changed}}
    described = gateway.describe_topic(name)
    assert described["config"] == created["config"]
    nothing = {"log_start_offset": 0, "last_stable_offset": 0, "log_end_offset": 0}
    assert described["partitions"] == [{"partition": partition, **nothing} for partition in (0, 1)]
    gateway.produce_batches(name, 3, partition=1)
    three = {"log_start_offset": 0, "last_stable_offset": 3, "log_end_offset": 3}
    assert gateway.describe_topic(name)["partitions"][1] == {"partition": 1, **three}


def test_topics_are_listed_by_name_a_page_at_a_time(gateway: Gateway, name: str) -> None:
    made = [f"{name}-{letter}" for letter in "cab"]
    ids = {topic: gateway.create_topic(topic, partitions=2)["topic_id"] for topic in made}
    seen, token, pages = [], None, 0
    while True:
        query = {"page_size": 2, **({"page_token": token} if token else {})}
        page = good(gateway.http.get("/v1/topics", params=query))
        assert len(page["topics"]) <= 2
        seen += page["topics"]
        pages += 1
        token = page.get("next_page_token")
        if token is None:
            break
    names = [topic["name"] for topic in seen]
    assert names == sorted(set(names))
    assert pages == (len(seen) + 1) // 2
    ours = [topic for topic in seen if topic["name"] in ids]
    assert ours == [{"name": topic, "topic_id": ids[topic], "partitions": 2} for topic in sorted(made)]


def test_settings_change_and_return_to_their_defaults(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, retention_ms=1000, retention_bytes=5, cleanup_policy="compact")
    path = f"/v1/topics/{name}"
    body = {"config": {"max.message.bytes": "500"}, "reset": ["retention.ms", "cleanup.policy"]}
    changed = good(gateway.http.patch(path, json=body))["config"]
    assert changed == {**DEFAULTS, "retention.bytes": "5", "max.message.bytes": "500"}
    assert gateway.describe_topic(name)["config"] == changed
    problem(
        gateway.http.post(f"{path}/records", json={"records": [{"value": "x" * 500}]}), 413, "MESSAGE_TOO_LARGE", 10
    )
    for body in ({"config": {"retention.ms": "5", "no.such": "1"}}, {"reset": ["no.such"]}):
        problem(gateway.http.patch(path, json=body), 422, "INVALID_CONFIG", 40)
    assert gateway.describe_topic(name)["config"] == changed


def test_partitions_only_grow(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    path = f"/v1/topics/{name}"
    assert good(gateway.http.patch(path, json={"partitions": 3}))["partitions"] == 3
    for wrong in (2, 0, 10_001):
        problem(gateway.http.patch(path, json={"partitions": wrong}), 422, "INVALID_PARTITIONS", 37)
    problem(gateway.http.patch("/v1/topics/no-such", json={"partitions": 3}), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    gateway.produce_batches(name, 1, partition=2)
    assert gateway.acquire(name, name) == ["2:0-0×1"]


def test_a_deleted_topic_is_gone_for_every_group(gateway: Gateway, name: str, background: ThreadPoolExecutor) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        gateway.produce_batches(topic, 3)
    gateway.acquire(name, topics=[name, other])
    one, other_id = (gateway.describe_topic(topic)["topic_id"] for topic in (name, other))
    with woken(gateway):
        waiting = background.submit(gateway.try_fetch, name, name, member="m2", max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        assert gateway.http.delete(f"/v1/topics/{name}").status_code == 204
        response = waiting.result(HANG_S)
    problem(response, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    for call in (
        gateway.http.get(f"/v1/topics/{name}"),
        gateway.http.delete(f"/v1/topics/{name}"),
        gateway.try_fetch(name, name),
        gateway.http.get(f"/v1/topics/{name}/partitions/0/records"),
    ):
        problem(call, 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert gateway.settle(name, name, 0, 2, "accept") == 3
    assert gateway.settle(name, other, 0, 2, "accept") == "applied"
    assert name not in [topic["name"] for topic in good(gateway.http.get("/v1/topics?page_size=10000"))["topics"]]

    def topics_of_group() -> set[str]:
        return {topic["topic_id"] for topic in good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]}

    assert one not in topics_of_group()
    wait_until(lambda: topics_of_group() == {other_id})


# Delete records


def test_delete_records_moves_the_log_start(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 5, 5)
    gateway.produce_batches(name, 2, partition=1)
    path = f"/v1/topics/{name}/delete-records"
    body = {"partitions": [{"partition": 0, "before_offset": 7}, {"partition": 1, "before_offset": -1}]}
    answer = good(gateway.http.post(path, json=body))
    assert answer == {"partitions": [{"partition": 0, "log_start_offset": 7}, {"partition": 1, "log_start_offset": 2}]}
    back = {"partitions": [{"partition": 0, "before_offset": 3}]}
    assert good(gateway.http.post(path, json=back))["partitions"] == [{"partition": 0, "log_start_offset": 7}]
    starts = [partition["log_start_offset"] for partition in gateway.describe_topic(name)["partitions"]]
    assert (starts, gateway.log_ends(name)) == ([7, 2], [10, 2])
    below = gateway.http.get(f"/v1/topics/{name}/partitions/0/records", params={"offset": 6})
    problem(below, 422, "OFFSET_OUT_OF_RANGE", 1)
    for form in ("application/json", ARROW_STREAM, RECORD_RUNS):
        path = f"/v1/topics/{name}/partitions/0/records"
        far = gateway.http.get(path, params={"offset": MAX_INT64}, headers={"Accept": form})
        problem(far, 422, "OFFSET_OUT_OF_RANGE", 1)
    assert [record["offset"] for record in gateway.read(name, offset=7)["records"]] == [7, 8, 9]
    assert gateway.produce(name, "next", partition=1) == [2]
    assert sorted(gateway.acquire(name, name)) == ["1:2-2×1", "7-9×1"]


def test_deleted_records_are_not_delivered_again(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 6)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 5, "release") == "applied"
    gateway.delete_records(name, 4)
    answer = gateway.fetch(name, name, max_wait_ms=LONG_MS)
    assert ranges(answer) == ["4-5×2"]
    assert [record["offset"] for batch in answer["batches"] for record in batch["records"]] == [4, 5]
