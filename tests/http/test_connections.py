"""One connection, several requests: how they may come, and how they are answered."""

import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import BinaryIO, cast

import msgspec
import psutil
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until

TOO_LARGE = 10 * 1024 * 1024 + 1


class Line:
    """A connection to the gateway that stays open."""

    def __init__(self, stack: Stack) -> None:
        host, port = stack.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = self.socket.makefile("rb")

    def makefile(self, mode: str) -> BinaryIO:
        """For HTTPResponse, which would make a file, and lose what that read ahead, for each answer."""
        return cast(BinaryIO, _Kept(self._received))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        response = HTTPResponse(cast(socket.socket, self))
        response.begin()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    def line(self) -> bytes:
        return self._received.readline()

    def ended(self) -> bool:
        return self._received.read() == b""

    def close(self) -> None:
        self._received.close()
        self.socket.close()


class _Kept:
    """A file that stays open."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.readline = file.readline
        self.readinto = file.readinto  # type: ignore[attr-defined]
        self.flush = file.flush

    def close(self) -> None:
        pass


@pytest.fixture
def line(shared_stack: Stack) -> Iterator[Line]:
    line = Line(shared_stack)
    yield line
    line.close()


def request(call: str, *headers: str, body: bytes = b"", version: str = "1.1") -> bytes:
    """A request whose body, if there is one, is JSON."""
    lines = [f"{call} HTTP/{version}", "Host: localhost", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join((*lines, "", "")).encode() + body


def record_of(value: int) -> bytes:
    return b'{"records":[{"value":%d}]}' % value


def test_requests_sent_at_once_are_answered_in_order(gateway: Gateway, line: Line, name: str) -> None:
    """Including requests that wait, and requests for unknown paths."""
    gateway.create_topic(name)
    fetch = msgspec.json.encode({"topics": [name], "max_wait_ms": 200, "member_id": "m"})
    produce = f"POST /v1/topics/{name}/records"
    line.send(
        request(f"POST /v1/share-groups/{name}/fetch", "X-Request-Id: a", body=fetch)
        + request("GET /v1/nothing", "X-Request-Id: b")
        + request(produce, "X-Request-Id: c", body=record_of(1))
        + request(produce, "X-Request-Id: d", body=record_of(2))
        + request(f"GET /v1/topics/{name}", "X-Request-Id: e")
    )
    answers = [line.answer() for _ in range(5)]
    assert [status for status, _, _ in answers] == [200, 404, 200, 200, 200]
    assert [headers["x-request-id"] for _, headers, _ in answers] == ["a", "b", "c", "d", "e"]
    assert msgspec.json.decode(answers[0][2])["batches"] == []
    assert [msgspec.json.decode(answers[index][2])["records"][0]["offset"] for index in (2, 3)] == [0, 1]


def test_a_disconnect_ends_every_pipelined_request(gateway: Gateway, line: Line, name: str) -> None:
    """A waiting fetch acquires nothing for a client that sent another request behind it and left."""
    gateway.create_topic(name)
    waiting = gateway.metrics()["sharequeue_waiting_fetches"]
    fetch = msgspec.json.encode({"topics": [name], "max_wait_ms": 30_000, "member_id": "m"})
    line.send(request(f"POST /v1/share-groups/{name}/fetch", body=fetch) + request("GET /livez"))
    wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == waiting + 1)
    line.close()
    wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == waiting)


def test_bad_bytes_behind_a_request_do_not_change_its_answer(gateway: Gateway, line: Line, name: str) -> None:
    """As after a body that is longer than its Content-Length:
    a client that got 400 would repeat a request that was done."""
    gateway.create_topic(name)
    line.send(request(f"POST /v1/topics/{name}/records", body=record_of(7)) + b"\0\0")
    status, headers, _ = line.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert line.ended()
    assert gateway.log_ends(name) == [1]


def test_a_body_is_freed_before_its_connection(gateway: Gateway, shared_stack: Stack) -> None:
    """Otherwise an idle connection would keep as much memory as its largest body took."""
    process = psutil.Process(shared_stack.service("gateway").pid)
    before = process.memory_info().rss
    lines = [Line(shared_stack) for _ in range(16)]
    try:
        for line in lines:
            line.send(request("GET /livez", body=b"0" * (TOO_LARGE - 1)))
            assert line.answer()[0] == 200
        assert process.memory_info().rss - before < 8 * TOO_LARGE
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "asked", [request("GET /livez", version="1.0"), request("GET /livez", "Connection: close")], ids=["1.0", "close"]
)
def test_a_connection_ends_when_its_client_asks(line: Line, asked: bytes) -> None:
    line.send(request("GET /livez"))
    status, headers, _ = line.answer()
    assert (status, headers.get("connection")) == (200, None)
    line.send(asked)
    status, headers, _ = line.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert line.ended()
