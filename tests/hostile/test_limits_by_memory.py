"""Limits of requests at the HTTP edge, exceeded 100 times: the gateway refuses the request and never holds its bytes.

A limit that is checked only after all bytes have arrived passes every test of statuses, so these tests measure the
peak of the process's memory.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable

import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.sharequeue_http.raw import Raw, connections_of, head

KIB = 1 << 10
MIB = 1 << 20
TIMES = 100
AROUND = 8 * MIB
"""How much a process may grow for other reasons: a first use of code, a first refusal, a thread."""
AT_ONCE = 12
NOISE = 4 * MIB
"""The same once the code was used."""
ANSWERS = 50
"""The gateway reads from each connection between two answers. After so many of them it has read what it will read."""
LINE, HEAD, HEADERS, BODY = 8 * KIB, 64 * KIB, 100, 256 * KIB
CONNECTIONS = 16
SETTINGS = {
    "SHAREQUEUE_GATEWAY_MAX_REQUEST_LINE_BYTES": str(LINE),
    "SHAREQUEUE_GATEWAY_MAX_HEAD_BYTES": str(HEAD),
    "SHAREQUEUE_GATEWAY_MAX_HEADERS": str(HEADERS),
    "SHAREQUEUE_GATEWAY_MAX_REQUEST_BYTES": str(BODY),
    "SHAREQUEUE_GATEWAY_MAX_CONNECTIONS": str(CONNECTIONS),
}
CHUNKED = head("POST /v1/topics/t/records/raw", "Transfer-Encoding: chunked")
PIECE = 16 * KIB


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
def port(stack: Stack) -> int:
    return int(stack.url.rpartition(":")[2])


class Growth:
    """How much the gateway of a stack grows from now on, at its peak."""

    def __init__(self, stack: Stack) -> None:
        self._pid = stack.service("gateway").pid
        reset_peak(self._pid)
        self._before = resident_bytes(self._pid)

    def check(self, limit: int) -> None:
        grown = peak_resident_bytes(self._pid) - self._before
        assert grown <= 10 * limit + AROUND, f"{grown / MIB:.1f} MiB for a limit of {limit / MIB:.2f} MiB"


SENT = {
    "request line": (b"GET /", b"a" * PIECE, LINE, 414),
    "header": (head("GET /livez")[:-2] + b"A: ", b"a" * PIECE, HEAD, 431),
    "body in chunks": (CHUNKED, b"4000\r\n%b\r\n" % (b"a" * PIECE), BODY, 413),
    "body in small chunks": (CHUNKED, b"4\r\nabcd\r\n" * 1000, BODY, 400),
    "body beyond its length": (head("POST /v1/topics/t/records/raw", "Content-Length: 1"), b"a" * PIECE, BODY, 200),
    "chunk extension": (CHUNKED + b"1;", b"a" * PIECE, HEAD, 400),
    "trailer": (CHUNKED + b"1\r\nx\r\n0\r\nA: ", b"a" * PIECE, HEAD, 400),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000, HEAD, 400),
    "declared length": (
        head("POST /v1/topics/t/records/raw", f"Content-Length: {TIMES * BODY}"),
        b"a" * PIECE,
        BODY,
        413,
    ),
    "body of a call without one": (head("GET /livez", f"Content-Length: {TIMES * BODY}"), b"a" * PIECE, BODY, 200),
}
"""What each case sends before its first piece, the piece, the limit, and the status.

The bytes behind a body's chunks have one limit, and each case shows another fault of it:

- "trailer": the parser keeps the one line until it ends. Without the limit, the first connection alone is too much.
- "trailers": the parser keeps none that is whole, but hands each to the connection. If the connection kept them, those
  within the limit would be too much. If it keeps none, only the status shows a missing limit.
- "chunk extension": the parser neither keeps one nor hands it over, so no fault of the gateway makes it take memory.
  Only the status shows a missing limit; then an extension costs the time to read it.
"""


def check_at_once(
    stack: Stack, port: int, gateway: Gateway, parts: Callable[[], Iterable[bytes]], limit: int, status: int
) -> None:
    """Send the parts on several connections at once, if the limit is small, so that all bytes together count.

    A round with one connection comes first, which uses the code for the first time.
    """
    pid = stack.service("gateway").pid
    for at_once in [1] if limit == BODY else [1, AT_ONCE]:
        wait_until(lambda: connections_of(pid, port) <= 1)
        reset_peak(pid)
        before = resident_bytes(pid)
        with contextlib.ExitStack() as closing:
            lines = [closing.enter_context(Raw(port)) for _ in range(at_once)]
            for line in lines:
                line.send_until_refused(parts())
            for _ in range(ANSWERS):
                good(gateway.http.get("/livez"))
            grown = peak_resident_bytes(pid) - before
            most = 10 * limit + AROUND if at_once == 1 else 4 * limit * at_once + NOISE
            assert grown <= most, f"{grown / MIB:.1f} MiB, {most / MIB:.1f} are allowed"
            if at_once > 1 or limit == BODY:
                assert {line.answer().status for line in lines} == {status}


@pytest.mark.parametrize(("begin", "piece", "limit", "status"), SENT.values(), ids=SENT)
def test_a_request_above_a_limit_is_refused_and_not_held(
    stack: Stack, port: int, own_gateway: Gateway, begin: bytes, piece: bytes, limit: int, status: int
) -> None:
    def parts() -> Iterable[bytes]:
        return itertools.chain([begin], itertools.repeat(piece, TIMES * limit // len(piece)))

    check_at_once(stack, port, own_gateway, parts, limit, status)


def test_more_headers_than_allowed_are_refused_and_not_held(stack: Stack, port: int, own_gateway: Gateway) -> None:
    """So short that all of them are within `max_head_bytes`: as objects they take 30 times as much.

    Nothing ends the head.
    """
    begun = head("GET /livez")[:-2] + b"a:b\r\n" * HEADERS * TIMES
    check_at_once(stack, port, own_gateway, lambda: [begun], HEADERS, 431)


def test_requests_sent_ahead_are_not_held(stack: Stack, port: int, own_gateway: Gateway, name: str) -> None:
    """A first one waits for its answer. Reading pauses behind it, and the others stay in the client's socket."""
    own_gateway.create_topic(name)
    body = b'{"topics":["%b"],"max_wait_ms":30000}' % name.encode()
    fetch = head(
        f"POST /v1/share-groups/{name}/fetch", "Content-Type: application/json", f"Content-Length: {len(body)}"
    )
    ahead = head("POST /v1/topics/t/records/raw", f"Content-Length: {PIECE}") + b"a" * PIECE
    grown = Growth(stack)
    with Raw(port, timeout_s=0.5) as raw:
        raw.send(fetch + body)
        taken = raw.send_until_refused(itertools.repeat(ahead, TIMES * 9 * 16))
        assert taken < TIMES * 9 * len(ahead)
    grown.check(9 * PIECE)


def test_more_connections_than_allowed_are_refused_and_not_held(stack: Stack, port: int) -> None:
    """Each is in the middle of a head, so none of them is idle."""
    grown = Growth(stack)
    lines = [Raw(port) for _ in range(TIMES * CONNECTIONS)]
    try:
        for line in lines:
            line.send_until_refused([b"GET /"])
        wait_until(lambda: connections_of(stack.service("gateway").pid, port) <= CONNECTIONS)
    finally:
        for line in lines:
            line.__exit__()
    grown.check(CONNECTIONS * PIECE)
