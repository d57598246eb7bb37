"""HTTP/1.1 as a server speaks it: one connection (RFC 9112), and what all connections of a server share.

    accept ──▶ idle ──first byte──▶ head ──whole──▶ body ──whole──▶ served ──answered, nothing queued──▶ idle
                │                    │               │                │
             75 s: closed       30 s: 408        < 1 KiB/s: 408    the client waits as long as it likes

- Requests of one connection are answered one after another, in their order. A few may queue; then reading pauses.
- An endpoint of ours is handed its request as an exchange. Everything else goes to the application by ASGI.
- Every limit is checked before the bytes are kept: a head by its size, a body by the exchange that reads it.
- An offer to upgrade is ignored (RFC 9110 7.8). The parser would drop the body of such a request, so it gets the head again
  without the offer.
- Trailers are dropped (RFC 9110 6.5.1): nothing that came behind a body is a header.
- A request that is refused before it was whole ends its connection. What still comes in is thrown away for a moment,
  because a closed socket would reset the connection and take the answer with it.
- A client that shut down its sending side gets the answers under way, but counts as gone: nothing is acquired for it.

uvicorn listens, accepts and shuts down; it is given this class by its option `http`.
"""

import asyncio
import logging
import os
import resource
import time
from collections import deque
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from sharequeue.asgi_adapter import serve_asgi
from sharequeue.http_exchange import HttpExchange, answer_head
from sharequeue.http_limits import HttpLimits
from sharequeue.log import Rarely, fields
from sharequeue.protocol.errors import ApiError, InvalidRequest, Throttled
from sharequeue.serving import App, problem_answer, request_id_from

log = logging.getLogger(__name__)

UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"http2-settings"})
LINE_BYTES: Final = len(b"  HTTP/1.1\r\n")
"""A request line beside its method and target."""
MOST_QUEUED: Final = 16
"""How many requests of a connection may be there at once; then reading pauses."""
LINGER_S: Final = 3.0
LOOK_S: Final = 0.5
"""How often connections are looked at that may have run out of time."""


class Edge:
    """What all connections of one server share: the application, the limits, and which connections may be closed."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, max_connections: int) -> None:
        """`max_connections`: what the limits say, or less where the process may not open so many files."""
        self.app = app
        self.paths = app.paths if isinstance(app, App) else None
        self.limits = limits
        self.max_connections = max_connections
        self.idle: dict[HttpProtocol, float] = {}
        """Connections without a request, and since when (seconds of the loop's clock). The longest idle comes first."""
        self.watched: dict[HttpProtocol, None] = {}
        """Connections in the middle of a head, a body, an answer that is not taken, or their end."""
        self.malformed = Rarely(lines=3, seconds=1)
        self.full = Rarely(lines=1, seconds=60)
        self._no_file = Rarely(lines=1, seconds=60)

    def protocol(self) -> type[asyncio.Protocol]:
        """The class of this server's connections, for uvicorn's option `http`."""
        return type("HttpProtocol", (HttpProtocol,), {"edge": self})

    def make_room(self) -> bool:
        """Close the connection that is idle longest. Returns: False if none is."""
        for connection in self.idle:
            connection.abort()
            return True
        return False

    def _look_for_a_file(self, now: float) -> None:
        """Say so if no file can be opened. New connections are reset by then, which nothing else would tell."""
        try:
            os.close(os.dup(2))
        except OSError as fault:
            if self._no_file.allows(now) is not None:
                log.error(
                    "no file can be opened; new connections are reset until some are free",
                    extra=fields(cause=str(fault), limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                )

    def _bound_unsent(self) -> None:
        """Close the connections that have taken nothing for longest, while too much waits to be taken."""
        stalled = [connection for connection in self.watched if connection.taking is not None]
        unsent = sum(connection.transport.get_write_buffer_size() for connection in stalled)
        stalled.sort(key=lambda connection: connection.since)
        for connection in stalled:
            if unsent <= self.limits.max_unsent_bytes:
                return
            unsent -= connection.transport.get_write_buffer_size()
            connection.transport.abort()

    async def watch(self) -> None:
        """Close connections that ran out of time. Runs as long as the service does."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            self._look_for_a_file(now)
            for connection in list(self.watched):
                connection.look(now)
            self._bound_unsent()
            idle_since = now - self.limits.idle_timeout_ms / 1000
            silent_since = now - self.limits.head_timeout_ms / 1000
            for connection, since in list(self.idle.items()):
                if since <= idle_since or (connection.silent and since <= silent_since):
                    connection.abort()
                elif since > silent_since:
                    break


class _Refused(Exception):
    """Raised in a callback of the parser, to stop it; `HttpProtocol.refusal` says why."""


class HttpProtocol(asyncio.Protocol):
    """One connection. `Edge.protocol` makes the class that uvicorn gets."""

    edge: ClassVar[Edge]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._connections: set[Any] = server_state.connections
        self._tasks = server_state.tasks
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._parser = HttpRequestParser(self)
        self._queue: deque[HttpExchange] = deque()
        """Requests without an answer, in their order; the first is being served."""
        self._incoming: HttpExchange | None = None
        """The request whose body comes in."""
        self._in_head = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._codings: list[bytes] = []
        self._method = b""
        self._version = ""
        self._fed = 0
        """Bytes since the last request was whole."""
        self._read_size = 0
        """Bytes of the read that is being parsed."""
        self._refusal: ApiError | None = None
        self._deaf = False
        """Whether what comes in is thrown away."""
        self._ended = False
        """Whether the client has shut down its sending side."""
        self._paused = False
        self.silent = True
        """Whether no byte has come yet."""
        self.taking: asyncio.Event | None = None
        """Set again when the client has taken enough of what was sent; None while it does."""
        self.since = 0.0
        """When the clock of what this connection does began."""
        self._counted = 0
        """Bytes by then: received ones, or unsent ones while an answer is not taken."""

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream, always
        self.transport = transport
        edge = self.edge
        if len(self._connections) >= edge.max_connections and not edge.make_room():
            missed = edge.full.allows(time.monotonic())
            if missed is not None:
                log.error(
                    "no more connections are taken", extra=fields(connections=edge.max_connections, refused=missed + 1)
                )
            self._deaf = True
            busy = Throttled(f"{edge.max_connections} connections are in use; try again in a moment", status=503)
            self._write_problem(busy)
            transport.close()
            return
        self._connections.add(self)
        edge.idle[self] = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self.edge.idle.pop(self, None)
        self.edge.watched.pop(self, None)
        self._deaf = True
        for exchange in self._queue:
            exchange.leave()
        if self.taking is not None:
            self.taking.set()

    def eof_received(self) -> bool:
        """The client sends no more. Returns: whether answers are still to be written."""
        self._deaf = self._ended = True
        for exchange in self._queue:
            exchange.leave()
        if self._queue:
            self._queue[-1].keep_alive = False
        return bool(self._queue)

    def abort(self) -> None:
        """Close the connection at once. An answer that was not taken yet is lost."""
        self._deaf = True
        self.edge.idle.pop(self, None)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """uvicorn stops: answer what is here, then close."""
        self._deaf = self._incoming is None
        if self._queue:
            self._queue[-1].keep_alive = False
        else:
            self.transport.close()

    def address(self, name: str) -> tuple[str, int] | None:
        """`name`: peername or sockname."""
        address = self.transport.get_extra_info(name)
        return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._read_size = len(data)
        self._fed += self._read_size
        try:
            self._feed(data)
        except HttpParserError as fault:
            refusal, self._refusal = self._refusal, None
            self._refuse(refusal or InvalidRequest(f"this is not HTTP/1.1: {fault}", definite=True))
            return
        if self._in_head or self._incoming is not None:
            self._check_unfinished()

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        parsing: bytes | memoryview = data
        while True:
            try:
                self._parser.feed_data(parsing)
                return
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                self._parser = HttpRequestParser(self)
                self._parser.feed_data(self._head_without_offer())
                parsing = rest

    def _head_without_offer(self) -> bytes:
        """The head that was parsed last, less its offer to upgrade."""
        lines = [b"%b %b HTTP/%b\r\n" % (self._method, self._url, self._version.encode())]
        for name, value in self._headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(option for option in options if option.lower() not in UPGRADE_HEADERS)  # noqa: PLW2901
            if name not in UPGRADE_HEADERS:
                lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"\r\n")
        return b"".join(lines)

    def _check_unfinished(self) -> None:
        """A read ended within a request: watch the clock and the size of what is not whole."""
        limits = self.edge.limits
        if self not in self.edge.watched:
            self._restart_clock()
        if self._in_head:
            if len(self._url) > limits.max_request_line_bytes:
                self._refuse(_line_too_long(limits))
            elif self._fed > limits.max_head_bytes:
                self._refuse(_head_too_large(limits))
            return
        assert self._incoming is not None
        received = self._incoming.received
        if self._fed - received > 8 * received + 2 * limits.max_head_bytes:  # the shortest chunks are 1 byte in 6
            self._refuse(InvalidRequest("the framing of the body, its chunks and trailers, is larger than the body"))

    def _restart_clock(self) -> None:
        self.since = self.loop.time()
        self._counted = self._fed
        self.edge.watched[self] = None

    def look(self, now: float) -> None:
        """Whether this connection ran out of time."""
        limits = self.edge.limits
        elapsed = now - self.since
        if self.taking is not None:
            unsent = self.transport.get_write_buffer_size()
            if unsent < self._counted:
                self._counted, self.since = unsent, now
            elif elapsed > limits.idle_timeout_ms / 1000:
                self.transport.abort()
        elif self._deaf:
            if elapsed > LINGER_S and not self._queue:
                self.transport.abort()
        elif self._paused:
            return
        elif self._in_head:
            if elapsed > limits.head_timeout_ms / 1000:
                self._refuse(_too_slow(f"the head of the request was not whole after {limits.head_timeout_ms} ms"))
        elif self._incoming is not None:
            slow = self._fed - self._counted < limits.min_body_bytes_per_s * elapsed
            if slow and elapsed > limits.body_grace_ms / 1000:
                self._refuse(_too_slow(f"the body came with less than {limits.min_body_bytes_per_s} bytes a second"))
        else:
            self.edge.watched.pop(self, None)

    def pause(self) -> None:
        """Read no more for now; the client's clock stands still."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
        if self._incoming is not None:
            self._restart_clock()

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self.silent:
            self.silent = False
        self.edge.idle.pop(self, None)
        self._in_head = True
        self._url = b""
        self._headers = []
        self._expects = False
        self._codings = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name == b"transfer-encoding":
            self._codings.append(value.lower())
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._in_head = False
        self._method = parser.get_method()
        version = self._version = parser.get_http_version()
        if parser.should_upgrade() and self._method != b"CONNECT":
            return  # the head comes again, without its offer
        self._check_head(version)
        if not self._url.startswith(b"/"):
            self._take_host_from_target()
        elif not self._url.isascii():
            raise self._refused(InvalidRequest("the target of the request has bytes that are not ASCII; encode them"))
        paths = self.edge.paths
        found = None if paths is None else paths.find(self._method, self._url)
        exchange = HttpExchange(self, self._method, self._url, version, self._headers, found)
        if version == "1.0" or not parser.should_keep_alive():
            exchange.keep_alive = False
        exchange.expects = self._expects and version == "1.1"
        self._incoming = exchange
        queue = self._queue
        queue.append(exchange)
        if len(queue) == 1:
            self._serve(exchange)
        elif len(queue) > MOST_QUEUED:
            self.pause()

    def _check_head(self, version: str) -> None:
        limits = self.edge.limits
        if len(self._method) + len(self._url) + LINE_BYTES > limits.max_request_line_bytes:
            raise self._refused(_line_too_long(limits))
        if len(self._headers) > limits.max_headers:
            detail = f"the request has more than {limits.max_headers} headers"
            raise self._refused(InvalidRequest(detail, status=431, limit=limits.max_headers))
        most = limits.max_head_bytes
        if (self._fed > most or self._read_size > most) and self._head_size() > most:
            raise self._refused(_head_too_large(limits))
        if version not in ("1.1", "1.0"):
            raise self._refused(InvalidRequest(f"HTTP/{version} is not spoken here; use HTTP/1.1", status=505))
        if self._method == b"CONNECT":
            raise self._refused(InvalidRequest("this is no proxy: there is no CONNECT", status=501))
        if self._codings and (self._codings != [b"chunked"] or version == "1.0"):
            raise self._refused(InvalidRequest("the only Transfer-Encoding here is chunked, in HTTP/1.1", status=501))

    def _take_host_from_target(self) -> None:
        """`GET http://host/path`: the host of the target is the one that counts (RFC 9112 3.2.2)."""
        scheme, _, rest = self._url.partition(b"://")
        host, slash, path = rest.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or not host or not self._url.isascii():
            raise self._refused(InvalidRequest("the target of the request is neither a path nor an http URL"))
        self._url = slash + path or b"/"
        self._headers = [(name, host if name == b"host" else value) for name, value in self._headers]

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.add(body)

    def on_message_complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:  # else the head comes again, without its offer to upgrade
            self._fed = 0
            incoming.end()
            if self.edge.watched:
                self.edge.watched.pop(self, None)

    # Answers

    def _serve(self, exchange: HttpExchange) -> None:
        found = exchange.found
        work = (
            serve_asgi(self.edge.app, exchange) if found is None else found.endpoint.serve(exchange, found.parameters)
        )
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            log.error("an exchange ended without an answer", exc_info=None if task.cancelled() else task.exception())
            self.transport.abort()
        elif self._queue and self._queue[0].left:
            self.transport.close()  # its client is gone

    def on_answered(self, exchange: HttpExchange) -> None:
        """The answer to the first request of the queue is written."""
        queue = self._queue
        queue.popleft()
        if self._incoming is exchange:
            self._incoming = None
        if not exchange.keep_alive:
            self._close(exchange.whole)
        elif queue:
            self._serve(queue[0])
            self.resume()
        elif not self._in_head:
            self.edge.idle[self] = self.loop.time()
            if self._paused:
                self.resume()

    def _refused(self, error: ApiError) -> Exception:
        self._refusal = error
        return _Refused(error.detail)

    def _refuse(self, error: ApiError) -> None:
        """Answer a request that is not to be served, or not to be read on, and end the connection.

        Where requests before it have no answer yet they get theirs, and the connection ends without a further one.
        """
        missed = self.edge.malformed.allows(time.monotonic())
        if missed is not None:
            log.info(
                "refused what a connection sent",
                extra=fields(peer=self.address("peername"), status=error.status, cause=error.detail, not_logged=missed),
            )
        self._deaf = True
        if self._incoming is not None:
            self._incoming.fail(error)
        elif self._queue:
            self._queue[-1].keep_alive = False
        else:
            self._write_problem(error)
            self._close(whole=False)

    def _write_problem(self, error: ApiError) -> None:
        request_id = request_id_from(None)
        answer = problem_answer(error, request_id)
        headers = (*answer.headers, (b"x-request-id", request_id.encode()))
        self.transport.write(answer_head(error.status, headers, len(answer.body), close=True) + answer.body)

    def _close(self, whole: bool) -> None:
        """Close the connection once everything is written; `whole`: nothing more is to be expected from the client."""
        self._deaf = True
        if whole or self._ended or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.resume()
        self.transport.write_eof()
        self.since = self.loop.time()
        self.edge.watched[self] = None

    # Flow control of what is sent

    def pause_writing(self) -> None:
        self.taking = asyncio.Event()
        self.since, self._counted = self.loop.time(), self.transport.get_write_buffer_size()
        self.edge.watched[self] = None

    def resume_writing(self) -> None:
        if self.taking is not None:
            self.taking.set()
            self.taking = None
            self._restart_clock()

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was sent, or is gone."""
        if self.taking is not None:
            await self.taking.wait()


def _line_too_long(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_request_line_bytes
    return InvalidRequest(f"the request line is longer than {most} bytes", status=414, limit=most)


def _head_too_large(limits: HttpLimits) -> InvalidRequest:
    most = limits.max_head_bytes
    return InvalidRequest(f"the request line and headers are larger than {most} bytes", status=431, limit=most)


def _too_slow(detail: str) -> InvalidRequest:
    return InvalidRequest(f"{detail}; send it again on another connection", status=408)
