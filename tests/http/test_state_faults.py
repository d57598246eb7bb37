"""Faults between a gateway, its share coordinator and the log: rows LD, PW, DF and GI that need one,
on a stack of its own."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from sharequeue.stack.stack import Stack
from tests.http.calls import (
    HANG_S,
    LONG_MS,
    Gateway,
    acknowledge_range,
    good,
    outcomes,
    problem,
    ranges,
    wait_until,
    woken,
)
from tests.http.database import refused_state_writes, sql

NEWER = count(1_000_000, 1_000_000)
"""Epochs above those of the gateway and the groups of these tests."""
TOKEN = secrets.token_hex(16)


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """The record cache holds one batch: earlier ones are read from the database."""
    return {"SHAREQUEUE_GATEWAY_RECORD_CACHE_BYTES": "1"}


@pytest.fixture(scope="module")
def data_dir(data_dir: Path) -> Path:
    """The folder of the stack, with a cluster token that these tests know."""
    (data_dir / "cluster.token").write_text(TOKEN)
    return data_dir


@pytest.fixture
def gateway(own_gateway: Gateway) -> Gateway:
    return own_gateway


@pytest.fixture
def state(stack: Stack, gateway: Gateway, name: str) -> Callable[..., Any]:
    """Calls the share coordinator as another gateway would, about partition 0 of the test's topic and group."""
    url = f"{stack.addresses['share coordinator']}/v1/share-state"

    def call(what: str, partition: int = 0, **fields: Any) -> int:
        named = [name, gateway.describe_topic(name)["topic_id"], {"partition": partition, **fields}]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = good(httpx.post(f"{url}/{what}", json={"states": [named]}, headers=headers, timeout=60))
        error_code: int = answer["results"][0][2]["error_code"]
        return error_code

    return call


def initialised(gateway: Gateway, name: str, partitions: int = 1) -> None:
    """A group whose share-partitions exist and are loaded nowhere: a member joined, and nobody fetched."""
    body = {"member_id": "first", "member_epoch": 0, "subscribed_topic_names": [name]}
    good(gateway.http.post(f"/v1/share-groups/{name}/heartbeat", json=body))
    wait_until(lambda: gateway.offsets(name) == {(name, number): (-1, -1) for number in range(partitions)})


# Loading


def test_ld_035_a_state_that_cannot_be_read_fails_the_partition(gateway: Gateway, database: str, name: str) -> None:
    gateway.produce_batches(name, 3)
    initialised(gateway, name)
    other = f"{name}-other"
    gateway.produce_batches(other, 3)
    gateway.acquire(name, other)
    with refused_state_writes(database, name):  # reading a state raises its leader epoch
        (error,) = gateway.fetch(name, topics=[name, other])["errors"]
        problem(gateway.try_fetch(name, name), 503, "COORDINATOR_NOT_AVAILABLE", 15)
    assert (error["topic"], error["partition"], error["kafka_code"]) == (name, 0, 15)
    assert gateway.acquire(name, name) == ["0-2×1"]


def test_a_batch_that_cannot_be_decoded_is_named_and_stepped_over(gateway: Gateway, database: str, name: str) -> None:
    gateway.produce_batches(name, 4, 4, 4)
    topic_id = gateway.describe_topic(name)["topic_id"]
    broken = "UPDATE log.record_batches SET records = $2 WHERE topic_id = $1 AND base_offset = 4 RETURNING 1"
    assert sql(database, broken, topic_id, b"\\x0500000000")
    assert gateway.acquire(name, name, max_records=100) == ["0-3×1"], "the records before it are delivered"
    assert gateway.settle(name, name, 0, 3, "accept") == "applied"
    for _ in range(2):
        refused = problem(gateway.try_fetch(name, name), 503, "KAFKA_STORAGE_ERROR", 56)
        assert f"offsets 4 to 7 in partition 0 of the topic with the id {topic_id}" in refused["detail"]
        assert "delete-records with before_offset 8" in refused["detail"]
    body = {"partitions": [{"partition": 0, "before_offset": 8}]}
    good(gateway.http.post(f"/v1/topics/{name}/delete-records", json=body))
    assert gateway.acquire(name, name) == ["8-11×1"]


def test_ld_037_a_fetch_waits_for_a_slow_load(
    gateway: Gateway, database: str, background: ThreadPoolExecutor, name: str
) -> None:
    gateway.produce_batches(name, 3)
    initialised(gateway, name)
    lock = "DO $$ BEGIN LOCK TABLE share_state.share_records IN EXCLUSIVE MODE; PERFORM pg_sleep(2); END $$"
    locked = background.submit(sql, database, lock)
    held = "SELECT 1 FROM pg_locks WHERE relation = 'share_state.share_records'::regclass AND mode = 'ExclusiveLock'"
    wait_until(lambda: sql(database, held))
    answer = gateway.fetch(name, name, max_wait_ms=LONG_MS)
    assert not sql(database, held)
    locked.result(60)
    assert (ranges(answer), answer["errors"]) == (["0-2×1"], [])


def test_ld_041_a_fenced_leader_takes_a_higher_epoch(gateway: Gateway, state: Callable[..., Any], name: str) -> None:
    """The generation names it, so nobody else leads: PostgreSQL or Redis knows of a leader that is gone."""
    gateway.produce_batches(name, 10)
    assert gateway.acquire(name, name) == ["0-9×1"]
    assert state("read", leader_epoch=next(NEWER)) == 0
    assert gateway.settle(name, name, 0, 9, "accept") == "applied"
    assert gateway.offsets(name) == {(name, 0): (10, 0)}


def test_df_015_a_fetch_that_cannot_load_anything_does_not_wait(gateway: Gateway, database: str, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    initialised(gateway, name, partitions=2)
    with woken(gateway), refused_state_writes(database, name):
        response = gateway.try_fetch(name, name, max_wait_ms=LONG_MS)
    problem(response, 503, "COORDINATOR_NOT_AVAILABLE", 15)


def test_ld_039_ee_011_without_redis_a_restarted_gateway_knows_the_persisted_state(
    gateway: Gateway, stack: Stack, redis_database: str, name: str
) -> None:
    """The locks are lost with Redis; with Redis they would survive."""
    gateway.produce_batches(name, 10, 5)
    assert gateway.acquire(name, name, share_session_epoch=0) == ["0-14×1"]
    assert gateway.settle(name, name, 10, 14, "accept") == "applied"
    service = stack.service("gateway")
    service.kill()
    with redis.Redis.from_url(redis_database) as connection:
        connection.flushdb()
    service.start()
    wait_until(service.ready)
    problem(gateway.try_fetch(name, share_session_epoch=1), 404, "SHARE_SESSION_NOT_FOUND", 122)
    assert gateway.acquire(name, name, share_session_epoch=0) == ["0-9×1"]
    assert gateway.window(name, name) == (0, ["0-9 ACQUIRED×1", "10-14 ACKNOWLEDGED×1"])


# Writing


def test_pw_013_a_write_of_an_earlier_state_is_refused(gateway: Gateway, state: Callable[..., Any], name: str) -> None:
    """The gateway looks up the leader and asks again: it leads itself, and nobody holds the record in the new state."""
    gateway.produce_batches(name, 2)
    gateway.acquire(name, name)
    assert state("initialize", state_epoch=next(NEWER), start_offset=0) == 0
    response = gateway.try_acknowledge(name, [acknowledge_range(name, 0, 1, "accept")])
    assert outcomes(response) == [121]
    assert response.json()["results"][0]["status"] == "failed"


def test_pw_015_a_fenced_write_ends_waiting_fetches(
    gateway: Gateway, state: Callable[..., Any], background: ThreadPoolExecutor, name: str
) -> None:
    gateway.produce_batches(name, 2)
    gateway.acquire(name, name)
    waiting = background.submit(gateway.try_fetch, name, name, member="m2", max_wait_ms=LONG_MS)
    wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
    with woken(gateway):
        assert state("read", leader_epoch=next(NEWER)) == 0
        assert not waiting.done()
        assert gateway.settle(name, name, 0, 1, "accept") in ("applied", 121), "it leads under a higher epoch by now"
        response = waiting.result(HANG_S)
    problem(response, 421, "NOT_LEADER_OR_FOLLOWER", 6)


def test_pw_017_a_write_is_retried_until_it_is_durable(gateway: Gateway, database: str, name: str) -> None:
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name)
    with refused_state_writes(database, name, times=3) as tries:
        assert gateway.settle(name, name, 0, 9, "accept") == "applied"
        assert tries() == 4
    assert gateway.window(name, name) == (10, [])


def test_gi_031_an_unreadable_summary_is_answered_without_an_offset(
    gateway: Gateway, state: Callable[..., Any], name: str
) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 3)
    gateway.acquire(name, name)
    assert gateway.offsets(name) == {(name, 0): (0, 3), (name, 1): (0, 0)}
    assert state("delete") == 0
    assert gateway.offsets(name) == {(name, 0): (-1, -1), (name, 1): (0, 0)}


# Reading the log


Mend = Callable[[], Any]


@pytest.fixture
def broken_log(gateway: Gateway, database: str, name: str) -> Mend:
    """A topic with ten records in each of two partitions; those of partition 0 cannot be read until this is called."""
    gateway.create_topic(name, partitions=2)
    for partition in (0, 1):
        gateway.produce_batches(name, 10, partition=partition)
    where = "WHERE topic_id = $1 AND partition = 0"
    topic_id = gateway.describe_topic(name)["topic_id"]
    ((stored,),) = sql(database, f"SELECT records FROM log.record_batches {where}", topic_id)
    sql(database, f"UPDATE log.record_batches SET records = substr(records, 1, 60) {where}", topic_id)
    return lambda: sql(database, f"UPDATE log.record_batches SET records = $2 {where}", topic_id, stored)


def test_df_013_an_unreadable_partition_does_not_stop_the_others(gateway: Gateway, broken_log: Mend, name: str) -> None:
    answer = gateway.fetch(name, name)
    assert ranges(answer) == ["1:0-9×1"]
    (error,) = answer["errors"]
    assert (error["partition"], error["kafka_code"], error["code"]) == (0, 56, "KAFKA_STORAGE_ERROR")


def test_df_019_a_failed_read_locks_nothing(gateway: Gateway, broken_log: Mend, name: str) -> None:
    partition = {"topic_partitions": [{"topic": name, "partitions": [0]}]}
    for _ in range(2):
        problem(gateway.try_fetch(name, **partition), 503, "KAFKA_STORAGE_ERROR", 56)
    broken_log()
    assert gateway.acquire(name, member="m2", **partition) == ["0-9×1"]
