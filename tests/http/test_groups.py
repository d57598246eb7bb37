"""Groups over HTTP: settings, start offsets (RS), lag (LG), records in flight."""

import time
from typing import Any

from tests.http.calls import Gateway, good, problem

DEFAULTS = {
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.record.lock.duration.ms": "30000",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.partition.max.delayed.records": "100000",
    "share.redelivery.percent": "75",
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
    "share.outcomes.keep.ms": "0",
    "share.paused": "false",
    "share.assignment.interval.ms": "1000",
    "share.retry.backoff.ms": "",
    "share.retry.jitter.percent": "10",
    "share.throttle.released": "false",
    "share.assignor.offload.enable": "true",
    "errors.deadletterqueue.copy.record.enable": "true",
    "errors.deadletterqueue.consumer.group": "",
    "retention.hold": "true",
    "retention.hold.idle.ms": "604800000",
}


def config_path(group: str) -> str:
    return f"/v1/share-groups/{group}/config"


def test_a_group_has_settings_before_it_exists(gateway: Gateway, name: str) -> None:
    defaults = {**DEFAULTS, "errors.deadletterqueue.topic.name": f"dlq.{name}"}
    assert good(gateway.http.get(config_path(name))) == defaults
    changes = {
        "share.delivery.count.limit": "7",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
    }
    changed = good(gateway.http.patch(config_path(name), json={"config": changes}))
    expected = {
        **defaults,
        "share.delivery.count.limit": "7",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
    }
    assert changed == good(gateway.http.get(config_path(name))) == expected
    back = {"reset": list(changes)}
    assert good(gateway.http.patch(config_path(name), json=back)) == defaults
    assert good(gateway.http.patch(config_path(name), json={})) == defaults


# Where a group begins


def test_rs_001_latest_begins_at_the_log_end_of_the_first_load(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.produce_batches(name, 3)
    assert gateway.acquire(name, name) == []
    (topic,) = good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]
    assert (topic["partitions"][0]["start_offset"], topic["partitions"][0]["lag"]) == (3, 0)
    gateway.produce_batches(name, 1)
    assert gateway.acquire(name, name) == ["3-3×1"]


def test_rs_003_by_duration_begins_with_records_young_enough(gateway: Gateway, name: str) -> None:
    minute, now = 60_000, int(time.time() * 1000)
    for age in (120 * minute, 30 * minute, 0):
        gateway.produce(name, "x", timestamp_ms=now - age)
    for duration, expected in (("PT1H", "1-2×1"), ("PT3H", "0-2×1"), ("P1DT0.5S", "0-2×1"), ("PT29M", "2-2×1")):
        group = f"{name}-{duration}"
        gateway.configure(group, share_auto_offset_reset=f"by_duration:{duration}")
        assert gateway.acquire(group, name) == [expected]


def test_rs_005_each_group_has_its_own_reset(gateway: Gateway, name: str) -> None:
    earliest, latest = f"{name}-earliest", f"{name}-latest"
    gateway.configure(earliest, share_auto_offset_reset="earliest")
    gateway.configure(latest, share_auto_offset_reset="latest")
    gateway.produce_batches(name, 1)
    assert [gateway.acquire(group, name) for group in (earliest, latest)] == [["0-0×1"], []]
    gateway.produce_batches(name, 1)
    assert [gateway.acquire(group, name) for group in (earliest, latest)] == [["1-1×1"], ["1-1×1"]]


def test_latest_begins_alike_in_partitions_that_fetches_name_one_after_another(gateway: Gateway, name: str) -> None:
    """And a partition that the topic gets later begins at 0."""
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.create_topic(name, 3)
    for partition in range(3):
        gateway.produce_batches(name, 10, partition=partition)
    for partition in (1, 0):
        assert gateway.acquire(name, topic_partitions=[{"topic": name, "partitions": [partition]}]) == []
    good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": 4}))
    gateway.produce_batches(name, 5, partition=3)
    assert gateway.acquire(name, name) == ["3:0-4×1"]


def test_a_reset_of_one_partition_decides_nothing_for_the_others(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.create_topic(name, 2)
    for partition in range(2):
        gateway.produce_batches(name, 10, partition=partition)
    topics = [{"topic": name, "partitions": [0]}]
    good(gateway.http.post(f"/v1/share-groups/{name}/offsets/reset", json={"to": "earliest", "topics": topics}))
    assert gateway.acquire(name, name) == ["0-9×1"]
    assert gateway.acquire(name, name) == []


# Offsets and lag


def test_gi_033_an_unknown_group_has_no_offsets(gateway: Gateway, name: str) -> None:
    for path in ("offsets", "in-flight"):
        problem(gateway.http.get(f"/v1/share-groups/{name}/{path}"), 404, "GROUP_ID_NOT_FOUND", 69)
    gateway.configure(name, share_delivery_count_limit=3)
    problem(gateway.http.get(f"/v1/share-groups/{name}/offsets"), 404, "GROUP_ID_NOT_FOUND", 69)


def test_lg_001_lg_003_lag_counts_unfinished_records(gateway: Gateway, name: str) -> None:
    def lag() -> int:
        (topic,) = good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]
        return int(topic["partitions"][0]["lag"])

    gateway.produce_batches(name, 1)
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, 0, "accept")
    assert lag() == 0
    gateway.produce_batches(name, 1)
    assert lag() == 1
    gateway.acquire(name, name)
    gateway.settle(name, name, 1, 1, "release")
    assert lag() == 1
    gateway.acquire(name, name)
    gateway.settle(name, name, 1, 1, "accept")
    assert lag() == 0


def test_offsets_name_every_partition_the_group_knows(gateway: Gateway, name: str) -> None:
    topics = [f"{name}-b", f"{name}-a"]
    for topic in topics:
        gateway.create_topic(topic, partitions=2)
        gateway.produce_batches(topic, 4, partition=1)
    gateway.acquire(name, topics=topics)
    gateway.settle(name, topics[0], 0, 1, "accept", partition=1)
    listed = good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"]
    assert [topic["topic"] for topic in listed] == sorted(topics)
    assert all(topic["topic_id"] == gateway.describe_topic(topic["topic"])["topic_id"] for topic in listed)
    idle, used = listed[1]["partitions"]
    assert idle["leader_epoch"] > 0
    assert idle.pop("holding")["expires_at_ms"] > time.time() * 1000
    assert {**idle, "leader_epoch": 0} == {
        "partition": 0,
        "start_offset": 0,
        "log_end_offset": 0,
        "leader_epoch": 0,
        "lag": 0,
        "last_stable_offset": 0,
        "stable_lag": 0,
    }
    assert (used["partition"], used["log_end_offset"], used["lag"]) == (1, 4, 2)


# In flight


def test_in_flight_lists_holders_and_deadlines(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 6)
    gateway.acquire(name, name, max_records=2)
    second = gateway.fetch(name, name, member="m2", max_records=2)
    gateway.settle(name, name, 1, 1, "release")
    (partition,) = gateway.in_flight(name)
    assert (partition["topic"], partition["partition"]) == (name, 0)
    assert (partition["start_offset"], partition["end_offset"]) == (0, 5)
    held, released, other, rest = partition["batches"]
    assert (held["member_id"], held["delivery_state"], held["delivery_count"]) == ("m1", "ACQUIRED", 1)
    assert released == {
        "first_offset": 1,
        "last_offset": 1,
        "delivery_state": "AVAILABLE",
        "delivery_count": 1,
        "attempt": 1,
    }
    assert (other["member_id"], other["first_offset"], other["last_offset"]) == ("m2", 2, 3)
    assert other["lock_expires_at_ms"] == second["batches"][0]["lock_expires_at_ms"]
    assert rest.pop("attempt") == 0
    assert rest == {"first_offset": 4, "last_offset": 5, "delivery_state": "AVAILABLE", "delivery_count": 0}


def test_in_flight_names_the_bound_that_makes_new_records_wait(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_partition_max_record_locks=8, share_partition_max_delayed_records=0)
    gateway.produce_batches(name, 8, 4)
    gateway.acquire(name, name)
    held, delayed = "share.partition.max.record.locks", "share.partition.max.delayed.records"
    assert gateway.in_flight(name)[0]["limited_by"] == held
    assert gateway.settle(name, name, 0, 3, "release", delay_ms=60_000) == "applied"
    assert gateway.in_flight(name)[0]["limited_by"] == delayed
    assert gateway.metrics()[f'sharequeue_limited_share_partitions{{bound="{delayed}"}}'] >= 1
    assert gateway.acquire(name, name) == []
    assert gateway.settle(name, name, 4, 7, "accept") == "applied"
    assert "limited_by" not in gateway.in_flight(name)[0]
    assert gateway.acquire(name, name) == ["8-11×1"]


def test_in_flight_can_be_narrowed(gateway: Gateway, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        gateway.create_topic(topic, partitions=2)
        for partition in (0, 1):
            gateway.produce_batches(topic, 1, partition=partition)
    gateway.acquire(name, topics=topics)

    def listed(**query: Any) -> list[tuple[str, int]]:
        return [(entry["topic"], entry["partition"]) for entry in gateway.in_flight(name, **query)]

    everything = [(topic, partition) for topic in topics for partition in (0, 1)]
    assert listed() == everything
    assert listed(topic=topics[1]) == everything[2:]
    assert listed(topic=topics[0], partition=1) == [everything[1]]
    path = f"/v1/share-groups/{name}/in-flight"
    problem(gateway.http.get(path, params={"partition": 1}), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(path, params={"topic": "no-such"}), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    problem(gateway.http.get(path, params={"topic": topics[0], "partition": 2}), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    problem(gateway.http.get(path, params={"topic": topics[0], "partition": -1}), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(path, params={"state": "x"}), 422, "INVALID_REQUEST", 42)
