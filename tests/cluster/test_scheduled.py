"""Gateways are killed while scheduled records become due: each enters the log once, and none before its time."""

import asyncio
import random
import time
from collections.abc import Iterator

import httpx
import pytest
from sharequeue_gateway.record_log.store import lock_key

from sharequeue.stack.stack import Stack
from tests.cluster.calls import make_topic
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, good, wait_until
from tests.storage.database import session, waiting_for_a_lock

PARTITIONS = 3


@pytest.fixture
def cluster(stack: Stack) -> Iterator[GatewayCluster]:
    cluster = GatewayCluster(stack)
    cluster.start()
    yield cluster
    cluster.start()


def schedule(
    gateway: httpx.Client, topic: str, first: int, count: int, delay_ms: int, spread_ms: int
) -> dict[int, int]:
    """Schedule numbers, in turn over so many ms. Returns: the time of each."""
    records = [{"value": first + n, "delay_ms": delay_ms + n * spread_ms // count} for n in range(count)]
    for n, record in enumerate(records):
        record["partition"] = n % PARTITIONS
    answer = good(gateway.post(f"/v1/topics/{topic}/scheduled", json={"records": records}))
    return {first + n: each["deliver_at_ms"] for n, each in enumerate(answer["scheduled"])}


def entered(gateway: httpx.Client, topic: str) -> list[tuple[int, int]]:
    """Each record of the topic: its number, and when it entered the log."""
    found = []
    for partition in range(PARTITIONS):
        path, offset, end = f"/v1/topics/{topic}/partitions/{partition}/records", 0, 1
        while offset < end:
            page = good(gateway.get(path, params={"offset": offset, "max_records": 10_000}))
            found += [(record["value"], record["timestamp_ms"]) for record in page["records"]]
            offset, end = page["next_offset"], page["log_end_offset"]
    return found


def judge(gateway: httpx.Client, topic: str, due: dict[int, int]) -> None:
    wait_until(lambda: len(entered(gateway, topic)) >= len(due), HANG_S)
    found = entered(gateway, topic)
    assert sorted(number for number, _ in found) == sorted(due), "each once"
    assert [number for number, at_ms in found if at_ms < due[number]] == [], "none early"


def test_gateways_that_die_amid_a_move_lose_no_record_and_double_none(
    cluster: GatewayCluster, stack: Stack, name: str
) -> None:
    """An advisory lock stops the moves between the rows that they have taken and their appends."""
    url = stack._postgres_url
    due: dict[int, int] = {}
    assert url is not None

    async def die_amid_moves(gateway: httpx.Client, topic_id: str) -> None:
        async with session(url) as connection, asyncio.timeout(HANG_S):
            await connection.execute("SELECT pg_advisory_lock($1)", lock_key(topic_id, 0))
            due.update(schedule(gateway, name, 0, 250, 400, 1500))
            with httpx.Client(base_url=cluster.gateways[1].url, timeout=HANG_S, verify=False) as other:
                due.update(schedule(other, name, 250, 250, 400, 1500))
            while True:
                if len(await waiting_for_a_lock(connection, "sharequeue-gateway-log")) > 1:
                    break
                await asyncio.sleep(0.02)
            for victim in cluster.gateways[1:]:
                victim.kill()

    with httpx.Client(base_url=cluster.gateways[0].url, timeout=HANG_S, verify=False) as gateway:
        asyncio.run(die_amid_moves(gateway, make_topic(gateway, name, PARTITIONS)))
        judge(gateway, name, due)


async def stop_appends(url: str, topic_id: str) -> None:
    """For more than a second no gateway appends to partition 0: all of them meet a time that has no record yet."""
    async with session(url) as connection:
        await connection.execute("SELECT pg_advisory_lock($1), pg_sleep(1.5)", lock_key(topic_id, 0))


def second_by_second(cluster: GatewayCluster, url: str, topic: str, seconds: int, seed: int) -> None:
    """A schedule makes a record each second while gateways are killed: each time has one record."""
    moments = random.Random(seed)
    survivor, *victims = cluster.gateways
    with httpx.Client(base_url=survivor.url, timeout=HANG_S, verify=False) as gateway:
        body = {"cron": "* * * * * *", "record": {"value": 1, "partition": 0}, "missed": "all"}
        topic_id = make_topic(gateway, topic, PARTITIONS)
        first_ms = good(gateway.put(f"/v1/topics/{topic}/schedules/s", json=body))["next_at_ms"]
        good(httpx.put(f"{victims[0].url}/v1/topics/{topic}/schedules/s", json=body, timeout=HANG_S, verify=False))
        asyncio.run(stop_appends(url, topic_id))
        while len(entered(gateway, topic)) < seconds:
            time.sleep(moments.uniform(0.05, 0.4))
            victim = moments.choice(victims)
            victim.kill() if victim.running() else victim.start()
        assert gateway.delete(f"/v1/topics/{topic}/schedules/s").status_code == 204
        records = good(gateway.get(f"/v1/topics/{topic}/partitions/0/records?max_records=1000"))["records"]
    made = [(int(record["headers"]["__schedule.time_ms"]), record["timestamp_ms"]) for record in records]
    assert [at_ms for at_ms, _ in made] == [first_ms + 1000 * n for n in range(len(made))]
    assert [at_ms for at_ms, entered_ms in made if entered_ms < at_ms] == []


def test_each_time_of_a_schedule_has_one_record_through_kills(
    cluster: GatewayCluster, stack: Stack, name: str, seed: int
) -> None:
    assert stack._postgres_url is not None
    second_by_second(cluster, stack._postgres_url, name, 4, seed)


@pytest.mark.soak
def test_each_second_of_two_minutes_has_one_record_through_kills(
    cluster: GatewayCluster, stack: Stack, name: str, seed: int
) -> None:
    assert stack._postgres_url is not None
    second_by_second(cluster, stack._postgres_url, name, 120, seed)


@pytest.mark.soak
def test_kills_while_100000_scheduled_records_become_due(cluster: GatewayCluster, name: str, seed: int) -> None:
    """Two of three gateways are killed and started again, at random moments."""
    moments = random.Random(seed)
    survivor, *victims = cluster.gateways
    with httpx.Client(base_url=survivor.url, timeout=HANG_S, verify=False) as gateway:
        make_topic(gateway, name, PARTITIONS)
        due: dict[int, int] = {}
        for request in range(20):
            due |= schedule(gateway, name, request * 5000, 5000, 5000, 60_000)
        until = time.monotonic() + 65
        while time.monotonic() < until:
            time.sleep(moments.uniform(0.05, 0.4))
            victim = moments.choice(victims)
            if victim.running():
                victim.kill()
            else:
                victim.start()
        judge(gateway, name, due)


MILLION = """
INSERT INTO log.scheduled_records (schedule_id, topic_id, partition, deliver_at_ms, bytes, tail)
SELECT gen_random_uuid(), $1, 0, (extract(epoch FROM now() + interval '7 days') * 1000)::bigint + n, 22,
  ',"key":null,"value":1}' FROM generate_series(1, 1000000) n
"""
READ = """
SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes
WHERE schemaname = 'log' AND indexrelname = 'scheduled_records_due'
"""


@pytest.mark.soak
def test_a_look_beside_a_million_records_for_next_week_reads_one_row(
    cluster: GatewayCluster, stack: Stack, name: str
) -> None:
    """Beside them 1,000 become due each second. Their lateness is printed: a busy machine must not fail a test."""
    url = stack._postgres_url
    assert url is not None

    async def one(statement: str, *arguments: object) -> tuple[int, int]:
        async with session(url) as connection:
            return tuple(await connection.fetchrow(statement, *arguments) or ())

    with httpx.Client(base_url=cluster.gateways[0].url, timeout=HANG_S, verify=False) as gateway:
        asyncio.run(one(MILLION, make_topic(gateway, f"{name}-next-week", 1)))
        make_topic(gateway, name, PARTITIONS)
        due: dict[int, int] = {}
        for request in range(12):
            due |= schedule(gateway, name, request * 5000, 5000, 10_000, 60_000)
        path = f"/v1/topics/{name}/scheduled?page_size=1"
        wait_until(lambda: good(gateway.get(path))["scheduled_count"] == 0, 10 * HANG_S)
        judge(gateway, name, due)
        late_ms = sorted(at_ms - due[number] for number, at_ms in entered(gateway, name))
        print(f"late: p50 {late_ms[30_000]} ms, p99 {late_ms[59_400]} ms, most {late_ms[-1]} ms")
        looked = [asyncio.run(one(READ))]
        for _ in range(3):  # PostgreSQL counts what a connection has read up to ten seconds later
            wait_until(lambda: asyncio.run(one(READ))[0] >= looked[-1][0] + 20)
            looked.append(asyncio.run(one(READ)))
        (scans, rows), (more_scans, more_rows) = looked[-2:]
        assert more_rows - rows <= 2 * (more_scans - scans)
