"""Waiting fetches (family DF): the events that wake them, and clients that hang up."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, LONG_MS, Gateway, Json, acknowledge_range, good, ranges, wait_until, woken

LONG = {"max_wait_ms": LONG_MS}


class Waiting:
    """Starts fetches, and waits until they wait."""

    def __init__(self, gateway: Gateway, executor: ThreadPoolExecutor) -> None:
        self._gateway = gateway
        self._executor = executor

    def count(self) -> int:
        return int(self._gateway.metrics()["sharequeue_waiting_fetches"])

    def fetch(self, group: str, topic: str, member: str = "m2", **fields: object) -> "Future[Json]":
        """Start a fetch and return once the gateway has it waiting."""
        answer = self.fetch_for_a_time(group, topic, member, **fields)
        assert not answer.done()
        return answer

    def fetch_for_a_time(self, group: str, topic: str, member: str = "m2", **fields: object) -> "Future[Json]":
        """As `fetch`, but its records may come before the gateway has counted it as waiting."""
        before = self.count()
        answer = self._executor.submit(self._gateway.fetch, group, topic, member=member, **{**LONG, **fields})
        wait_until(lambda: self.count() > before or answer.done())
        return answer


@pytest.fixture
def waiting(gateway: Gateway, background: ThreadPoolExecutor) -> Iterator[Waiting]:
    with woken(gateway):
        yield Waiting(gateway, background)


def acquired(answer: "Future[Json]") -> list[str]:
    return ranges(answer.result(HANG_S))


def test_df_001_a_fetch_without_records_waits_its_full_time(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    started = time.monotonic()
    answer = gateway.fetch(name, name, max_wait_ms=500)
    assert time.monotonic() - started > 0.49
    assert (answer["batches"], answer["errors"], answer["failed_count"]) == ([], [], 0)


def test_df_003_a_produce_wakes_a_fetch(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.create_topic(name)
    answer = waiting.fetch(name, name)
    gateway.produce_batches(name, 10)
    assert acquired(answer) == ["0-9×1"]


def test_df_005_a_release_wakes_a_fetch(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name)
    answer = waiting.fetch(name, name)
    assert gateway.settle(name, name, 0, 9, "release") == "applied"
    assert acquired(answer) == ["0-9×2"]


def test_df_007_room_in_the_window_wakes_a_fetch(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.configure(name, share_partition_max_record_locks=10)
    gateway.produce_batches(name, 10, 10)
    assert gateway.acquire(name, name) == ["0-9×1"]
    answer = waiting.fetch(name, name)
    assert gateway.settle(name, name, 0, 4, "accept") == "applied"
    assert acquired(answer)[0].startswith("10-1")


def test_df_009_an_append_to_another_partition_does_not_end_the_wait(
    gateway: Gateway, waiting: Waiting, name: str
) -> None:
    gateway.create_topic(name, partitions=3)
    gateway.produce_batches(name, 4, partition=2)
    gateway.acquire(name, name)
    answer = waiting.fetch(name, name, topics=None, topic_partitions=[{"topic": name, "partitions": [0, 1]}])
    release = {**acknowledge_range(name, 0, 3, "release"), "partition": 2}
    good(gateway.try_acknowledge(name, [release]))
    assert not answer.done()
    gateway.produce_batches(name, 1, partition=1)
    assert acquired(answer) == ["1:0-0×1"]
    assert gateway.acquire(name, name) == ["2:0-3×2"]


def test_df_011_one_partition_with_data_is_enough(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 3, partition=1)
    with woken(gateway):
        assert gateway.acquire(name, name, **LONG) == ["1:0-2×1"]


def test_df_017_bytes_are_split_over_acquirable_partitions(gateway: Gateway, name: str) -> None:
    """1 MiB over the two of five partitions that have room: 512 KiB, five records of 100 KiB, of each."""
    gateway.create_topic(name, partitions=5)
    gateway.configure(name, share_partition_max_record_locks=8)
    full, free = [0, 2, 3], [1, 4]
    for partition in full:
        gateway.produce_batches(name, 9, partition=partition)
    for partition in free:
        gateway.produce(name, *["x" * 102_400] * 8, partition=partition)
    assert len(gateway.acquire(name, topic_partitions=[{"topic": name, "partitions": full}])) == 3
    assert sorted(gateway.acquire(name, name, member="m2", max_bytes=1 << 20)) == ["1:0-4×1", "4:0-4×1"]


def test_the_end_of_a_lock_wakes_a_fetch(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=1000)
    gateway.produce_batches(name, 5)
    gateway.acquire(name, name)
    assert acquired(waiting.fetch_for_a_time(name, name)) == ["0-4×2"]


def test_a_change_of_the_groups_settings_wakes_a_fetch(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.configure(name, share_partition_max_record_locks=1)
    gateway.produce_batches(name, 2)
    assert gateway.acquire(name, name) == ["0-0×1"]
    answer = waiting.fetch(name, name)
    gateway.configure(name, share_partition_max_record_locks=2)
    assert acquired(answer) == ["1-1×1"]


def test_a_failed_acknowledgement_ends_the_wait(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    gateway.acquire(name, name)
    with woken(gateway):
        response = gateway.try_fetch(name, name, acknowledgements=[acknowledge_range(name, 0, 5, "accept")], **LONG)
    assert response.headers["acknowledge-failed"] == "1"
    answer = good(response)
    assert (answer["failed_count"], answer["acknowledgement_results"][0]["kafka_code"]) == (1, 121)


def test_acknowledgements_alone_are_answered_when_they_are_settled(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    gateway.acquire(name, name)
    with woken(gateway):
        answer = gateway.fetch(name, acknowledgements=[acknowledge_range(name, 0, 0, "accept")], **LONG)
    assert answer["acknowledgement_results"] == [{"status": "applied"}]


def test_a_fetch_waits_for_min_bytes(gateway: Gateway, waiting: Waiting, name: str) -> None:
    gateway.produce(name, "small")
    answer = waiting.fetch(name, name, min_bytes=10_000)
    gateway.produce(name, "x" * 10_000)
    assert acquired(answer) == ["0-1×1"] or acquired(answer) == ["0-0×1", "1-1×1"]


def test_fewer_than_min_bytes_are_delivered_when_the_wait_ends(gateway: Gateway, name: str) -> None:
    gateway.produce(name, "small")
    started = time.monotonic()
    assert gateway.acquire(name, name, min_bytes=10_000, max_wait_ms=400) == ["0-0×1"]
    gateway.produce_batches(name, 2)
    assert gateway.acquire(name, name, min_bytes=10_000, max_wait_ms=0) == ["1-2×1"]
    assert time.monotonic() - started > 0.39


def test_a_fetch_of_nothing_does_not_wait(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    with woken(gateway):
        assert gateway.acquire(name, name, max_records=0, **LONG) == []
    assert gateway.acquire(name, name, member="m2") == ["0-0×1"]


def test_ee_013_partitions_are_served_in_turn(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=3)
    for partition in range(3):
        gateway.produce_batches(name, 2, partition=partition)
    seen = [gateway.acquire(name, name, max_records=1)[0] for _ in range(3)]
    assert sorted(seen) == ["0-0×1", "1:0-0×1", "2:0-0×1"]
    session = [
        gateway.acquire(f"{name}-2", name if not epoch else None, max_records=1, share_session_epoch=epoch)[0]
        for epoch in range(3)
    ]
    assert sorted(session) == ["0-0×1", "1:0-0×1", "2:0-0×1"]


def test_a_client_that_hung_up_acquires_nothing(
    gateway: Gateway, waiting: Waiting, shared_stack: Stack, name: str
) -> None:
    gateway.create_topic(name)
    body = json.dumps({"topics": [name], "member_id": "gone", **LONG}).encode()
    host, port = shared_stack.url.removeprefix("http://").split(":")
    head = f"POST /v1/share-groups/{name}/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: waiting.count() == 1)
    wait_until(lambda: waiting.count() == 0)
    gateway.produce_batches(name, 3)
    assert gateway.acquire(name, name, member="m2") == ["0-2×1"]


def test_records_of_a_client_that_hung_up_before_the_answer_are_released_at_once(
    gateway: Gateway, shared_stack: Stack, name: str
) -> None:
    """The request and the end of the connection arrive together: records that were acquired are released."""
    gateway.configure(name, share_record_lock_duration_ms=3_600_000)
    gateway.produce_batches(name, 3)
    body = json.dumps({"topics": [name], "member_id": "gone"}).encode()
    host, port = shared_stack.url.removeprefix("http://").split(":")
    head = f"POST /v1/share-groups/{name}/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert gateway.acquire(name, name, member="m2", **LONG)[0].startswith("0-2×")
