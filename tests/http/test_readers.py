"""What the log's readers say of groups that fetch, finish and stop, and what retention spares.
Both work every 50 ms here."""

import json
import time
from collections.abc import Callable

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.http.database import sql

Rows = Callable[[], dict[int, tuple[int, int]]]


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "50", "SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "50"}


@pytest.fixture
def rows(database: str, name: str) -> Rows:
    """State epoch and floor of the group `name`, by partition."""

    def read() -> dict[int, tuple[int, int]]:
        found = sql(database, "SELECT partition, state_epoch, floor FROM log.readers WHERE group_id = $1", name)
        return {partition: (epoch, floor) for partition, epoch, floor in found}

    return read


def floor(rows: Rows, partition: int = 0) -> int:
    return rows()[partition][1]


def lag(gateway: Gateway, group: str) -> tuple[int, int]:
    """Start offset and lag of the first partition."""
    offsets = good(gateway.http.get(f"/v1/share-groups/{group}/offsets"))["topics"][0]["partitions"][0]
    return offsets["start_offset"], offsets["lag"]


def test_rd_314_retention_spares_unfinished_records_from_the_first_generation_on(
    own_gateway: Gateway, name: str, database: str
) -> None:
    """It stands first: later tests restart the gateway, and each restart makes a generation."""
    assert sql(database, "SELECT previous FROM groups.gateway_generation") == [(0,)]
    gateway = own_gateway
    spared, plain = f"{name}-spared", f"{name}-plain"
    gateway.create_topic(spared)
    gateway.create_topic(plain, retention_unsettled="delete")
    for topic in (spared, plain):
        gateway.produce_batches(topic, 5, 5)
        gateway.fetch(name, topic)
        assert gateway.settle(name, topic, 0, 6, "accept") == "applied"
    for topic in (spared, plain):
        good(gateway.http.patch(f"/v1/topics/{topic}", json={"config": {"retention.ms": "0"}}))
    wait_until(lambda: log_start(gateway, spared) == 7)
    wait_until(lambda: log_start(gateway, plain) == 10)
    assert log_start(gateway, spared) == 7


def test_rd_301_a_floor_follows_what_is_finished_up_to_the_end(own_gateway: Gateway, name: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(10))
    own_gateway.fetch(name, name)
    assert floor(rows) == 0
    assert own_gateway.settle(name, name, 4, 9, "accept") == "applied"
    assert own_gateway.settle(name, name, 0, 2, "accept") == "applied"
    wait_until(lambda: floor(rows) == 3)
    assert own_gateway.settle(name, name, 3, 3, "accept") == "applied"
    wait_until(lambda: floor(rows) == 10)


def test_rd_308_a_gateway_that_stops_tells_its_last_floors(
    own_gateway: Gateway, stack: Stack, name: str, rows: Rows
) -> None:
    """Also: a later load of the share-partition only reads."""
    own_gateway.produce(name, *range(5))
    own_gateway.fetch(name, name)
    before = rows()
    assert own_gateway.settle(name, name, 0, 4, "accept") == "applied"
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    own_gateway.produce(name, "next")
    own_gateway.fetch(name, name)
    assert floor(rows) in (0, 5)
    assert rows().keys() == before.keys()
    assert own_gateway.settle(name, name, 5, 5, "accept") == "applied"
    wait_until(lambda: floor(rows) == 6)


def test_rd_309_retention_spares_what_a_group_has_not_finished(own_gateway: Gateway, name: str) -> None:
    """Until the group is taken out; what goes then is counted."""
    gateway = own_gateway
    gateway.create_topic(name, retention_ms=0)
    gateway.configure(name, retention_hold_idle_ms=-1)
    gateway.fetch(name, name, max_wait_ms=0)
    gateway.produce_batches(name, 5, 5)
    gateway.fetch(name, name, max_records=10)

    def start() -> int:
        return int(gateway.describe_topic(name)["partitions"][0]["log_start_offset"])

    assert gateway.settle(name, name, 0, 2, "accept") == "applied"
    wait_until(lambda: start() == 3)
    assert gateway.settle(name, name, 3, 3, "accept") == "applied"
    wait_until(lambda: start() == 4)
    gateway.configure(name, retention_hold=False)
    wait_until(lambda: start() == 10)
    line = f'sharequeue_removed_unfinished_records_total{{group="{name}"}} 6.0'
    wait_until(lambda: line in gateway.http.get("/metrics").text)


# Resets, deletions, upgrades


def reset(gateway: Gateway, group: str, topic: str, **fields: object) -> None:
    body = {"topics": [{"topic": topic}], **fields}
    good(gateway.http.post(f"/v1/share-groups/{group}/offsets/reset", json=body))


def log_start(gateway: Gateway, topic: str) -> int:
    return int(gateway.describe_topic(topic)["partitions"][0]["log_start_offset"])


def test_rd_313_deleted_offsets_and_groups_hold_nothing(own_gateway: Gateway, name: str, rows: Rows) -> None:
    gateway = own_gateway
    for topic in (name, f"{name}-two"):
        gateway.create_topic(topic)
        gateway.produce_batches(topic, 3)
        gateway.fetch(name, topic)
        assert gateway.settle(name, topic, 0, 2, "release") == "applied"
    epochs = sorted(epoch for epoch, _ in rows().values())
    assert gateway.http.delete(f"/v1/share-groups/{name}/offsets/{name}").status_code in (200, 204)
    gateway.fetch(name, name)
    assert rows()[0][0] >= epochs[0]
    for topic in (name, f"{name}-two"):
        gateway.settle(name, topic, 0, 2, "accept")
    assert gateway.http.delete(f"/v1/share-groups/{name}?force=true").status_code in (200, 204)
    assert rows() == {}


# What is said of holds, and lag


def partitions_of(gateway: Gateway, group: str) -> dict[int, dict]:
    (topic,) = good(gateway.http.get(f"/v1/share-groups/{group}/offsets"))["topics"]
    return {partition["partition"]: partition for partition in topic["partitions"]}


def test_rd_315_offsets_say_until_when_a_group_holds_and_what_it_lost(
    own_gateway: Gateway, stack: Stack, database: str, name: str
) -> None:
    gateway = own_gateway
    gateway.create_topic(name, retention_ms=3_600_000)
    gateway.produce_batches(name, 5)
    gateway.configure(name, retention_hold_idle_ms=100_000_000)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 4, "release") == "applied"
    now_ms = time.time() * 1000
    first = partitions_of(gateway, name)[0]
    assert 99_000_000 < first["holding"]["expires_at_ms"] - now_ms < 101_000_000
    assert "removed_unfinished" not in first
    gateway.configure(name, retention_hold_idle_ms=-1)
    assert partitions_of(gateway, name)[0]["holding"] == {}
    gateway.configure(name, retention_hold=False)
    assert "holding" not in partitions_of(gateway, name)[0]
    gateway.configure(name, retention_hold=True, retention_hold_idle_ms=100_000_000)
    assert "holding" in partitions_of(gateway, name)[0]

    def warnings(ended: str) -> int:
        lines = map(json.loads, stack.service("gateway").log_file.read_text().splitlines())
        return sum(line.get("group_id") == name and ended in line["message"] for line in lines)

    age = "UPDATE log.readers SET active_at = now() - interval '{} seconds' WHERE group_id = $1"
    sql(database, age.format(60_000), name)
    wait_until(lambda: warnings("will soon stop sparing") == 1)
    assert "sharequeue_ending_holds 0.0" not in gateway.http.get("/metrics").text
    sql(database, age.format(200_000), name)
    wait_until(lambda: warnings("no longer spares") == 1)
    good(gateway.http.patch(f"/v1/topics/{name}", json={"config": {"retention.ms": "0"}}))
    wait_until(lambda: log_start(gateway, name) == 5)
    last = partitions_of(gateway, name)[0]
    assert (last["removed_unfinished"], last["lag"]) == (5, 0)
    wait_until(lambda: partitions_of(gateway, name)[0]["start_offset"] == 5)
    assert (warnings("will soon stop sparing"), warnings("no longer spares")) == (1, 1), "once a day"


def test_rd_326_heartbeats_hold_the_topics_that_members_subscribe_to(
    own_gateway: Gateway, database: str, name: str
) -> None:
    """Nobody fetches. The member has left the other topic, so its hold goes on to end."""
    gateway = own_gateway
    other = f"{name}-other"
    for topic in (name, other):
        gateway.create_topic(topic, retention_ms=10**12)
        gateway.produce_batches(topic, 5)
    gateway.configure(name, retention_hold_idle_ms=100_000_000)
    for topic in (name, other):
        gateway.acquire(name, topic)
        assert gateway.settle(name, topic, 0, 4, "accept") == "applied"
    floors = "SELECT count(*) FROM log.readers WHERE group_id = $1 AND floor = 5"
    wait_until(lambda: sql(database, floors, name)[0][0] == 2)  # a raise makes a row active too
    member = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [name]}
    good(gateway.http.post(f"/v1/share-groups/{name}/heartbeat", json=member))
    sql(database, "UPDATE log.readers SET active_at = now() - interval '60000 seconds' WHERE group_id = $1", name)

    def ages() -> dict[str, float]:
        found = sql(
            database,
            "SELECT topic_id, extract(epoch FROM now() - active_at)::float FROM log.readers WHERE group_id = $1",
            name,
        )
        return {str(topic_id): age for topic_id, age in found}

    subscribed, left = (gateway.describe_topic(topic)["topic_id"] for topic in (name, other))
    wait_until(lambda: ages()[subscribed] < 30_000)
    assert ages()[left] >= 60_000


def test_rd_316_lag_counts_only_what_the_log_has_left(own_gateway: Gateway, name: str) -> None:
    """Whether or not the group fetches again: 6, 7, 10 and 11 are finished behind the start."""
    gateway = own_gateway
    gateway.produce_batches(name, 14)
    gateway.acquire(name, name)
    for first in (6, 10):
        assert gateway.settle(name, name, first, first + 1, "accept") == "applied"
    assert lag(gateway, name) == (0, 10)
    for before, left in ((5, 5), (7, 4), (9, 3), (14, 0)):
        body = {"partitions": [{"partition": 0, "before_offset": before}]}
        good(gateway.http.post(f"/v1/topics/{name}/delete-records", json=body))
        assert lag(gateway, name)[1] == left, before
