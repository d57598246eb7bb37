"""A state write with an unknown outcome: the share-partition is loaded again, and waiting for that has a deadline."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway, acknowledge_range, good, problem, wait_until
from tests.system.yielding import Accepting, unload


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]) -> Iterator[Stack]:
    """A stack with its own Redis, which the last test breaks; a state write has a short deadline."""
    settings = {"SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": "3000"}
    with temporary_stack(tmp_path_factory.mktemp("stack"), postgres_url=new_database(), settings=settings) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        yield Gateway(http)


@contextmanager
def paused(stack: Stack, name: str) -> Iterator[None]:
    process = stack.service(name).process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def lose_an_outcome(stack: Stack, gateway: Gateway, name: str) -> None:
    """Accept record 0 with an unknown outcome: the share-partition is unloaded while the write is under way."""
    key = SharePartitionKey(name, gateway.describe_topic(name)["topic_id"], 0)
    with paused(stack, "share coordinator"):
        accepted = Accepting(stack, gateway, name, name, 0)
        unload(stack, key)
        assert accepted.status() == "unknown"


def test_a_failure_is_definite_only_if_every_part_is(own_stack: Stack, gateway: Gateway, name: str) -> None:
    """One of two acknowledgements surely failed, the other may be durable: the whole may not be repeated blindly."""
    gateway.produce(name, "one", "two")
    assert gateway.acquire(name, name, max_records=1, acquire_mode="record_limit") == ["0-0×1"]
    with paused(own_stack, "share coordinator"):
        both = [acknowledge_range(name, offset, offset, "accept") for offset in (1, 0)]
        response = gateway.try_acknowledge(name, both)
    assert [result["status"] for result in response.json()["results"]] == ["failed", "unknown"]
    assert response.json()["definite"] is False


def test_a_disconnect_while_acknowledgements_are_settled_releases_the_acquired_records(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    """The records were acquired with the same request, for an answer that no client waits for."""
    gateway.configure(name, share_record_lock_duration_ms=3_600_000)
    gateway.produce(name, "one")
    assert gateway.acquire(name, name, member="gone", max_wait_ms=10_000) == ["0-0×1"]
    gateway.produce(name, "two")
    fetch = {"topics": [name], "member_id": "gone", "max_wait_ms": 0}
    acquisitions = "sharequeue_topic_partitions_acquire_seconds_count"
    before = gateway.metrics()[acquisitions]
    body = json.dumps({**fetch, "acknowledgements": [acknowledge_range(name, 0, 0, "accept")]}).encode()
    head = f"POST /v1/share-groups/{name}/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    host, port = own_stack.url.removeprefix("http://").split(":")
    with paused(own_stack, "share coordinator"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: gateway.metrics()[acquisitions] == before + 1)
        gateway.metrics()  # the gateway has heard that the connection ended once it answers this
    assert gateway.acquire(name, name, member="m2", max_wait_ms=20_000)[0].startswith("1-1×")


def test_waiting_for_a_leader_epoch_ends_at_its_deadline(own_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.produce(name, "one", "two")
    assert gateway.acquire(name, name) == ["0-1×1"]
    own_stack.service("group coordinator").kill()
    lose_an_outcome(own_stack, gateway, name)

    refused = problem(gateway.try_fetch(name, name), 503, "COORDINATOR_LOAD_IN_PROGRESS", 14)
    assert (refused["retriable"], refused["definite"]) == (True, True)
    accept = [acknowledge_range(name, 0, 1, "accept", delivery_count=1)]
    problem(gateway.try_acknowledge(name, accept), 503, "COORDINATOR_NOT_AVAILABLE", 15)

    own_stack.service("group coordinator").start()
    wait_until(lambda: gateway.try_fetch(name, name).status_code == 200)
    results = good(gateway.try_acknowledge(name, accept))["results"]
    assert [result["status"] for result in results] == ["applied"]
