"""Limits over all connections: a crowd sends or asks for 100 times as much, and the gateway's memory stays bounded."""

import contextlib
import socket

import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.sharequeue_http.raw import Raw, connections_of, head

MIB = 1 << 20
TIMES = 100
RECEIVING, UNSENT = 1 * MIB, 2 * MIB
ANSWER = 10 * MIB
"""More than the sockets of a connection hold by themselves."""
ANSWERED = 'sharequeue_http_request_seconds_count{operation="readRecords",status="200"}'
AROUND = 32 * MIB
"""How much a process may grow for other reasons."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        "SHAREQUEUE_GATEWAY_MAX_RECEIVING_BYTES": str(RECEIVING),
        "SHAREQUEUE_GATEWAY_MAX_UNSENT_BYTES": str(UNSENT),
    }


@pytest.fixture
def port(stack: Stack) -> int:
    return int(stack.url.rpartition(":")[2])


def test_answers_that_nobody_takes_are_bounded(stack: Stack, port: int, own_gateway: Gateway, name: str) -> None:
    """Each client asks for the record and reads nothing of the answer."""
    pid = stack.service("gateway").pid
    own_gateway.create_topic(name, max_message_bytes=2 * ANSWER)
    good(own_gateway.http.post(f"/v1/topics/{name}/records/raw", content=b"\xff" * (ANSWER // 4 * 3)))
    read = head(f"GET /v1/topics/{name}/partitions/0/records?max_bytes={2 * ANSWER}")
    with Raw(port) as raw:
        raw.send(read)
        assert len(raw.answer().body) > ANSWER
    answered = own_gateway.metrics()[ANSWERED]
    before = resident_bytes(pid)
    with contextlib.ExitStack() as closing:
        for number in range(1, TIMES * UNSENT // ANSWER + 1):
            line = closing.enter_context(Raw(port))
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.send(read)
            wait_until(lambda wanted=answered + number: own_gateway.metrics()[ANSWERED] >= wanted)
        assert resident_bytes(pid) - before < UNSENT + ANSWER + AROUND
        wait_until(lambda: connections_of(pid, port) <= 3)


def test_answers_to_a_crowd_are_made_one_after_another(stack: Stack, own_gateway: Gateway, name: str) -> None:
    """All ask at the same moment, so nothing is unsent yet when each of them is served. Each read of the database and
    its answer takes five times the record: without a bound, eight of them are in memory at once."""
    service = stack.service("gateway")
    own_gateway.create_topic(name, max_message_bytes=2 * ANSWER)
    good(own_gateway.http.post(f"/v1/topics/{name}/records/raw", content=b"\xff" * (ANSWER // 4 * 3)))
    service.stop()  # what the record took in memory is gone
    service.start()
    wait_until(service.ready)
    own_gateway.describe_topic(name)
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    port = own_gateway.port
    read = head(f"GET /v1/topics/{name}/partitions/0/records?max_bytes={2 * ANSWER}")
    with contextlib.ExitStack() as closing:
        lines = [closing.enter_context(Raw(port)) for _ in range(TIMES * UNSENT // ANSWER)]
        for line in lines:
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for line in lines:
            line.send(read)
        wait_until(lambda: own_gateway.metrics().get(ANSWERED, 0) >= len(lines), seconds=60)
        assert peak_resident_bytes(service.pid) - before < UNSENT + 7 * ANSWER + AROUND // 2
