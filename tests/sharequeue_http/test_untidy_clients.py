"""Clients that send too much at once, read nothing, or leave in the middle: they cost little, and others are served."""

import gc
import itertools
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from sharequeue_http.exchange import Exchange
from sharequeue_http.limits import HttpLimits
from sharequeue_http.wire.protocol import HttpProtocol
from tests.http.calls import wait_until
from tests.sharequeue_http.edge_server import EdgeServer, edge_server
from tests.sharequeue_http.raw import Raw, chunked, head


def post(body: bytes, path: str = "/echo", *headers: str) -> bytes:
    return head(f"POST {path}", f"Content-Length: {len(body)}", *headers) + body


def reset(raw: Raw) -> None:
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.__exit__()


def is_empty(server: EdgeServer) -> bool:
    state = server.server.server_state
    return not (state.connections or state.tasks or server.edge.idle or server.edge.watched)


def alive(kind: type) -> int:
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


def test_further_requests_do_not_stop_the_timeout_of_an_unread_answer(strict: EdgeServer) -> None:
    lines = []
    for _ in range(4):
        line = Raw(strict.port)
        line.send(head("GET /large"), head("GET /headers"))
        lines.append(line)
    wait_until(lambda: is_empty(strict))
    for line in lines:
        line.__exit__()


def test_an_unread_answer_holds_a_closing_connection_only_until_its_timeout(strict: EdgeServer) -> None:
    with Raw(strict.port) as raw:
        raw.send(head("GET /large", "Connection: close"))
        wait_until(lambda: is_empty(strict))


def test_requests_sent_at_once_queue_a_few_at_a_time(server: EdgeServer) -> None:
    piece = head("GET /headers") * 5000
    with Raw(server.port, timeout_s=60) as raw:
        raw.socket.setblocking(False)
        answered, most, unsent = 0, 0, memoryview(piece * 4)
        while answered < 20_000:
            try:
                if unsent:
                    unsent = unsent[raw.socket.send(unsent) :]
            except BlockingIOError:
                pass
            try:
                answered += raw.socket.recv(1 << 20).count(b"HTTP/1.1 200 ")
            except BlockingIOError:
                most = max(most, alive(Exchange))
        assert most < 1000


def test_a_waiting_request_keeps_those_behind_it_from_being_read() -> None:
    before = alive(Exchange)
    with edge_server() as server, Raw(server.port) as raw:
        raw.send(head("GET /wait"))
        raw.socket.settimeout(0.5)
        assert raw.send_until_refused(itertools.repeat(head("GET /headers") * 1000)) < 50_000_000
        assert alive(Exchange) - before < 1000


@pytest.mark.parametrize("leave", [Raw.__exit__, reset], ids=["closed", "reset"])
@pytest.mark.parametrize("ahead", [head("GET /headers") * 20, post(b"a" * 200_000)], ids=["requests", "body"])
def test_a_client_that_leaves_while_reading_is_paused_is_noticed(
    server: EdgeServer, ahead: bytes, leave: Callable[[Raw], None]
) -> None:
    """A waiting fetch would hold its place, and take records, until its time is over."""
    server.gone.clear()
    raw = Raw(server.port)
    raw.send(head("GET /wait"), ahead)
    wait_until(lambda: any(connection._paused for connection in server.server.server_state.connections))
    assert not server.gone.is_set()
    leave(raw)
    assert server.gone.wait(60)
    wait_until(lambda: is_empty(server))


def test_every_request_before_a_half_close_is_answered(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(b"".join(post(b"%d" % number, "/slow") for number in range(4)))
        raw.socket.shutdown(socket.SHUT_WR)
        assert [raw.answer().body for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert raw.rest() == b""


def test_a_half_closed_client_gets_its_whole_stream(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(head("GET /stream"))
        raw.socket.shutdown(socket.SHUT_WR)
        assert len(raw.answer().body) == 20_000_000


def test_a_fault_of_the_application_is_answered_and_the_next_request_too(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(head("GET /raises"), post(b"next"))
        assert [raw.answer().status for _ in range(2)] == [500, 200]


def test_an_application_without_an_answer_ends_its_connection(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(head("GET /asgi-silent"))
        with pytest.raises(ConnectionResetError):
            raw.socket.recv(1)


def test_interrupted_uploads_leave_no_memory(server: EdgeServer) -> None:
    before = alive(HttpProtocol)
    gc.disable()
    try:
        for _ in range(20):
            raw = Raw(server.port)
            raw.send(head("POST /echo", "Content-Length: 900000") + b"x" * 600_000)
            reset(raw)
        wait_until(lambda: is_empty(server))
        wait_until(lambda: alive(HttpProtocol) - before < 3)
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["/echo", "/stream", "/wait"])
def test_clients_that_leave_in_the_middle_leave_nothing_behind(server: EdgeServer, path: str) -> None:
    for _ in range(5):
        raw = Raw(server.port)
        method = "POST" if path == "/echo" else "GET"
        raw.send(head(f"{method} {path}", "Content-Length: 900000") + b"x" * 100_000)
        reset(raw)
    wait_until(lambda: is_empty(server))


def test_unfinished_bodies_are_bounded_over_all_connections() -> None:
    """The body that began first is refused; bodies that arrive whole are served."""
    with edge_server(HttpLimits(max_receiving_bytes=1 << 20)) as server:
        lines = []
        for _ in range(8):
            line = Raw(server.port)
            line.send(head("POST /echo", "Content-Length: 1000000") + b"x" * 400_000)
            lines.append(line)
        refused = lines[0].answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        with Raw(server.port) as raw:
            raw.send(post(b"y" * 900_000))
            assert raw.answer().body == b"y" * 900_000
        assert b" 429 " in lines[1].line()
        for line in lines:
            line.__exit__()
        wait_until(lambda: is_empty(server))


def test_a_streamed_answer_without_content_has_no_framing(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(head("GET /not-modified"), post(b"next"))
        answer = raw.answer()
        assert (answer.status, answer.body) == (304, b"")
        assert "transfer-encoding" not in answer.headers
        assert raw.answer().body == b"next"


def test_a_body_is_not_asked_for_within_an_answer(server: EdgeServer) -> None:
    with Raw(server.port) as raw:
        raw.send(head("GET /stream", "Expect: 100-continue", "Content-Length: 5"))
        assert len(raw.answer().body) == 20_000_000


def test_the_timeout_of_a_body_begins_when_it_is_asked_for(strict: EdgeServer) -> None:
    """Behind a request that takes longer than a body may."""
    with Raw(strict.port) as raw:
        raw.send(*[post(b"x", "/slow")] * 12, head("POST /echo", "Expect: 100-continue", "Content-Length: 5"))
        for _ in range(12):
            assert raw.answer().status == 200
        assert raw.line().startswith(b"HTTP/1.1 100 ")
        assert raw.line() == b"\r\n"
        raw.send(b"abcde")
        assert raw.answer().body == b"abcde"


@pytest.mark.parametrize("header", ["Transfer-Encoding: chunked ", "Transfer-Encoding:   chunked  "])
def test_blanks_around_a_header_value_are_not_part_of_it(server: EdgeServer, header: str) -> None:
    with Raw(server.port) as raw:
        raw.send(head("POST /echo", header), b"1\r\nx\r\n0\r\n\r\n")
        assert raw.answer().body == b"x"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost?x=1", 404),
        ("http://localhost", 404),
        ("HTTP://localhost/headers?a", 200),
        ("http://[::1]:80/headers", 200),
        ("http://user@localhost/headers", 400),
        ("http:///headers", 400),
        ("ftp://localhost/headers", 400),
        ("http://localhost#part", 400),
    ],
)
def test_an_absolute_url_is_a_valid_target(server: EdgeServer, target: str, status: int) -> None:
    with Raw(server.port) as raw:
        raw.send(head(f"GET {target}"))
        assert raw.answer().status == status


def test_a_body_in_tiny_chunks_is_refused_before_it_costs_seconds(server: EdgeServer) -> None:
    """Its framing is five times as large as the body."""
    with Raw(server.port) as raw:
        raw.send(head("POST /echo", "Transfer-Encoding: chunked"))
        raw.send_until_refused(itertools.repeat(b"1\r\na\r\n" * 10_000, 100))
        assert raw.answer().status == 400


def test_a_body_of_one_line_per_chunk_is_accepted(server: EdgeServer) -> None:
    line = b"a line of forty bytes or so, as a log has"
    body = line * 20_000
    with Raw(server.port) as raw:
        raw.send(head("POST /echo", "Transfer-Encoding: chunked"), chunked(body, len(line)))
        assert raw.answer().body == body


def test_a_large_read_does_not_block_other_connections(server: EdgeServer) -> None:
    """Bodies in chunks of some bytes take long to parse; many come in at once."""
    sent = head("POST /echo", "Transfer-Encoding: chunked") + chunked(b"x" * 800_000, 40)
    lines = [Raw(server.port) for _ in range(4)]
    senders = [threading.Thread(target=line.send, args=[sent]) for line in lines]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    for line in lines:
        assert len(line.answer().body) == 800_000
        line.__exit__()
