"""Kafka's defaults and bounds of settings, over HTTP: what a gateway with `kafka_defaults` answers."""

import pytest

from sharequeue.client import ShareConsumer
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, problem, wait_until
from tests.http.client_calls import in_event_loop


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        f"SHAREQUEUE_{service}_KAFKA_DEFAULTS": "true" for service in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")
    }


def test_settings_have_kafkas_defaults(own_gateway: Gateway, name: str) -> None:
    config = good(own_gateway.http.get(f"/v1/share-groups/{name}/config"))
    changed = {
        "share.auto.offset.reset": "latest",
        "errors.deadletterqueue.topic.name": "",
        "errors.deadletterqueue.copy.record.enable": "false",
        "share.throttle.released": "true",
    }
    assert {setting: config[setting] for setting in changed} == changed


def test_topics_have_kafkas_retention(own_gateway: Gateway, name: str) -> None:
    assert own_gateway.create_topic(name)["config"]["retention.unsettled"] == "delete"
    assert own_gateway.describe_topic(name)["config"]["retention.unsettled"] == "delete"


@pytest.mark.parametrize(
    ("setting", "low", "high"),
    [
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.partition.max.record.locks", 100, 4000),
        ("share.session.timeout.ms", 45_000, 60_000),
        ("share.heartbeat.interval.ms", 5000, 15_000),
        ("share.assignment.interval.ms", 0, 15_000),
    ],
)
def test_settings_have_kafkas_bounds(own_gateway: Gateway, name: str, setting: str, low: int, high: int) -> None:
    path = f"/v1/share-groups/{name}/config"
    for value in (low, high):
        assert good(own_gateway.http.patch(path, json={"config": {setting: str(value)}}))[setting] == str(value)
    for value in (low - 1, high + 1):
        problem(own_gateway.http.patch(path, json={"config": {setting: str(value)}}), 422, "INVALID_CONFIG", 40)


def test_a_group_without_settings_begins_at_the_end_of_every_partition(own_gateway: Gateway, name: str) -> None:
    own_gateway.create_topic(name, 2)
    for partition in range(2):
        own_gateway.produce_batches(name, 10, partition=partition)
    for partition in range(2):
        assert own_gateway.acquire(name, topic_partitions=[{"topic": name, "partitions": [partition]}]) == []
    assert own_gateway.offsets(name) == {(name, 0): (10, 0), (name, 1): (10, 0)}


@pytest.fixture
def group(own_gateway: Gateway, name: str) -> str:
    """A group that begins at the start."""
    own_gateway.configure(name, share_auto_offset_reset="earliest")
    return name


def test_the_lock_of_a_fetch_has_kafkas_bounds(own_gateway: Gateway, group: str) -> None:
    own_gateway.produce_batches(group, 1)
    for lock_duration_ms in (14_999, 60_001):
        refused = own_gateway.try_fetch(group, group, lock_duration_ms=lock_duration_ms)
        assert "15000 to 60000" in problem(refused, 422, "INVALID_REQUEST", 42)["detail"]
    (batch,) = own_gateway.fetch(group, group, lock_duration_ms=60_000)["batches"]
    assert batch["lock_duration_ms"] == 60_000


def test_never_begun_is_refused(own_gateway: Gateway, group: str) -> None:
    own_gateway.produce_batches(group, 1)
    own_gateway.acquire(group, group)
    assert own_gateway.settle(group, group, 0, 0, "release", begun=False) == 42
    assert own_gateway.settle(group, group, 0, 0, "release", begun=True) == "applied"


@in_event_loop
async def test_the_client_closes_without_it(own_gateway: Gateway, stack: Stack, group: str) -> None:
    own_gateway.produce_batches(group, 2)
    async with ShareConsumer(stack.url, group, [group], max_records=2) as consumer:
        assert (await anext(consumer)).offset == 0
    assert own_gateway.acquire(group, group) == ["0-1×2"]


def test_dead_letters_carry_no_headers_of_the_record(own_gateway: Gateway, name: str) -> None:
    gateway, dead = own_gateway, f"{name}-dead"
    gateway.create_topic(dead, errors_deadletterqueue_group_enable=True)
    gateway.configure(
        name,
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_copy_record_enable=True,
        share_auto_offset_reset="earliest",
    )
    gateway.produce(name, "a", headers={"own": "not copied"})
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "reject") == "applied"
    wait_until(lambda: gateway.log_ends(dead) == [1])
    (letter,) = gateway.read(dead)["records"]
    assert letter["value"] == "a"
    assert [header for header in letter["headers"] if not header.startswith("__dlq.errors.")] == []
