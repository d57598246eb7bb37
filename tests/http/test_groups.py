"""Groups over HTTP: settings and when they take effect (DY), start offsets (RS), lag (LG), records in flight."""

import time
from typing import Any

import pytest

from tests.http.calls import LONG_MS, Gateway, good, outcomes, problem, ranges, wait_until

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
    "share.assignment.interval.ms": "1000",
    "share.retry.backoff.ms": "",
    "share.retry.jitter.percent": "10",
    "share.throttle.released": "false",
    "share.assignor.offload.enable": "true",
    "errors.deadletterqueue.copy.record.enable": "true",
    "retention.hold": "true",
    "retention.hold.idle.ms": "604800000",
}

LIMIT = "share.delivery.count.limit"


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


def test_settings_change_beside_others_that_go_back(gateway: Gateway, name: str) -> None:
    changed = good(gateway.http.patch(config_path(name), json={"config": {"share.delivery.count.limit": "7"}}))
    assert changed["share.delivery.count.limit"] == "7"
    body = {"config": {"share.isolation.level": "read_committed"}, "reset": ["share.delivery.count.limit"]}
    changed = good(gateway.http.patch(config_path(name), json=body))
    assert (changed["share.delivery.count.limit"], changed["share.isolation.level"]) == ("5", "read_committed")
    for wrong in (
        {"config": {"no.such": "1"}},
        {"reset": ["no.such"]},
        {"config": {"share.delivery.count.limit": "0"}},
    ):
        problem(gateway.http.patch(config_path(name), json=wrong), 422, "INVALID_CONFIG", 40)
    assert good(gateway.http.get(config_path(name))) == changed


@pytest.mark.parametrize(
    ("group", "topic"), [("a:b", "dlq.a_3ab"), ("größe", "dlq.gr_c3_b6_c3_9fe"), ("a_b", "dlq.a_5fb")]
)
def test_the_default_dead_letter_topic_has_a_valid_name(gateway: Gateway, group: str, topic: str) -> None:
    assert good(gateway.http.get(config_path(group)))["errors.deadletterqueue.topic.name"] == topic


BOUNDS = {
    "share.session.timeout.ms": (5001, 3_600_000, 5000),
    "share.heartbeat.interval.ms": (500, 44_999, 499),
    "share.record.lock.duration.ms": (1000, 12 * 3_600_000, 999),
    "share.delivery.count.limit": (1, 100, 0),
    "share.partition.max.record.locks": (1, 1_000_000, 0),
    "share.assignment.interval.ms": (0, 60_000, -1),
    "share.retry.jitter.percent": (0, 50, -1),
}


@pytest.mark.parametrize("setting", BOUNDS)
def test_settings_have_bounds(gateway: Gateway, name: str, setting: str) -> None:
    low, high, below = BOUNDS[setting]
    for value in (low, high):
        changed = good(gateway.http.patch(config_path(name), json={"config": {setting: str(value)}}))
        assert changed[setting] == str(value)
    for value in (below, high + 1):
        refused = gateway.http.patch(config_path(name), json={"config": {setting: str(value)}})
        problem(refused, 422, "INVALID_CONFIG", 40)
    assert good(gateway.http.get(config_path(name)))[setting] == str(high)


@pytest.mark.parametrize(
    "changes",
    [
        {"share.delivery.limit": "5"},
        {"share.delivery.count.limit": "five"},
        {"share.delivery.count.limit": "2.5"},
        {"share.delivery.count.limit": "true"},
        {"share.renew.acknowledge.enable": "yes"},
        {"share.isolation.level": "serializable"},
        {"share.auto.offset.reset": "none"},
        {"share.auto.offset.reset": "by_duration:1h"},
        {"share.auto.offset.reset": "by_duration:-PT1H"},
        {"errors.deadletterqueue.topic.name": "__dlq"},
        {"errors.deadletterqueue.topic.name": "not a name"},
        {"errors.deadletterqueue.topic.name": "dlq\x00"},
        {"share.session.timeout.ms": "1000"},
    ],
)
def test_one_invalid_setting_changes_none(gateway: Gateway, name: str, changes: dict[str, str]) -> None:
    body = {"config": {"share.record.lock.duration.ms": "5000", **changes}}
    problem(gateway.http.patch(config_path(name), json=body), 422, "INVALID_CONFIG", 40)
    assert good(gateway.http.get(config_path(name)))["share.record.lock.duration.ms"] == "30000"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], ""),
        ({LIMIT: "5"}, f"/{LIMIT}"),
        ({"config": {LIMIT: 5}}, "/config"),
        ({"config": {LIMIT: None}}, "/config"),
        ({"config": {LIMIT: {"value": "5"}}}, "/config"),
        ({"config": None}, "/config"),
        ({"reset": LIMIT}, "/reset"),
    ],
)
def test_settings_that_break_the_schema_are_refused(gateway: Gateway, name: str, body: Any, pointer: str) -> None:
    refused = problem(gateway.http.patch(config_path(name), json=body), 422, "INVALID_REQUEST", 42)
    assert [fault["pointer"] for fault in refused["errors"]] == [pointer]


# When settings take effect


def test_dy_001_a_lowered_limit_applies_at_the_next_release(gateway: Gateway, name: str) -> None:
    gateway.configure(name, errors_deadletterqueue_topic_name="")
    gateway.produce_batches(name, 10)
    for expected in ("0-9×1", "0-9×2"):
        assert gateway.acquire(name, name) == [expected]
        if expected == "0-9×1":
            assert gateway.settle(name, name, 0, 9, "release") == "applied"
    gateway.configure(name, share_delivery_count_limit=2)
    assert gateway.settle(name, name, 0, 9, "release") == "applied"
    assert gateway.window(name, name) == (10, [])


def test_dy_005_lt_009_a_running_lock_keeps_its_duration(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=60_000)
    gateway.produce_batches(name, 1, 1)
    first = gateway.fetch(name, name, max_records=1)
    gateway.configure(name, share_record_lock_duration_ms=1000)
    second = gateway.fetch(name, name, max_records=1)
    until = [answer["batches"][0]["lock_expires_at_ms"] - time.time() * 1000 for answer in (first, second)]
    assert until[0] > 30_000
    assert until[1] < 30_000
    assert [answer["acquisition_lock_timeout_ms"] for answer in (first, second)] == [60_000, 1000]
    assert gateway.acquire(name, name, member="m2", max_wait_ms=LONG_MS) == ["1-1×2"]
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"


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


def test_rs_007_a_new_partition_of_a_known_topic_begins_at_0(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.create_topic(name)
    assert gateway.acquire(name, name) == []
    good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": 2}))
    gateway.produce_batches(name, 10, partition=1)
    assert gateway.acquire(name, name) == ["1:0-9×1"]


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


def test_lg_005_lag_counts_from_an_altered_offset(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_auto_offset_reset="latest")
    gateway.produce_batches(name, 100)
    assert gateway.acquire(name, name) == []
    gateway.produce_batches(name, 5)
    assert gateway.acquire(name, name, share_session_epoch=0) == ["100-104×1"]
    assert gateway.settle(name, name, 100, 104, "accept") == "applied"
    assert gateway.offsets(name)[name, 0][1] == 0
    good(gateway.try_fetch(name, share_session_epoch=-1))
    assert gateway.reset(name, "offset", name, offset=40) == {(name, 0): 40}
    assert gateway.offsets(name) == {(name, 0): (40, 65)}


def test_lg_009_accepted_records_behind_the_start_offset_are_not_lag(gateway: Gateway, name: str) -> None:
    """The stored start comes from the last write: 0, with ten finished behind it."""
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 9, "accept") == "applied"
    assert gateway.offsets(name) in ({(name, 0): (0, 0)}, {(name, 0): (10, 0)})
    gateway.produce_batches(name, 1)
    assert gateway.offsets(name)[name, 0][1] == 1


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


@pytest.mark.parametrize("waits", ["delays", "locks"])
def test_new_records_do_not_wait_for_deleted_ones(gateway: Gateway, name: str, waits: str) -> None:
    gateway.configure(name, share_partition_max_record_locks=8, share_partition_max_delayed_records=0)
    gateway.produce_batches(name, 8)
    lock = {} if waits == "delays" else {"lock_duration_ms": 3_600_000}
    assert gateway.acquire(name, name, **lock) == ["0-7×1"]
    if waits == "delays":
        assert gateway.settle(name, name, 0, 7, "release", delay_ms=3_600_000) == "applied"
    gateway.produce_batches(name, 1)
    assert gateway.acquire(name, name) == []
    gateway.delete_records(name, 8)
    if waits == "delays":
        assert gateway.window(name, name) == (8, []), "nobody has read since"
    assert gateway.acquire(name, name, member="m2") == ["8-8×1"]


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


def test_a_throttled_record_is_delivered_in_ever_smaller_portions(gateway: Gateway, name: str) -> None:
    """Poison isolation (TH-001): with limit 5, records delivered three times come by halves, then one by one."""
    gateway.configure(name, share_throttle_released=True)
    gateway.produce_batches(name, 8)
    seen = []
    for _ in range(5):
        answer = gateway.fetch(name, name, max_wait_ms=LONG_MS)
        seen += ranges(answer)
        (batch,) = answer["batches"]
        release = {
            **{key: batch[key] for key in ("topic", "partition", "first_offset", "last_offset")},
            "type": "release",
        }
        assert outcomes(gateway.try_acknowledge(name, [release])) == ["applied"]
    assert seen == ["0-7×1", "0-7×2", "0-7×3", "0-3×4", "0-0×5"]
    wait_until(lambda: gateway.window(name, name)[0] == 1)


def test_new_records_come_beside_those_that_always_fail(gateway: Gateway, name: str) -> None:
    """One of four fetches begins at them, and at the failed ones if there are no new records."""
    gateway.configure(name, share_delivery_count_limit=100)
    gateway.produce_batches(name, 6)
    assert gateway.acquire(name, name) == ["0-5×1"]
    gateway.settle(name, name, 0, 5, "release")
    some = {"max_records": 3, "acquire_mode": "record_limit"}

    def fail() -> list[str]:
        first = gateway.acquire(name, name, **some)
        for text in first:
            begin, end = text.split("×")[0].split("-")
            gateway.settle(name, name, int(begin), int(end), "release")
        return first

    assert [fail()[0].split("×")[0] for _ in range(4)] == ["0-2"] * 4
    gateway.produce_batches(name, 6)
    assert [fail()[0].split("×")[0] for _ in range(4)] == ["0-2"] * 3 + ["6-8"]
    gateway.configure(name, share_redelivery_percent=0)
    assert fail() == ["9-11×1"]
    gateway.configure(name, share_redelivery_percent=100)
    assert [fail()[0].split("×")[0] for _ in range(5)] == ["0-2"] * 5
