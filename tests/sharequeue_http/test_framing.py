"""How the bytes of a connection become requests: offers to upgrade, bodies in pieces, trailers, targets, the end."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tests.sharequeue_http.edge_server import EdgeServer, edge_server
from tests.sharequeue_http.raw import Raw, chunked, head

JSON = b'{"topic":"a name","partitions":[1]}'
SMUGGLED = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nsmuggled"

OFFERS = {
    "h2c, as Java's HttpClient sends it": (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    ),
    "websocket": ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"),
    "an unknown protocol": ("Upgrade: something/1", "Connection: keep-alive, upgrade"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[EdgeServer]:
    with edge_server() as server:
        yield server


@pytest.fixture
def raw(server: EdgeServer) -> Iterator[Raw]:
    server.received.clear()
    with Raw(server.port) as raw:
        yield raw


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
@pytest.mark.parametrize("pieces", ["one write", "two writes", "bytes", "chunked"])
@pytest.mark.parametrize("kind", ["JSON", "raw"])
def test_a_request_that_offers_an_upgrade_keeps_its_body(
    raw: Raw, server: EdgeServer, offer: tuple[str, ...], pieces: str, kind: str
) -> None:
    path, body = ("/json", JSON) if kind == "JSON" else ("/echo", SMUGGLED)
    framing = "Transfer-Encoding: chunked" if pieces == "chunked" else f"Content-Length: {len(body)}"
    start = head(f"POST {path}", "Content-Type: application/json", *offer, framing)
    sent = chunked(body) if pieces == "chunked" else body
    if pieces == "one write":
        raw.send(start + sent)
    elif pieces == "bytes":
        raw.send(*(struct.pack("B", byte) for byte in start + sent))
    else:
        raw.send(start, sent)
    raw.send(head("POST /echo", "Content-Length: 4") + b"next")
    answer = raw.answer()
    assert (answer.status, answer.body) == (200, b"a name" if kind == "JSON" else SMUGGLED)
    assert "upgrade" not in answer.headers
    assert raw.answer().body == b"next"
    assert server.received == [body, b"next"]


def test_trailers_are_not_headers(raw: Raw) -> None:
    raw.send(
        head("POST /headers", "Transfer-Encoding: chunked", "Trailer: Idempotency-Key"),
        b"1\r\nx\r\n0\r\nIdempotency-Key: t1\r\n\r\n",
    )
    answer = raw.answer()
    assert answer.status == 200
    assert b"idempotency-key" not in answer.body


REFUSED = {
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2 with prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/2.0": (b"GET /headers HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /headers HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
    "CONNECT": (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "a coding before chunked": (head("POST /echo", "Transfer-Encoding: gzip, chunked") + chunked(b"x"), 501),
    "chunked twice": (head("POST /echo", *["Transfer-Encoding: chunked"] * 2) + chunked(b"x"), 400),
    "chunked in HTTP/1.0": (
        b"POST /echo HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        501,
    ),
    "two lengths": (head("POST /echo", "Content-Length: 1", "Content-Length: 2") + b"xx", 400),
    "a length and chunks": (head("POST /echo", "Content-Length: 5", "Transfer-Encoding: chunked") + chunked(b"x"), 400),
    "a negative length": (head("POST /echo", "Content-Length: -1"), 400),
    "a length that is no number": (head("POST /echo", "Content-Length: 1x"), 400),
    "a chunk size that is no number": (head("POST /echo", "Transfer-Encoding: chunked") + b"zz\r\n", 400),
    "a space before a colon": (head("GET /headers", "Name : x"), 400),
    "a bare line feed in a header": (head("GET /headers", "Name: a\nb: c"), 400),
    "a NUL in a header": (head("GET /headers", "Name: a\0b"), 400),
}
BAD_TARGETS = {
    "neither path nor URL": b"headers",
    "an asterisk": b"*",
    "bytes beyond ASCII": b"/\xc3\xa4",
    "bytes beyond ASCII in an http URL": b"http://localhost/headers?x=\xc3\xa4",
    "a fragment": b"/headers?x=a#b",
    "a fragment of a path": b"/headers#b",
    "a fragment of an http URL": b"http://localhost/headers#b",
    "a space": b"/headers?x=a b",
    "a tab": b"/headers?x=a\tb",
    "a NUL": b"/headers?x=a\0b",
    "a control character": b"/headers?x=a\x7fb",
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_malformed_requests_are_refused_and_end_the_connection(
    raw: Raw, server: EdgeServer, sent: bytes, status: int
) -> None:
    raw.send(sent)
    answer = raw.answer()
    assert answer.status == status
    problem = json.loads(answer.body)
    assert (problem["status"], problem["code"], problem["definite"]) == (status, "INVALID_REQUEST", True)
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/problem+json"
    assert raw.rest() == b""
    assert server.received == []


@pytest.mark.parametrize("target", BAD_TARGETS.values(), ids=BAD_TARGETS.keys())
def test_a_target_that_http_does_not_allow_is_refused_by_one_rule(raw: Raw, target: bytes) -> None:
    raw.send(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
    answer = raw.answer()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert json.loads(answer.body)["detail"] == (
        "the target of the request must be a path or an http URL, of visible ASCII characters other than #; "
        "percent-encode all others"
    )


def test_a_malformed_chunk_in_the_middle_of_a_body_is_refused(raw: Raw, server: EdgeServer) -> None:
    raw.send(head("POST /echo", "Transfer-Encoding: chunked"), b"3\r\nabc\r\n", b"zz\r\n")
    assert raw.answer().status == 400
    assert server.received == []


def test_the_host_of_an_absolute_target_replaces_the_header(raw: Raw) -> None:
    raw.send(head("GET http://other.example:1234/headers?x=1", host="localhost"))
    assert b"host=other.example:1234" in raw.answer().body
    raw.send(head("GET https://other.example"))
    assert raw.answer().status == 404


@pytest.mark.parametrize("path", ["//nowhere", "/no%3Fwhere"])
def test_an_unknown_path_is_named_as_it_was_sent_also_without_a_host(raw: Raw, path: str) -> None:
    raw.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert json.loads(raw.answer().body)["detail"] == f"there is nothing at {unquote(path)}"


def test_a_client_that_shuts_down_its_sending_side_counts_as_gone(raw: Raw, server: EdgeServer) -> None:
    server.gone.clear()
    raw.send(head("GET /wait"))
    raw.socket.shutdown(socket.SHUT_WR)
    assert server.gone.wait(60)
    assert raw.answer().status == 200


def test_an_unfinished_body_is_not_served(raw: Raw, server: EdgeServer) -> None:
    raw.send(head("POST /echo", "Content-Length: 10") + b"half")
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.rest() == b""
    assert server.received == []


def test_an_answer_without_content_has_neither_type_nor_length(raw: Raw) -> None:
    raw.send(head("DELETE /thing"))
    answer = raw.answer("DELETE")
    assert answer.status == 204
    assert answer.headers.keys() == {"x-request-id", "x-content-type-options"}
    raw.send(head("POST /echo", "Content-Length: 1") + b"x")
    assert raw.answer().body == b"x"


def test_an_answer_to_head_has_the_length_of_the_body_it_leaves_out(raw: Raw) -> None:
    raw.send(head("HEAD /headers"), head("POST /echo", "Content-Length: 1") + b"x")
    answer = raw.answer("HEAD")
    assert answer.status == 200
    assert int(answer.headers["content-length"]) > 0
    assert raw.answer().body == b"x"


EXPECT = "Expect: 100-continue"
NOT_ASKED_FOR = {
    "GET": (head("GET /headers", EXPECT, "Content-Length: 5"), 200),
    "another media type": (head("POST /json", EXPECT, "Content-Type: text/plain", "Content-Length: 5"), 415),
    "a body that is too large": (head("POST /echo", EXPECT, f"Content-Length: {1 << 30}"), 413),
    "an unknown path": (head("POST /nothing", EXPECT, "Content-Length: 5"), 404),
}


@pytest.mark.parametrize(("sent", "status"), NOT_ASKED_FOR.values(), ids=NOT_ASKED_FOR.keys())
def test_an_unwanted_body_is_not_asked_for(raw: Raw, sent: bytes, status: int) -> None:
    raw.send(sent)
    answer = raw.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")


def test_a_wanted_body_is_asked_for_once(raw: Raw) -> None:
    raw.send(head("POST /echo", EXPECT, "Content-Length: 5"))
    raw.socket.settimeout(10)
    assert raw.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    raw.send(b"ab", b"cde")
    assert raw.answer().body == b"abcde"


def test_a_streamed_answer_waits_for_its_client(raw: Raw, server: EdgeServer) -> None:
    server.written = 0
    raw.send(head("GET /stream"))
    first = raw.socket.recv(1000)
    assert b"transfer-encoding: chunked" in first
    assert server.written < 150  # of 200: the rest waits for the client
    taken = len(first)
    while not first.endswith(b"0\r\n\r\n"):
        first = first[-10:] + raw.socket.recv(1 << 20)
        taken += len(first) - min(len(first), 10)
    assert taken > 19_000_000


def test_a_streamed_answer_comes_whole_in_both_versions(raw: Raw, server: EdgeServer) -> None:
    raw.send(head("GET /stream"))
    assert len(raw.answer().body) == 20_000_000
    raw.send(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
    answer = raw.answer()
    assert (len(answer.body), answer.headers["connection"]) == (20_000_000, "close")
    assert "transfer-encoding" not in answer.headers


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_a_streamed_answer_that_fails_resets_its_connection(raw: Raw, version: bytes) -> None:
    """In HTTP/1.0 the end of the connection would be the end of the answer."""
    raw.send(b"GET /broken HTTP/%b\r\nHost: localhost\r\n\r\n" % version)
    with pytest.raises(ConnectionResetError):
        raw.read_all()


def test_a_client_that_leaves_ends_its_streamed_answer(server: EdgeServer) -> None:
    server.written = 0
    with Raw(server.port) as raw:
        raw.send(head("GET /stream"))
        raw.socket.recv(1000)
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with Raw(server.port) as raw:  # the server is there, and its loop has heard of the reset
        raw.send(head("POST /echo", "Content-Length: 1") + b"x")
        assert raw.answer().body == b"x"
    assert server.written < 200


def test_many_requests_at_once_are_answered_in_order(raw: Raw, server: EdgeServer) -> None:
    count = 500
    sender = threading.Thread(
        target=raw.send, args=[head("POST /echo", "Content-Length: 3") + b"%03d" % number for number in range(count)]
    )
    sender.start()
    assert [raw.answer().body for _ in range(count)] == [b"%03d" % number for number in range(count)]
    sender.join()


def test_bad_bytes_behind_a_request_do_not_change_its_answer(raw: Raw, server: EdgeServer) -> None:
    """As after a body that is longer than its Content-Length: a client that got 400 would repeat what was done."""
    raw.send(head("POST /echo", "Content-Length: 1") + b"7\0\0")
    answer = raw.answer()
    assert (answer.status, answer.headers["connection"], raw.rest()) == (200, "close", b"")
    assert server.received == [b"7"]


@pytest.mark.parametrize(
    "asked", [b"GET /headers HTTP/1.0\r\n\r\n", head("GET /headers", "Connection: close")], ids=["1.0", "close"]
)
def test_a_connection_ends_when_its_client_asks(raw: Raw, asked: bytes) -> None:
    raw.send(head("GET /headers"))
    assert raw.answer().headers.get("connection") is None
    raw.send(asked)
    assert (raw.answer().headers["connection"], raw.rest()) == ("close", b"")
