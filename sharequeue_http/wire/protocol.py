"""HTTP/1.1 as a server speaks it, on one connection (RFC 9112): the requests as their bytes come in, in their order.

             first byte         head whole           body whole           first in the queue
    idle ─────────────▶ head ─────────────▶ body ─────────────▶ waiting ─────────────▶ served ──▶ answer ──▶ idle
     │                   │                   │                     │                      │          │
     75 s: closed        30 s: 408           < 1 KiB/s: 408        no clock: the client waits        75 s without a
     (30 s if it never   over 64 KiB: 431    after 10 s            as long as the answers            byte taken: reset
     sent a byte)                                                  before its own take

A request without a body skips that state. The first request of the queue is served from its whole head on, and reads
its body itself. The times and sizes are defaults of `HttpLimits`.

- Requests of one connection are answered one after another, in their order. When a few are queued, reading pauses.
- A request for an endpoint is served straight; every other one goes to the application by ASGI.
- A body goes to its exchange part by part. The framing of its chunks has a bound.
- An offer to upgrade is ignored (RFC 9110 7.8). httptools would drop the body of such a request, so it gets the head
  again without the offer.
- Trailers are dropped (RFC 9110 6.5.1): nothing behind a body counts as a header.

httptools parses. `connection` is the rest of the connection: its clocks, refusals and end. uvicorn gets `HttpProtocol`
by its option `http`.
"""

import asyncio
import contextvars
import functools
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserInvalidURLError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from sharequeue_http.application.paths import LONGEST_KNOWN
from sharequeue_http.exchange import Exchange, Headers
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.limits import HttpLimits
from sharequeue_http.wire.asgi_adapter import serve_asgi
from sharequeue_http.wire.connection import MOST_QUEUED, Connection
from sharequeue_http.wire.edge import Edge
from sharequeue_http.wire.handshake import Handshake
from sharequeue_http.wire.head import bad_target, head_too_large, size_of, without_host, without_offer

PIECE: Final = 16 * 1024
"""A read is parsed in pieces of this size, so that it yields few more than MOST_QUEUED requests."""
BUSY_S: Final = 0.002
"""After a read that takes longer to parse, the other connections have their turn."""
LINE_BYTES: Final = len(b"  HTTP/1.1\r\n")
"""A request line without its method and target."""
MOST_IDLE: Final = 64
"""The most tasks that wait for a request."""

Unanswered = Callable[[Exchange, "asyncio.Task[None]", BaseException | None], None]
"""Called when a handler ends without an answer, or fails. Arguments: the exchange, its task, and its exception or
None."""


class _Refused(Exception):
    """Raised in a callback of httptools to stop it. `HttpProtocol._refusal` is the reason."""


def protocol_of(edge: Edge, context: Callable[[], ssl.SSLContext] | None = None) -> Any:
    """The class of a server's connections, or what makes them, for uvicorn's option `http`.

    `context`: gives the context of TLS of the next one.
    """
    kind = type("HttpProtocol", (HttpProtocol,), {"edge": edge, "workers": Workers(edge.app)})
    if context is None:
        return kind

    def begin(server_state: ServerState, **given: Any) -> Handshake:
        make = functools.partial(kind, server_state=server_state, **given)
        return Handshake(edge, context(), server_state.connections, make)

    return begin


class HttpProtocol(Connection):
    """The requests of one connection. `protocol_of` makes the class that uvicorn gets."""

    workers: ClassVar["Workers"]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The arguments are uvicorn's."""
        super().__init__(server_state.connections, _loop or asyncio.get_running_loop())
        self.workers.tasks = server_state.tasks
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._method = b""
        self._version = ""
        self._codings: list[bytes] = []
        """The values of the headers Transfer-Encoding, in lower case."""
        self._expects = False
        self._refusal: ApiError | None = None
        """Why a callback of httptools stopped it."""
        self._read_size = 0
        """Bytes of the read that is parsed now."""
        self._unparsed = b""
        """The rest of a read, not parsed yet because enough requests are queued."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._parser = None  # it and the connection refer to each other: otherwise only the collector would free them

    def shutdown(self) -> None:
        self._unparsed = b""
        super().shutdown()

    def set_aside(self, exchange: Exchange) -> None:
        """As of a connection. If the client has sent much more than this request, that goes, and the connection ends
        with the answer."""
        super().set_aside(exchange)
        behind = sum(size_of(each.target, each.headers) + each.kept for each in islice(self._queue, 1, None))
        if self._fed + behind + len(self._unparsed) > PIECE:
            self._deaf, exchange.keep_alive = True, False
            self._queue, self._incoming = deque([exchange]), None
            self._headers, self._in_head, self._unparsed = [], False, b""
            self.edge.receive(self, 0)

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        size = self._read_size = len(data)
        if size > PIECE:
            self._receive_large(data)
            return
        self._fed += size
        parser = self._parser
        assert parser is not None
        try:
            try:
                parser.feed_data(data)
            except HttpParserUpgrade as offer:
                self._feed_without_offer(memoryview(data)[offer.args[0] :])
        except HttpParserError as fault:
            self._malformed(fault)
        else:
            if self._in_head or self._incoming is not None:
                self._check_unfinished()

    def _receive_large(self, data: bytes) -> None:
        """Parse a read in pieces, until enough requests are queued."""
        began = time.perf_counter()
        for start in range(0, len(data), PIECE):
            self.data_received(data[start : start + PIECE])
            if self._deaf:
                return
            if len(self._queue) > MOST_QUEUED and self._incoming is None:
                self._unparsed = data[start + PIECE :]
                return
        if time.perf_counter() - began > BUSY_S and not self._paused:
            self.transport.pause_reading()  # otherwise the loop would read on while there is data
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _feed_without_offer(self, rest: memoryview) -> None:
        """Parse the head again without its offer to upgrade, then the rest. Raises: HttpParserError."""
        while True:
            self._parser = HttpRequestParser(self)
            try:
                self._parser.feed_data(without_offer(self._method, self._target, self._version, self._headers))
                self._parser.feed_data(rest)
                return
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]

    def _malformed(self, fault: HttpParserError) -> None:
        refusal, self._refusal = self._refusal, None
        spaced = "Expected HTTP/" in str(fault)  # a space ended the target
        if refusal is None and (spaced or isinstance(fault, HttpParserInvalidURLError)):
            refusal = bad_target()
        self._refuse(refusal or InvalidRequest(f"this is not HTTP/1.1: {fault}", status=400))

    def _check_unfinished(self) -> None:
        """A read ended within a request: check the size of the incomplete part, and start its clock."""
        limits, incoming = self.edge.limits, self._incoming
        if not self._since:
            self.restart_clock()
        if incoming is None:
            try:
                check_head(limits, b"", self._target, self._headers)
                if self._fed > limits.max_head_bytes:
                    raise head_too_large(limits)
            except InvalidRequest as error:
                self._refuse(error)
            return
        self.edge.receive(self, incoming.kept)
        free = 2 * limits.max_head_bytes
        if not self._deaf and self._fed - incoming.received > incoming.received // 4 + free:  # chunks of 30 bytes do
            detail = (
                f"the framing of the body is larger than {free} bytes and a quarter of the body: send larger chunks"
            )
            self._refuse(InvalidRequest(detail, status=400))

    # The callbacks of httptools

    def on_message_begin(self) -> None:
        self._in_head = True
        self._target = b""
        self._headers = []
        self._codings = []
        self._expects = False
        self.silent = False
        self.edge.idle.pop(self, None)

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer
        name = name.lower()
        value = value.strip(b" \t")
        self._headers.append((name, value))
        if name == b"transfer-encoding":
            self._codings.append(value.lower())
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        self._in_head = False
        method = self._method = parser.get_method()
        version = self._version = parser.get_http_version()
        if parser.should_upgrade() and method != b"CONNECT":
            return  # the head is parsed again, without its offer
        target, headers = self._target, self._headers
        try:
            received = max(self._fed, self._read_size)
            check_head(self.edge.limits, method, target, headers, version, self._codings, received)
            if not target.startswith(b"/"):
                target, headers = without_host(target, headers)
        except ApiError as error:
            self._refusal = error
            raise _Refused(error.detail) from None
        self._headers = []
        path, _, query = target.partition(b"?")
        paths = self.edge.paths
        found = (paths.known if len(path) <= LONGEST_KNOWN else paths.find)(method, path)
        exchange = self._incoming = Exchange(self, method, path, query, version, headers, found)
        exchange.keep_alive = version != "1.0" and parser.should_keep_alive()
        exchange.expects = self._expects and version == "1.1"
        queue = self._queue
        queue.append(exchange)
        if len(queue) == 1:
            self.workers.serve(exchange, self.on_unanswered)
        elif len(queue) > MOST_QUEUED:
            self.pause()

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.add(body)

    def on_message_complete(self) -> None:
        exchange, self._incoming = self._incoming, None
        if exchange is None:
            return  # the head is parsed again, without its offer to upgrade
        self._fed = 0
        self._since = 0.0
        if self in self.edge.receiving:
            self.edge.receive(self, 0)
        exchange.whole = True
        if exchange.news is not None:
            exchange.news.set()

    # Answers

    def on_answered(self, exchange: Exchange) -> None:
        """The answer to the first request of the queue is written."""
        exchange.answered = True
        if self._lost:
            return
        queue = self._queue
        queue.popleft()
        if self._incoming is exchange:
            self._incoming = None
            self.edge.receive(self, 0)
        if not exchange.keep_alive:
            self._close(exchange.whole)
            return
        if queue:
            self.workers.serve(queue[0], self.on_unanswered)
        elif not self._in_head:
            self.edge.idle[self] = self.loop.time()
        if self._paused and self._incoming is None and len(queue) <= MOST_QUEUED:
            unparsed, self._unparsed = self._unparsed, b""
            if unparsed:
                self.data_received(unparsed)
            if not self._unparsed and len(queue) <= MOST_QUEUED:
                self.resume()


def check_head(
    limits: HttpLimits,
    method: bytes,
    target: bytes,
    headers: Headers,
    version: str = "1.1",
    codings: Sequence[bytes] = (),
    received: int = 0,
) -> None:
    """Check a head, or the part of it that has come in.

    Args:
        codings: the values of its headers Transfer-Encoding, in lower case.
        received: bytes that the head cannot be larger than.
        Its size is computed only if they are more than it may have.
    Raises: InvalidRequest (400, 414, 431, 501, 505).
    """
    if len(method) + len(target) + LINE_BYTES > (most := limits.max_request_line_bytes):
        raise InvalidRequest(f"the request line is longer than {most} bytes", status=414, limit=most)
    if len(headers) > (most := limits.max_headers):
        raise InvalidRequest(f"the request has more than {most} headers", status=431, limit=most)
    if received > limits.max_head_bytes and size_of(target, headers) > limits.max_head_bytes:
        raise head_too_large(limits)
    if version not in ("1.1", "1.0"):
        raise InvalidRequest(f"this service does not speak HTTP/{version}; use HTTP/1.1", status=505)
    if method == b"CONNECT":
        raise InvalidRequest("this service is not a proxy and does not serve CONNECT", status=501)
    if codings and (list(codings) != [b"chunked"] or version == "1.0"):
        detail = "the only Transfer-Encoding that this service takes is chunked, in HTTP/1.1"
        raise InvalidRequest(detail, status=501)
    if b"#" in target:  # httptools refuses all other characters that a target may not have
        raise bad_target()


class Workers:
    """The tasks of one server, each of which answers one request after another.

    A new task for each request costs about as much as decoding the request. So a task that has answered one waits for
    the next one, of whichever connection.

                    serve                    answered
        new task ───────────▶ at a request ───────────▶ idle ──▶ at a request …
                                   │
                                   └─ it failed, was cancelled, or ran an application; or MOST_IDLE are idle ──▶ ended

    A task for an application ends with its request, because an application may leave context variables behind.
    Endpoints of ours set `REQUEST` alone, and reset it.

    `tasks`: those that answer a request; uvicorn waits for them when it stops.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.idle: list[Worker] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.context = contextvars.copy_context()

    def serve(self, exchange: Exchange, unanswered: Unanswered) -> None:
        """Begin to answer a request."""
        while self.idle:
            worker = self.idle.pop()
            if not worker.next.done():  # it was not cancelled while it was idle
                worker.request = (exchange, unanswered)
                worker.next.set_result(None)
                self.tasks.add(worker.task)
                return
        self.tasks.add(Worker(self, exchange, unanswered).task)


class Worker:
    """One task. `request`: the one that it answers. `next` ends when an idle one gets a request."""

    __slots__ = ("_workers", "next", "request", "task")

    def __init__(self, workers: Workers, exchange: Exchange, unanswered: Unanswered) -> None:
        self._workers = workers
        self.next: asyncio.Future[None]
        self.request: tuple[Exchange, Unanswered] | None = (exchange, unanswered)
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._run(loop), context=workers.context.copy())
        self.task.add_done_callback(self._ended, context=workers.context)  # a log line of it names its service

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        idle, tasks = self._workers.idle, self._workers.tasks
        while self.request is not None:
            exchange, unanswered = self.request
            found = exchange.found
            if found is None:
                await serve_asgi(self._workers.app, exchange)
                return
            await found.endpoint.serve(exchange, found.parameters)
            self.request = None
            if not exchange.answered:
                unanswered(exchange, self.task, None)
            if len(idle) >= MOST_IDLE or self.task.cancelling():
                return
            tasks.discard(self.task)
            del exchange, unanswered, found  # an idle task keeps no request and no connection in memory
            self.next = loop.create_future()
            idle.append(self)
            await self.next

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """The task has ended, perhaps in the middle of a request."""
        self._workers.tasks.discard(task)
        if self.request is not None:
            exchange, unanswered = self.request
            self.request = None
            unanswered(exchange, task, None if task.cancelled() else task.exception())
