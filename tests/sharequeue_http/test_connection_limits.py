"""Limits of one connection, each tested by a client that goes far beyond it; and what many connections may hold."""

import contextlib
import itertools
import json
import logging
import time

import pytest

from sharequeue_http.limits import HttpLimits
from tests.http.calls import wait_until
from tests.sharequeue_http.edge_server import LARGE_BYTES, MAX_REQUEST_BYTES, EdgeServer, edge_server
from tests.sharequeue_http.raw import Raw, head

PIECE = 4096


def refused(raw: Raw, status: int, limit: int | None = None) -> None:
    answer = raw.answer()
    assert answer.status == status
    problem = json.loads(answer.body)
    assert (problem["status"], problem["code"], problem["definite"]) == (status, "INVALID_REQUEST", True)
    assert problem.get("limit") == limit
    assert raw.rest() == b""


def request_with(*, line: int = 0, header: int = 0, headers: int = 0) -> bytes:
    more = [f"H{number}: x" for number in range(headers)]
    return head("GET /headers?" + "q" * line, f"Long: {'v' * header}", *more)


@pytest.mark.parametrize(
    ("sent", "status", "limit"),
    [
        (request_with(line=1100), 414, 1024),
        (request_with(header=8200), 431, 8192),
        (request_with(headers=20), 431, 20),
        (request_with(line=200_000), 414, 1024),
        (request_with(header=200_000), 431, 8192),
        (request_with(headers=30_000), 431, 20),
    ],
    ids=["a line", "a head", "headers", "a line in one read", "a head in one read", "headers in one read"],
)
@pytest.mark.parametrize("pieces", ["whole", "pieces", "behind another request"])
def test_a_head_beyond_a_limit_is_refused(
    strict: EdgeServer, sent: bytes, status: int, limit: int, pieces: str
) -> None:
    with Raw(strict.port) as raw:
        if pieces == "behind another request":
            raw.send(head("POST /echo", "Content-Length: 1") + b"x")
            assert raw.answer().body == b"x"
        size = 100 if pieces == "pieces" else len(sent)
        raw.send_until_refused(sent[start : start + size] for start in range(0, len(sent), size))
        answer = raw.answer()
        assert answer.status in ({status, 431} if limit == 20 else {status})  # 30,000 headers are a large head, too
        assert raw.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [request_with(line=900), request_with(header=7900), request_with(headers=17)],
    ids=["line", "head", "headers"],
)
def test_a_head_within_the_limits_is_served(strict: EdgeServer, sent: bytes) -> None:
    with Raw(strict.port) as raw:
        raw.send(sent)
        assert raw.answer().status == 200


def test_a_client_that_keeps_sending_after_a_refusal_can_read_it(server: EdgeServer) -> None:
    """A closed socket would reset the connection, and the answer would be lost."""
    with Raw(server.port) as raw:
        raw.send(head("POST /echo", f"Content-Length: {8 * MAX_REQUEST_BYTES}"))
        raw.send_until_refused(itertools.repeat(b"x" * PIECE, 8 * MAX_REQUEST_BYTES // PIECE))
        assert raw.answer().status == 413


# Clocks


@pytest.mark.parametrize(
    "sent", [b"G", b"GET /headers HTTP/1.1\r\nHost: loc", head("GET /headers")[:-2]], ids=["a byte", "half", "nearly"]
)
def test_a_missing_head_is_refused_at_its_timeout(strict: EdgeServer, sent: bytes) -> None:
    with Raw(strict.port) as raw:
        raw.send(sent)
        refused(raw, 408)


def test_a_head_that_comes_byte_by_byte_is_refused(strict: EdgeServer) -> None:
    with Raw(strict.port) as raw:
        raw.socket.settimeout(0.05)
        began = time.monotonic()
        received = b""
        raw.send(b"GET /")
        while not received:
            raw.send(b"a")
            try:
                received = raw.socket.recv(1000)
            except TimeoutError:
                assert time.monotonic() - began < 60
        assert received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("body", [b"", b"x" * 100], ids=["nothing", "a little"])
def test_a_missing_body_is_refused_at_its_timeout(strict: EdgeServer, body: bytes) -> None:
    strict.received.clear()
    with Raw(strict.port) as raw:
        raw.send(head("POST /echo", "Content-Length: 100000"), body)
        refused(raw, 408)
        assert strict.received == []


def test_a_body_that_comes_at_the_lowest_speed_is_served(strict: EdgeServer) -> None:
    """A body of twice that speed, for longer than the grace. Its first 30 kB come at once, so a busy machine may be
    late with the rest."""
    ahead = 30_000
    with Raw(strict.port) as raw:
        raw.send(head("POST /echo", f"Content-Length: {ahead + 3000}"), b"x" * ahead)
        for _ in range(30):
            raw.send(b"x" * 100)
            time.sleep(0.04)
        assert raw.answer().body == b"x" * (ahead + 3000)


def test_a_body_may_pause_within_its_grace() -> None:
    """However fast it must be afterwards. Another connection shows that the clocks were looked at in the pause."""
    limits = HttpLimits(head_timeout_ms=500, body_grace_ms=3_600_000, min_body_bytes_per_s=1_048_576)
    with edge_server(limits) as server, Raw(server.port) as raw:
        raw.send(head("POST /echo", "Content-Length: 2"), b"x")
        for _ in range(2):
            with Raw(server.port) as other:
                other.send(b"G")
                refused(other, 408)
        raw.send(b"y")
        assert raw.answer().body == b"xy"


def test_a_body_below_its_lowest_speed_is_refused_after_its_grace() -> None:
    """It never pauses: 200 bytes at a time, far less than the speed."""
    limits = HttpLimits(body_grace_ms=1000, min_body_bytes_per_s=1_048_576)
    with edge_server(limits) as server, Raw(server.port) as raw:
        raw.socket.settimeout(0.02)
        raw.send(head("POST /echo", "Content-Length: 1000000"))
        began, received = time.monotonic(), b""
        while not received:
            raw.send(b"x" * 200)
            with contextlib.suppress(TimeoutError):
                received = raw.socket.recv(1000)
            assert time.monotonic() - began < 60
        assert time.monotonic() - began >= 1
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_connection_is_kept_between_requests_until_its_idle_timeout() -> None:
    """The timeout of a head is over by then; it ends a connection that never sent anything."""
    limits = HttpLimits(head_timeout_ms=500, idle_timeout_ms=4000)
    with edge_server(limits) as server, Raw(server.port) as raw:
        for _ in range(2):
            raw.send(head("POST /echo", "Content-Length: 1") + b"x")
            assert raw.answer().body == b"x"
            with Raw(server.port) as silent:
                assert silent.rest() == b""
        idle_since = time.monotonic()
        raw.send(head("POST /echo", "Content-Length: 1") + b"x")
        assert raw.answer().body == b"x"
        assert raw.rest() == b""
        assert time.monotonic() - idle_since >= 4


def test_a_client_that_waits_for_its_answer_is_never_closed(strict: EdgeServer) -> None:
    with Raw(strict.port) as waiting, Raw(strict.port) as other:
        waiting.send(head("GET /wait"))
        other.send(head("POST /echo", "Content-Length: 1") + b"x")
        assert other.answer().body == b"x"
        assert other.rest() == b""  # idle for too long, so the waiting one waits for longer than every limit
        waiting.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            waiting.socket.recv(1)


@pytest.mark.parametrize("sent", [b"", b"\r\n" * 10], ids=["nothing", "empty lines"])
def test_a_silent_connection_is_closed(strict: EdgeServer, sent: bytes) -> None:
    with Raw(strict.port) as raw:
        raw.send(sent)
        assert raw.rest() == b""


@pytest.mark.parametrize("times", [1, 2], ids=["one answer", "two answers on a connection"])
def test_unread_answers_are_bounded_over_all_clients(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """At the moment when an answer is written: nothing looks at the connections later."""
    monkeypatch.setattr("sharequeue_http.wire.edge.LOOK_S", 3600)
    with edge_server(HttpLimits(max_unsent_bytes=LARGE_BYTES)) as server:
        lines = [Raw(server.port) for _ in range(8)]
        for line in lines:
            line.send(head("GET /large") * times)
        wait_until(lambda: server.large >= len(lines))
        wait_until(lambda: 1 <= len(server.server.server_state.connections) <= 4 // times)
        for line in lines:
            line.__exit__()


def test_a_client_that_takes_its_answer_is_not_closed_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection stays, whatever its answer has; and one that took something outlives one that did not."""
    monkeypatch.setattr("sharequeue_http.wire.edge.LOOK_S", 3600)
    with edge_server(HttpLimits(max_unsent_bytes=1 << 20)) as server, Raw(server.port) as stalled:
        stalled.send(head("GET /large"))
        wait_until(lambda: server.edge.watched)
        for _ in range(3):
            with Raw(server.port) as raw:
                raw.send(head("GET /large"))
                assert len(raw.answer().body) == LARGE_BYTES
        wait_until(lambda: not server.server.server_state.connections)


# Crowds


def test_a_new_connection_takes_the_place_of_the_longest_idle_one() -> None:
    with edge_server(connections=5) as server:
        silent = [Raw(server.port) for _ in range(40)]
        with Raw(server.port) as raw:
            raw.send(head("POST /echo", "Content-Length: 1") + b"x")
            assert raw.answer().body == b"x"
        for connection in silent:
            connection.__exit__()


def test_with_no_connection_idle_a_new_one_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with edge_server(connections=3) as server:
        lines = [Raw(server.port) for _ in range(3)]
        for line in lines:
            line.send(head("GET /wait"))
        wait_until(lambda: len(server.server.server_state.tasks) == 3)
        with caplog.at_level(logging.ERROR, "sharequeue_http.wire.connection"):
            for _ in range(3):
                with Raw(server.port) as raw:
                    answer = raw.answer()
                    assert answer.status == 503
                    assert json.loads(answer.body)["retriable"]
                    assert int(answer.headers["retry-after"]) >= 1
        assert len(caplog.records) == 1
        lines.pop().__exit__()
        wait_until(lambda: len(server.server.server_state.connections) == 2)
        with Raw(server.port) as raw:
            raw.send(head("POST /echo", "Content-Length: 1") + b"x")
            assert raw.answer().body == b"x"
        for line in lines:
            line.__exit__()


def test_the_first_malformed_request_of_an_address_is_logged_and_the_others_are_counted(
    server: EdgeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sharequeue_http.wire.edge"):
        for _ in range(30):
            with Raw(server.port) as raw:
                raw.send(b"nonsense\r\n\r\n")
                assert raw.answer().status == 400
    (line,) = [record.__dict__["fields"] for record in caplog.records]
    assert line["peer"][0] == "127.0.0.1"
    assert line["cause"]
