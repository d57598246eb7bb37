"""HTTP/1.1 as a server speaks it, on one connection (RFC 9112). `edge` has what all connections share.

             first byte         head whole           body whole           first in the queue
    idle ─────────────▶ head ─────────────▶ body ─────────────▶ waiting ─────────────▶ served ──▶ answer ──▶ idle
     │                   │                   │                     │                      │          │
     75 s: closed        30 s: 408           < 1 KiB/s: 408        no clock: the client waits        75 s without a
     (30 s if it never   over 64 KiB: 431    after 10 s            as long as the answers            byte taken: reset
     sent a byte)                                                  before its own take

A request without a body skips that state. The first request of the queue is served from its whole head on, and reads
its body itself. The times and sizes are defaults of `HttpLimits`.

- Requests of one connection are answered one after another, in their order. When a few are queued, reading pauses.
- A request for an endpoint is served straight; every other one goes to the application by ASGI (see `App.straight`).
- Every limit is checked before the bytes are kept: a head by its size, a body by the exchange that reads it.
- A refused request that is not whole ends its connection. What still comes in is thrown away for a moment, because a
  closed socket would reset the connection and take the answer with it.
- While reading is paused, the socket is asked every half second whether the client has left. It cannot tell if the
  client sent more than the socket holds; then the request continues.
- A client that shut down its sending side gets the answers under way, but counts as gone: nothing is acquired for it.

`request_parser` has the bytes that come in: heads, bodies, offers to upgrade. `unsent` has those that the client has
still to take. uvicorn listens, accepts and shuts down; it gets this class by its option `http`.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Any, ClassVar, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from sharequeue.http.exchange import Headers
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.http.wire.connection_exchange import ConnectionExchange, answer_head
from sharequeue.http.wire.edge import Edge
from sharequeue.http.wire.request_parser import RequestParser
from sharequeue.http.wire.sockets import has_hung_up, reset
from sharequeue.http.wire.unsent import Unsent
from sharequeue.http.wire.workers import Workers
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, Throttled

log = logging.getLogger(__name__)

MOST_QUEUED: Final = 8
"""Reading pauses when more requests of a connection than this are unanswered."""
PIECE: Final = 16 * 1024
"""A read is parsed in pieces of this size, so that it yields few more than MOST_QUEUED requests."""
BUSY_S: Final = 0.002
"""After a read that takes longer to parse, the other connections have their turn."""
LINGER_S: Final = 3.0
"""For this long, the bytes behind a refused request are thrown away; then the connection is closed."""


def protocol_of(edge: Edge) -> type[asyncio.Protocol]:
    """The class of a server's connections, for uvicorn's option `http`."""
    return type("HttpProtocol", (HttpProtocol,), {"edge": edge, "workers": Workers(edge.app)})


class HttpProtocol(asyncio.Protocol):
    """One connection. `protocol_of` makes the class that uvicorn gets."""

    edge: ClassVar[Edge]
    workers: ClassVar[Workers]

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
        self._requests = RequestParser(self, self.edge.limits)
        self._queue: deque[ConnectionExchange] = deque()
        """Requests without an answer, in their order. The first one is served; the others wait."""
        self._unparsed = b""
        """The rest of a read, not parsed yet because enough requests are queued."""
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
        self.unsent: Unsent

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream, always
        self.transport = transport
        edge = self.edge
        self.unsent = Unsent(transport, edge, self.loop, self.drop)
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
        self.unsent.release()
        self._requests.release()

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
        self.unsent.forget()
        self.transport.abort()

    def shutdown(self) -> None:
        """uvicorn stops: answer the requests that have arrived, then close."""
        self._deaf = self._requests.incoming is None
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
        return self._requests.in_head and not self._queue

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if len(data) > PIECE:
            self._receive_large(data)
            return
        requests = self._requests
        refusal = requests.feed(data)
        if refusal is not None:
            self._refuse(refusal)
        elif requests.in_head or requests.incoming is not None:
            self._check_unfinished()

    def _receive_large(self, data: bytes) -> None:
        """Parse a read in pieces, until enough requests are queued."""
        began = time.perf_counter()
        for start in range(0, len(data), PIECE):
            self.data_received(data[start : start + PIECE])
            if self._deaf:
                return
            if len(self._queue) > MOST_QUEUED and self._requests.incoming is None:
                self._unparsed = data[start + PIECE :]
                return
        if time.perf_counter() - began > BUSY_S and not self._paused:
            self.transport.pause_reading()  # otherwise the loop would read on while there is data
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _check_unfinished(self) -> None:
        """A read ended within a request: check the size of the incomplete part, and start its clock."""
        requests = self._requests
        if not requests.clock_runs:
            self.restart_clock()
        if requests.incoming is not None:
            self._receives = True
            self.edge.receive(self, requests.incoming.kept)
            if self._deaf:
                return
        refusal = requests.oversized()
        if refusal is not None:
            self._refuse(refusal)

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
        self._requests.restart_clock(self.loop.time())
        self.edge.watched[self] = None

    def look(self, now: float) -> None:
        """Close this connection, or refuse its request, if its time is over. `now`: seconds of the loop's clock."""
        requests, unsent = self._requests, self.unsent
        if (unsent.untaken is not None or self._deaf) and unsent.measure(now) > 0:
            if now - unsent.taken_at > self.edge.limits.idle_timeout_ms / 1000:
                self.transport.abort()
        elif self._closes_at:
            if now > self._closes_at:
                self.transport.abort()
        elif self._paused:
            self._look_for_end()
        elif requests.in_head or requests.incoming is not None:
            refusal = requests.too_slow(now)
            if refusal is not None:
                self._refuse(refusal)
        else:
            self.edge.watched.pop(self, None)

    def _look_for_end(self) -> None:
        """Reading is paused: if the client has hung up, tell it to the requests that are whole.

        The others may be whole in the socket. The end itself is read when reading goes on.
        """
        if has_hung_up(self.transport):
            for exchange in self._queue:
                if exchange.whole:
                    exchange.leave()

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
        if self._requests.in_head or self._requests.incoming is not None:
            self.restart_clock()
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # Requests

    def on_request_begins(self) -> None:
        self.silent = False
        self.edge.idle.pop(self, None)

    def on_request(
        self, method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool, expects: bool
    ) -> ConnectionExchange:
        """Queue a request, and serve it if it is the first one."""
        paths = self.edge.paths
        found = None if paths is None else paths.find(method, target)
        exchange = ConnectionExchange(self, method, target, version, headers, found)
        exchange.keep_alive = keep_alive
        exchange.expects = expects
        queue = self._queue
        queue.append(exchange)
        if len(queue) == 1:
            self._serve(exchange)
        elif len(queue) > MOST_QUEUED:
            self.pause()
        return exchange

    def on_request_whole(self, exchange: ConnectionExchange) -> None:
        if self._receives:
            self._received()
        exchange.end()

    # Answers

    def _serve(self, exchange: ConnectionExchange) -> None:
        self._tasks.add(self.workers.serve(exchange, self._served))

    def _served(self, exchange: ConnectionExchange, task: "asyncio.Task[None]", fault: BaseException | None) -> None:
        """The work for a request has ended, with or without its answer."""
        self._tasks.discard(task)
        if fault is not None:
            log.error("serving a request failed", exc_info=fault)
        if exchange.answered or self._lost:
            return
        if exchange.left:
            self._finish()
            return
        if fault is None and not task.cancelled():
            log.error("a request was served without an answer", extra=fields(path=exchange.path))
        reset(self.transport)

    def on_answered(self, exchange: ConnectionExchange) -> None:
        """The answer to the first request of the queue is written."""
        if self._lost:
            return
        queue = self._queue
        queue.popleft()
        requests = self._requests
        if requests.incoming is exchange:
            requests.incoming = None
            self._received()
        if not exchange.keep_alive:
            self._close(exchange.whole)
            return
        if queue:
            self._serve(queue[0])
        elif not requests.in_head:
            self.edge.idle[self] = self.loop.time()
        if self._paused and requests.incoming is None and len(queue) <= MOST_QUEUED:
            unparsed, self._unparsed = self._unparsed, b""
            if unparsed:
                self.data_received(unparsed)
            if not self._unparsed and len(queue) <= MOST_QUEUED:
                self.resume()

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
        self._requests.in_head = False
        self._received()
        if self._requests.incoming is not None:
            self._requests.incoming.fail(error)
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

    # Flow control of what is sent

    def pause_writing(self) -> None:
        self.edge.watched[self] = None
        self.unsent.pause()

    def resume_writing(self) -> None:
        self.unsent.resume()
