"""Metrics on /metrics, under Kafka's meanings (family MT), and what acknowledgements add to them (AK-025)."""

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sharequeue_share_coordinator.share_state.rows import decode_row

from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, LONG_MS, Gateway, acknowledge_range, good, outcomes, wait_until, woken
from tests.storage.database import session

Changes = Callable[[str], float]


@pytest.fixture
def changes(gateway: Gateway) -> Changes:
    """By how much a sample grew since the test began; missing samples count as 0."""
    before = gateway.metrics()
    return lambda sample: gateway.metrics().get(sample, 0) - before.get(sample, 0)


def test_ak_025_acknowledged_records_by_type(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.produce_batches(name, 13)
    gateway.acquire(name, name)
    types = "accept accept accept accept accept release release reject gap gap renew renew renew"
    assert gateway.settle(name, name, 0, 12, types) == "applied"
    assert gateway.settle(name, name, 0, 4, "reject", member="m2") in (121, "ignored")
    counted = {
        type: changes(f'sharequeue_record_acknowledgements_total{{ack_type="{type}"}}')
        for type in ("accept", "release", "reject", "renew", "gap")
    }
    assert counted == {"accept": 5, "release": 2, "reject": 1, "renew": 3, "gap": 0}


def test_ak_017_an_acknowledgement_is_one_state_write(gateway: Gateway, shared_database: str, name: str) -> None:
    """The close of a session whose member holds nothing any more writes nothing.

    A write of the start offset alone does not count: every 10 s the leader stores the starts that have moved since
    their last write.
    """

    async def settled() -> list[list[tuple[int, int]]]:
        """What each write of the group's state has settled. Locks of other groups may end at the same time."""
        async with session(shared_database) as database:
            rows = await database.fetch(
                """SELECT r.record FROM share_state.share_records r JOIN share_state.share_partitions k USING (key_id)
                   WHERE k.group_id = $1 ORDER BY r.seq""",
                name,
            )
            batches = [decode_row(row["record"]).batches for row in rows]
            return [[(batch.first_offset, batch.last_offset) for batch in some] for some in batches if some]

    gateway.produce_batches(name, 5)
    gateway.acquire(name, name, share_session_epoch=0)
    accept = [acknowledge_range(name, 0, 4, "accept")]
    assert outcomes(gateway.try_acknowledge(name, accept, share_session_epoch=1)) == ["applied"]
    gateway.fetch(name, share_session_epoch=-1)
    gateway.produce_batches(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 5, 5, "accept") == "applied"
    assert asyncio.run(settled()) == [[(0, 4)], [(5, 5)]]


def test_mt_001_calls_are_counted_once_for_each_topic(gateway: Gateway, changes: Changes, name: str) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        gateway.create_topic(topic, partitions=2)
        for partition in (0, 1):
            gateway.produce_batches(topic, 2, partition=partition)

    def counted(topic: str) -> list[float]:
        kinds = ("share_fetch", "failed_share_fetch", "share_acknowledgement", "failed_share_acknowledgement")
        return [changes(f'sharequeue_{kind}_requests_total{{topic="{topic}"}}') for kind in kinds]

    gateway.acquire(name, topics=[name, other])
    accept = [acknowledge_range(topic, 0, 0, "accept", partition=index) for topic in (name, other) for index in (0, 1)]
    assert set(outcomes(gateway.try_acknowledge(name, accept))) == {"applied"}
    assert (counted(name), counted(other)) == ([1, 0, 1, 0], [1, 0, 1, 0])
    missing = [{"topic": other, "partitions": [7, 8]}]
    assert len(gateway.fetch(name, name, topic_partitions=missing)["errors"]) == 2
    wrong = [acknowledge_range(other, 0, 9, "accept"), acknowledge_range(other, 1, 9, "accept")]
    assert outcomes(gateway.try_acknowledge(name, [*wrong, acknowledge_range(name, 1, 1, "accept")]))[-1] == "applied"
    assert (counted(name), counted(other)) == ([2, 0, 2, 0], [2, 1, 2, 1])


def test_unknown_topics_make_no_series(gateway: Gateway, name: str) -> None:
    gateway.try_fetch(name, f"{name}-nothing")
    gateway.settle(name, f"{name}-nothing", 0, 0, "accept")
    gateway.http.get(f"/v1/topics/{name}-nothing")
    assert not [sample for sample in gateway.metrics() if f"{name}-nothing" in sample]


def test_deleted_groups_and_topics_leave_no_series(gateway: Gateway, background: ThreadPoolExecutor, name: str) -> None:
    """Otherwise each group that ever existed would cost memory and time of scrapes until a restart; with a waiting
    fetch too. Its open dead letters can still be redriven, and may be counted until they are dropped."""
    topic, group, dead = f"{name}-topic", f"{name}-group", f"{name}-dead"

    def of(what: str) -> list[str]:
        return [sample for sample in gateway.metrics() if f'"{what}"' in sample]

    gateway.configure(group, errors_deadletterqueue_topic_name=dead)
    gateway.produce(topic, 1)
    gateway.acquire(group, topic)
    gateway.acquire(group, topic, topic_partitions=[{"topic": topic, "partitions": [7]}])
    assert gateway.settle(group, topic, 0, 0, "reject") == "applied"
    assert gateway.settle(group, topic, 0, 9, "accept") != "applied"
    wait_until(lambda: f'sharequeue_dead_letter_records_total{{group="{group}"}}' in gateway.metrics())
    with woken(gateway):
        waiting = background.submit(gateway.acquire, group, topic, max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        assert len(of(group)) >= 2
        assert len(of(topic)) >= 4
        assert gateway.try_delete_group(group, force=True).status_code == 204
        assert waiting.result(HANG_S) == []
    assert good(gateway.http.post(f"/v1/share-groups/{group}/dead-letters/drop", json={}))["matched"] == 1
    wait_until(lambda: not of(group))
    assert gateway.http.delete(f"/v1/topics/{topic}").status_code == 204
    wait_until(lambda: not of(topic))


def test_a_group_deleted_during_a_redis_call_leaves_no_series(
    client: httpx.Client,
    own_gateway: Gateway,
    stack: Stack,
    redis_server: Redis,
    background: ThreadPoolExecutor,
    name: str,
) -> None:
    """The fetch has acquired by then, and is answered only after the group is gone."""
    own_gateway.produce_batches(name, 1, 1)
    own_gateway.configure(name, errors_deadletterqueue_topic_name=f"{name}-dead")
    own_gateway.acquire(name, name, max_records=1)
    assert own_gateway.settle(name, name, 0, 0, "reject") == "applied"

    def of_group() -> list[str]:
        return [sample for sample in own_gateway.metrics() if f'group="{name}"' in sample]

    wait_until(lambda: f'sharequeue_dead_letter_records_total{{group="{name}"}}' in own_gateway.metrics())
    batches = "sharequeue_in_flight_batch_message_count_count"
    before = own_gateway.metrics()[batches]
    token = (stack._data_dir / "cluster.token").read_text().strip()
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        fetching = background.submit(own_gateway.acquire, name, name)
        wait_until(lambda: own_gateway.metrics()[batches] == before + 1)
        client.post(
            f"/v1/led/groups/{name}/unload", json={"end": True}, headers={"Authorization": f"Bearer {token}"}
        ).raise_for_status()
        assert not of_group()
        assert not fetching.done()
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert fetching.result(HANG_S) == []
    assert not of_group()


def test_kafkas_metrics_of_the_coordinators_and_of_loads(own_gateway: Gateway, stack: Stack, name: str) -> None:
    """num-partitions, write-latency-max and partition-load-time-max."""
    own_gateway.create_topic(name, partitions=3)
    own_gateway.produce(name, 1, partition=0)
    for group in (f"{name}-1", f"{name}-2"):
        own_gateway.acquire(group, name)
        assert own_gateway.settle(group, name, 0, 0, "accept") == "applied"

    def sample(service: str, metric: str) -> float:
        lines = httpx.get(f"{stack.addresses[service]}/metrics", verify=False, timeout=60).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{metric} "))

    groups = [group["group_id"] for group in good(own_gateway.http.get("/v1/share-groups"))["groups"]]
    managed = {group: len(own_gateway.offsets(group)) for group in groups}
    assert (managed[f"{name}-1"], managed[f"{name}-2"]) == (3, 3)
    count = "sharequeue_coordinator_share_partition_count"
    wait_until(lambda: sample("group coordinator", count) == sum(managed.values()))
    assert sample("share coordinator", "sharequeue_share_coordinator_write_seconds_max") > 0
    assert sample("gateway", "sharequeue_partition_load_seconds_max") > 0


def test_mt_003_in_flight_counts_the_span_and_the_batches(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.produce_batches(name, 5, 15)
    for size in (5, 15):
        gateway.acquire(name, name, max_records=size)
    labels = f'{{group="{name}",partition="0",topic="{name}"}}'
    samples = gateway.metrics()
    assert samples[f"sharequeue_in_flight_message_count{labels}"] == 20
    assert samples[f"sharequeue_in_flight_batch_count{labels}"] == 2
    sizes = "sharequeue_in_flight_batch_message_count_%s"
    assert (changes(sizes % "sum"), changes(sizes % "count")) == (20, 2)
    assert changes("sharequeue_fetch_lock_seconds_count") == 2
    assert gateway.settle(name, name, 0, 19, "accept") == "applied"
    assert f"sharequeue_in_flight_message_count{labels}" not in gateway.metrics()


def test_mt_005_the_share_of_partitions_that_were_acquired(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.create_topic(name, partitions=4)
    gateway.produce_batches(name, 1, partition=2)
    assert gateway.acquire(name, name) == ["2:0-0×1"]
    ratio = "sharequeue_request_topic_partitions_fetch_ratio_%s"
    assert (changes(ratio % "sum"), changes(ratio % "count")) == (25, 1)
    assert changes("sharequeue_topic_partitions_acquire_seconds_count") == 1


def test_expired_locks_are_counted_by_record(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=1000)
    gateway.produce_batches(name, 8)
    gateway.acquire(name, name)
    gateway.configure(name, share_record_lock_duration_ms=60_000)  # of the second lock, which is to last
    assert gateway.acquire(name, name, member="m2", max_wait_ms=LONG_MS) == ["0-7×2"]
    labels = f'{{group="{name}",partition="0",topic="{name}"}}'
    assert changes(f"sharequeue_acquisition_lock_timeouts_total{labels}") == 8


def test_waits_without_records_are_counted(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.create_topic(name)
    gateway.acquire(name, name, max_wait_ms=0)  # the first one also loads, which may take longer than the wait
    gateway.acquire(name, name, max_wait_ms=100)
    assert changes("sharequeue_delayed_share_fetch_expires_total") == 1
    wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 0)


def test_requests_are_timed_by_operation_and_status(gateway: Gateway, changes: Changes, name: str) -> None:
    gateway.produce_batches(name, 1)
    gateway.http.post(f"/v1/topics/{name}/records", json={})
    counted = 'sharequeue_http_request_seconds_count{operation="produceRecords",status="%d"}'
    assert (changes(counted % 200), changes(counted % 422)) == (1, 1)


def test_events_of_records_are_counted_by_group_and_topic(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_delivery_count_limit=2)
    gateway.produce(name, *range(6))
    gateway.acquire(name, name, member="w-1")
    gateway.settle(name, name, 0, 2, "accept", member="w-1")
    gateway.settle(name, name, 3, 3, "release", member="w-1")
    gateway.settle(name, name, 4, 4, "reject", member="w-1")
    gateway.settle(name, name, 5, 5, "renew", member="w-1", lock_duration_ms=1000)

    def counted() -> dict[str, float]:
        samples = gateway.metrics()
        events = ("delivered", "accepted", "released", "rejected", "expired")
        of_event = 'sharequeue_group_records_total{{event="{}",group="{}",topic="{}"}}'
        return {event: samples.get(of_event.format(event, name, name), 0) for event in events}

    expected = {"delivered": 6.0, "accepted": 3.0, "released": 1.0, "rejected": 1.0, "expired": 1.0}
    wait_until(lambda: counted() == expected)
    samples = gateway.metrics()
    assert samples[f'sharequeue_topic_records_produced_total{{topic="{name}"}}'] == 6
    assert samples[f'sharequeue_group_fetching_members{{group="{name}"}}'] == 1
    assert samples[f'sharequeue_group_dead_letters_total{{cause="rejected",group="{name}",topic="{name}"}}'] == 1
