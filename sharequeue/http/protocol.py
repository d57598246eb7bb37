"""HTTP/1.1 as a server speaks it, on one connection (RFC 9112). `sharequeue.http.edge` has what all connections share.

             first byte         head whole           body whole           first in the queue
    idle ─────────────▶ head ─────────────▶ body ─────────────▶ waiting ─────────────▶ served ──▶ answer ──▶ idle
     │                   │                   │                     │                      │          │
     75 s: closed        30 s: 408           < 1 KiB/s: 408        no clock: the client waits        75 s without a
     (30 s if it never   over 64 KiB: 431    after 10 s            as long as the answers            byte taken: reset
     sent a byte)                                                  before its own take

A request without a body skips that state. The first request of the queue is served from its whole head on, and reads its
body itself. The times and sizes are defaults of `HttpLimits`.

- Requests of one connection are answered one after another, in their order. When a few are queued, reading pauses.
- A request for an endpoint is served straight; every other one goes to the application by ASGI (see `App.straight`).
- Every limit is checked before the bytes are kept: a head by its size, a body by the exchange that reads it.
- An offer to upgrade is ignored (RFC 9110 7.8). The parser would drop the body of such a request, so it gets the head
  again without the offer.
- Trailers are dropped (RFC 9110 6.5.1): nothing behind a body counts as a header.
- A refused request that is not whole ends its connection. What still comes in is thrown away for a moment, because a
  closed socket would reset the connection and take the answer with it.
- While reading is paused, the socket is asked every half second whether the client has left. It cannot tell if the
  client sent more than the socket holds; then the request continues.
- A client that shut down its sending side gets the answers under way, but counts as gone: nothing is acquired for it.

uvicorn listens, accepts and shuts down; it gets this class by its option `http`.
"""

import asyncio
import contextlib
import logging
import select
import socket
import struct
import time
from collections import deque
from functools import partial
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.server import ServerState

from sharequeue.http.asgi_adapter import serve_asgi
from sharequeue.http.connection_exchange import ConnectionExchange, answer_head
from sharequeue.http.edge import Edge
from sharequeue.http.head import (
    check_head,
    head_too_large,
    line_too_long,
    too_many_headers,
    without_host,
    without_offer,
)
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, InvalidRequest, Throttled

log = logging.getLogger(__name__)

MOST_QUEUED: Final = 8
"""Reading pauses when more requests of a connection than this are unanswered."""
PIECE: Final = 16 * 1024
"""A read is parsed in pieces of this size, so that it yields few more than MOST_QUEUED requests."""
BUSY_S: Final = 0.002
"""After a read that takes longer to parse, the other connections have their turn."""
LINGER_S: Final = 3.0
"""For this long, the bytes behind a refused request are thrown away; then the connection is closed."""
HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Asks a socket whether its peer has shut down its sending side, even if bytes before that are unread. Linux has it."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, so that the client sees a failure and not an end."""


def protocol_of(edge: Edge) -> type[asyncio.Protocol]:
    """The class of a server's connections, for uvicorn's option `http`."""
    return type("HttpProtocol", (HttpProtocol,), {"edge": edge})


class _Refused(Exception):
    """Raised in a callback of the parser to stop it. `HttpProtocol._refusal` is the reason."""


class HttpProtocol(asyncio.Protocol):
    """One connection. `protocol_of` makes the class that uvicorn gets."""

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
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._queue: deque[ConnectionExchange] = deque()
        """Requests without an answer, in their order. The first one is served; the others wait."""
        self._incoming: ConnectionExchange | None = None
        """The request whose body is coming in."""
        self._in_head = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._codings: list[bytes] = []
        self._method = b""
        self._version = ""
        self._refusal: ApiError | None = None
        """Why a callback of the parser stopped it."""
        self._unparsed = b""
        """The rest of a read, not parsed yet because enough requests are queued."""
        self._read_size = 0
        """Bytes of the piece that the parser has now."""
        self._fed = 0
        """Bytes parsed since the last request was whole."""
        self._since = 0.0
        """When the clock of the head or body began, in seconds of the loop; 0: it does not run."""
        self._fed_then = 0
        """`_fed` at that moment."""
        self._receives = False
        """Whether `edge` counts a body of this connection among those on their way."""
        self.silent = True
        """Whether the client has sent no byte yet."""
        self._paused = False
        self._deaf = False
        """Whether bytes that come in are thrown away, because no further request will be served."""
        self._closes_at = 0.0
        """When the connection is closed although the client still sends behind a refused request; 0: never."""
        self._ended = False
        """Whether the client has shut down its sending side."""
        self._lost = False
        self.untaken: asyncio.Event | None = None
        """Exists while the client does not take what was sent; set when it has taken enough."""
        self._unsent = 0
        """Bytes that the client had not taken at the last measurement."""
        self._held = 0
        """Bytes of an answer that waits until the client has taken the one before."""
        self.taken_at = 0.0
        """When the client last took bytes, by the last measurement."""

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream, always
        self.transport = transport
        edge = self.edge
        if len(self._connections) >= edge.max_connections and not edge.make_room():
            missed = edge.full.allows(time.monotonic())
            if missed is not None:
                log.error(
                    "refused a connection: the limit of connections is reached",
                    extra=fields(connections=edge.max_connections, refused=missed + 1),
                )
            busy = Throttled(f"{edge.max_connections} connections are in use; try again in a moment", status=503)
            self._write_problem(busy)
            self._finish()
            return
        self._connections.add(self)
        edge.idle[self] = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._deaf = True
        self._connections.discard(self)
        self.edge.idle.pop(self, None)
        self.edge.watched.pop(self, None)
        for exchange in self._queue:
            exchange.leave()
        self._queue.clear()
        self._received()
        self.edge.send(self, 0, 0.0)
        self._parser = self._incoming = None  # both refer to this object; otherwise only the collector would free it
        if self.untaken is not None:
            self.untaken.set()

    def eof_received(self) -> bool:
        """The client sends no more. Returns: whether answers are still due."""
        self._deaf = self._ended = True
        for exchange in self._queue:
            exchange.leave()
        if self._queue:
            self._queue[-1].keep_alive = False
        return bool(self._queue)

    def drop(self) -> None:
        """Close the connection at once. An answer that the client has not taken yet is lost."""
        self._deaf = True
        self.edge.idle.pop(self, None)
        self.edge.watched.pop(self, None)
        self.edge.send(self, 0, 0.0)
        self.transport.abort()

    def shutdown(self) -> None:
        """uvicorn stops: answer the requests that have arrived, then close."""
        self._deaf = self._incoming is None
        self._unparsed = b""
        if self._queue:
            self._queue[-1].keep_alive = False
        else:
            self._finish()

    def address(self, name: str) -> tuple[str, int] | None:
        """`name`: peername or sockname."""
        address = self.transport.get_extra_info(name)
        return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None

    @property
    def begins(self) -> bool:
        """Whether this connection has a part of a head and nothing else."""
        return self._in_head and not self._queue

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        size = len(data)
        if size > PIECE:
            self._receive_large(data)
            return
        self._read_size = size
        self._fed += size
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if not self._go_on_without_offer(memoryview(data)[offer.args[0] :]):
                return
        except HttpParserError as fault:
            self._refuse_malformed(fault)
            return
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

    def _go_on_without_offer(self, rest: memoryview) -> bool:
        """Parse the head again without its offer to upgrade, then the rest. Returns: False: the request was refused."""
        while True:
            self._parser = HttpRequestParser(self)
            try:
                self._parser.feed_data(without_offer(self._method, self._url, self._version, self._headers))
                self._parser.feed_data(rest)
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            except HttpParserError as fault:
                self._refuse_malformed(fault)
                return False
            else:
                return True

    def _refuse_malformed(self, fault: HttpParserError) -> None:
        refusal, self._refusal = self._refusal, None
        self._refuse(refusal or InvalidRequest(f"this is not HTTP/1.1: {fault}", status=400))

    def _check_unfinished(self) -> None:
        """A read ended within a request: check the size of the incomplete part, and start its clock."""
        limits = self.edge.limits
        if not self._since:
            self.restart_clock()
        if self._in_head:
            if len(self._url) > limits.max_request_line_bytes:
                self._refuse(line_too_long(limits))
            elif self._fed > limits.max_head_bytes:
                self._refuse(head_too_large(limits))
            elif len(self._headers) > limits.max_headers:
                self._refuse(too_many_headers(limits))
            return
        assert self._incoming is not None
        self._receives = True
        self.edge.receive(self, self._incoming.kept)
        if self._deaf:
            return
        received = self._incoming.received
        if (
            self._fed - received > received // 4 + 2 * limits.max_head_bytes
        ):  # allows chunks of about 30 bytes on average
            detail = "the framing of the body, its chunks and trailers, is larger than the body"
            self._refuse(InvalidRequest(detail, status=400))

    def _received(self) -> None:
        """The body that was coming in is whole, or nobody waits for it any more."""
        if self._receives:
            self._receives = False
            self.edge.receive(self, 0)

    def give_way(self) -> None:
        """Refuse the body that is coming in, because others need its memory."""
        limit = self.edge.limits.max_receiving_bytes
        self._refuse(
            Throttled(
                f"bodies of {limit} bytes (max_receiving_bytes) are coming in from other clients; send the request again"
            )
        )

    def restart_clock(self) -> None:
        """Start the clock of a head or body."""
        self._since = self.loop.time()
        self._fed_then = self._fed
        self.edge.watched[self] = None

    def look(self, now: float) -> None:
        """Close this connection, or refuse its request, if its time is over. `now`: seconds of the loop's clock."""
        limits = self.edge.limits
        if self._takes_nothing(now):
            if now - self.taken_at > limits.idle_timeout_ms / 1000:
                self.transport.abort()
        elif self._closes_at:
            if now > self._closes_at:
                self.transport.abort()
        elif self._paused:
            self._look_for_end()
        elif self._in_head:
            if now - self._since > limits.head_timeout_ms / 1000:
                self._refuse(_too_slow(f"the head of the request was not complete after {limits.head_timeout_ms} ms"))
        elif self._incoming is not None:
            elapsed = now - self._since
            slow = self._fed - self._fed_then < limits.min_body_bytes_per_s * elapsed
            if slow and elapsed > limits.body_grace_ms / 1000 and not self._incoming.expects:
                self._refuse(_too_slow(f"the body arrived at less than {limits.min_body_bytes_per_s} bytes a second"))
        else:
            self.edge.watched.pop(self, None)

    def _look_for_end(self) -> None:
        """Reading is paused: if the client has hung up, tell it to the requests that are whole.

        The others may be whole in the socket. The end itself is read when reading goes on.
        """
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), HUNG_UP)
        if poll.poll(0):
            for exchange in self._queue:
                if exchange.whole:
                    exchange.leave()

    def _takes_nothing(self, now: float) -> bool:
        """Whether an answer waits for the client to take it."""
        return (self.untaken is not None or self._deaf) and self.measure_unsent(now) > 0

    def measure_unsent(self, now: float) -> int:
        """The bytes of answers that the client has not taken. `now`: seconds of the loop's clock."""
        unsent = self.transport.get_write_buffer_size() + self._held
        if unsent < self._unsent or not self._unsent:
            self.taken_at = now
        self._unsent = unsent
        return unsent

    def pause(self) -> None:
        """Stop reading for now. The client's clock does not run."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.edge.watched[self] = None
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._paused or self._lost:
            return
        self._paused = False
        if self._in_head or self._incoming is not None:
            self.restart_clock()
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # The parser's callbacks

    def on_message_begin(self) -> None:
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
        self._method = parser.get_method()
        version = self._version = parser.get_http_version()
        if parser.should_upgrade() and self._method != b"CONNECT":
            return  # the head is parsed again, without its offer
        try:
            received = max(self._fed, self._read_size)
            check_head(self.edge.limits, self._method, self._url, version, self._headers, self._codings, received)
            if not self._url.startswith(b"/"):
                self._url, self._headers = without_host(self._url, self._headers)
        except ApiError as error:
            raise self._refused(error) from None
        paths = self.edge.paths
        found = None if paths is None else paths.find(self._method, self._url)
        exchange = ConnectionExchange(self, self._method, self._url, version, self._headers, found)
        self._headers = []
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

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.add(body)

    def on_message_complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:  # otherwise the head is parsed again, without its offer to upgrade
            self._fed = 0
            self._since = 0.0
            if self._receives:
                self._received()
            incoming.end()

    # Answers

    def _serve(self, exchange: ConnectionExchange) -> None:
        found = exchange.found
        work = (
            serve_asgi(self.edge.app, exchange) if found is None else found.endpoint.serve(exchange, found.parameters)
        )
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._served, exchange))

    def _served(self, exchange: ConnectionExchange, task: "asyncio.Task[None]") -> None:
        """The work for a request has ended, with or without its answer."""
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            log.error("serving a request failed", exc_info=fault)
        if exchange.answered or self._lost:
            return
        if exchange.left:
            self._finish()
            return
        if fault is None and not task.cancelled():
            log.error("a request was served without an answer", extra=fields(path=exchange.path))
        self._reset()

    def on_answered(self, exchange: ConnectionExchange) -> None:
        """The answer to the first request of the queue is written."""
        if self._lost:
            return
        queue = self._queue
        queue.popleft()
        if self._incoming is exchange:
            self._incoming = None
            self._received()
        if not exchange.keep_alive:
            self._close(exchange.whole)
            return
        if queue:
            self._serve(queue[0])
        elif not self._in_head:
            self.edge.idle[self] = self.loop.time()
        if self._paused and self._incoming is None and len(queue) <= MOST_QUEUED:
            unparsed, self._unparsed = self._unparsed, b""
            if unparsed:
                self.data_received(unparsed)
            if not self._unparsed and len(queue) <= MOST_QUEUED:
                self.resume()

    def _refused(self, error: ApiError) -> Exception:
        self._refusal = error
        return _Refused(error.detail)

    def _refuse(self, error: ApiError) -> None:
        """Refuse what came in, whole or not, and end the connection.

        Requests before it that have no answer yet get theirs; then the connection ends without an answer to this one.
        """
        missed = self.edge.malformed.allows(time.monotonic())
        if missed is not None:
            log.info(
                "refused what a connection sent",
                extra=fields(peer=self.address("peername"), status=error.status, cause=error.detail, not_logged=missed),
            )
        self._deaf = True
        self._in_head = False
        self._received()
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
        """End the connection after an answer. `whole`: the client is not in the middle of a request."""
        if whole or self._ended or not self.transport.can_write_eof():
            self._finish()
            return
        self._deaf = True
        self.resume()
        self.transport.write_eof()
        self._closes_at = self.loop.time() + LINGER_S
        self.edge.watched[self] = None

    def _finish(self) -> None:
        """Close the connection when the client has taken what was written, or its time for that is over."""
        self._deaf = True
        self.edge.watched[self] = None
        self.transport.close()

    def _reset(self) -> None:
        """Reset the connection, so that the client cannot take a part of an answer for the whole."""
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    # Flow control of what is sent

    def pause_writing(self) -> None:
        if self.untaken is None:
            self.untaken = asyncio.Event()
            self._unsent = 0
            self.edge.watched[self] = None
            self._sends()

    def resume_writing(self) -> None:
        if self.untaken is not None:
            self.untaken.set()
            self.untaken = None
            self._unsent = 0
            self.edge.send(self, 0, 0.0)

    def _sends(self) -> None:
        """Tell the edge how much the client has not taken."""
        if self._lost:
            return
        now = self.loop.time()
        self.edge.send(self, self.measure_unsent(now), now)

    async def drain(self, held: int = 0) -> None:
        """Wait until the client has taken enough of what was sent, or has left. `held`: bytes to be written then."""
        if self.untaken is None:
            return
        untaken = self.untaken
        if held:
            self._held = held
            self._sends()
        await untaken.wait()
        self._held = 0


def _too_slow(detail: str) -> InvalidRequest:
    return InvalidRequest(f"{detail}; send it again on another connection", status=408)
