"""One connection of a server: opened, idle, paused, too slow, refused, closed. `protocol` reads its requests.

- Every limit is checked before the bytes are kept: a head by its size, a body by the exchange that reads it.
- A refused request that is not whole ends its connection. What still comes in is thrown away for a moment, because a
  closed socket would reset the connection and take the answer with it.
- While reading is paused, the socket is asked every half second whether the client has left. It cannot tell if the
  client sent more than the socket holds; then the request continues.
- A client that shut down its sending side gets the answers under way, but counts as gone: nothing is acquired for it.

`edge` has what all connections share. uvicorn listens, accepts and shuts down.
"""

import asyncio
import contextlib
import logging
import select
import socket
import struct
from collections import deque
from typing import Any, ClassVar, Final

from sharequeue_http.exchange import Exchange, answer_head, request_id_from
from sharequeue_http.forms.errors import ApiError, InvalidRequest, Throttled
from sharequeue_http.log import fields
from sharequeue_http.problems import problem_answer
from sharequeue_http.unsent import Unsent
from sharequeue_http.wire.edge import Edge

log = logging.getLogger(__name__)

MOST_QUEUED: Final = 8
"""Reading pauses when more requests of a connection than this are unanswered."""
LINGER_S: Final = 3.0
"""For this long, the bytes behind a refused request are thrown away; then the connection is closed."""
HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Asks a socket whether its peer has shut down its sending side, even if bytes before that are unread. Linux has it."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, so that the client sees a failure and not an end."""


class Connection(asyncio.Protocol):
    """One connection, without the parsing of its requests."""

    edge: ClassVar[Edge]

    def __init__(self, connections: set[Any], loop: asyncio.AbstractEventLoop) -> None:
        """`connections`: all of the server, as uvicorn counts them."""
        self._connections = connections
        self.loop = loop
        self.transport: asyncio.Transport
        self.unsent: Unsent
        self._queue: deque[Exchange] = deque()
        """Requests without an answer, in their order. The first one is served; the others wait."""
        self._in_head = False
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        """Of the head so far."""
        self._incoming: Exchange | None = None
        """The request whose body is coming in."""
        self._fed = 0
        """Bytes parsed since the last request was whole."""
        self._since = 0.0
        """When the clock of the head or body began, in seconds of the loop; 0: it does not run."""
        self._fed_then = 0
        """`_fed` at that moment."""
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream, always
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        edge = self.edge
        self.unsent = Unsent(transport, edge.send, self.loop, self.drop)
        if not edge.admits(len(self._connections)):
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
        self.edge.receive(self, 0)
        self._incoming = None
        self.unsent.release()

    def eof_received(self) -> bool:
        """The client sends no more. Returns: whether answers are still due. TLS has no half of a connection to keep."""
        self._deaf = self._ended = True
        for exchange in self._queue:
            exchange.leave()
        if self._queue:
            self._queue[-1].keep_alive = False
        return bool(self._queue) and self.transport.can_write_eof()

    def drop(self) -> None:
        """Close the connection at once. An answer that the client has not taken yet is lost."""
        self._deaf = True
        self.edge.idle.pop(self, None)
        self.edge.watched.pop(self, None)
        self.unsent.forget()
        self.transport.abort()

    def shutdown(self) -> None:
        """uvicorn stops: answer the requests that have arrived, then close."""
        self._deaf = self._incoming is None
        if self._queue:
            self._queue[-1].keep_alive = False
        else:
            self._finish()

    @property
    def begins(self) -> bool:
        """Return whether this connection has a part of a head and nothing else."""
        return self._in_head and not self._queue

    # Reading

    def give_way(self) -> None:
        """Refuse the body that is coming in, because others need its memory."""
        limit = self.edge.limits.max_receiving_bytes
        self._refuse(
            Throttled(
                f"bodies of {limit} bytes (max_receiving_bytes) are coming in from other clients; send the request again"
            )
        )

    def restart_clock(self) -> None:
        self._since = self.loop.time()
        self._fed_then = self._fed
        self.edge.watched[self] = None

    def look(self, now: float) -> None:
        """Close this connection, or refuse its request, if its time is over. `now`: seconds of the loop's clock."""
        unsent = self.unsent
        if (unsent.untaken is not None or self._deaf) and unsent.measure(now) > 0:
            if now - unsent.taken_at > self.edge.limits.idle_timeout_ms / 1000:
                self.transport.abort()
        elif self._closes_at:
            if now > self._closes_at:
                self.transport.abort()
        elif self._paused:
            self._look_for_end()
        elif self._in_head or self._incoming is not None:
            self._check_speed(now)
        else:
            self.edge.watched.pop(self, None)

    def _check_speed(self, now: float) -> None:
        """Refuse a head that takes too long, and a body that is too slow."""
        limits, incoming, elapsed = self.edge.limits, self._incoming, now - self._since
        detail = ""
        if incoming is None:
            if elapsed > limits.head_timeout_ms / 1000:
                detail = f"the head of the request was not complete after {limits.head_timeout_ms} ms"
        elif elapsed > limits.body_grace_ms / 1000 and not incoming.expects:
            slow = self._fed - self._fed_then < limits.min_body_bytes_per_s * elapsed
            detail = f"the body arrived at less than {limits.min_body_bytes_per_s} bytes a second" if slow else ""
        if detail:
            self._refuse(InvalidRequest(f"{detail}; send it again on another connection", status=408))

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

    def pause(self, *, watched: bool = True) -> None:
        """Stop reading for now. The client's clock does not run. `watched`: whether anybody looks if it has left."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            if watched:
                self.edge.watched[self] = None
            self.transport.pause_reading()

    def set_aside(self, exchange: Exchange) -> None:
        """Stop reading until a request is answered, of whose body nothing is kept. A look at each of thousands would
        cost more than their answers."""
        if self._incoming is exchange:
            self.edge.receive(self, 0)
        self.pause(watched=False)

    def resume(self) -> None:
        if not self._paused or self._lost:
            return
        self._paused = False
        if self._in_head or self._incoming is not None:
            self.restart_clock()
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # The ends of requests

    def on_unanswered(self, exchange: Exchange, task: "asyncio.Task[None]", fault: BaseException | None) -> None:
        """The work for a request has ended without its answer, or with a fault behind it."""
        if fault is not None:
            log.error("serving a request failed", exc_info=fault)
        if exchange.answered or self._lost:
            return
        if exchange.gone:
            self._finish()
            return
        if fault is None and not task.cancelled():
            log.error("a request was served without an answer", extra=fields(path=exchange.path))
        with contextlib.suppress(OSError):  # reset it, so that the client cannot take a part of an answer for the whole
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Refuse what came in, whole or not, and end the connection.

        Requests before it that have no answer yet get theirs; then the connection ends without an answer to this one.
        """
        self.edge.malformed.note(self.peer and self.peer[0], peer=self.peer, status=error.status, cause=error.detail)
        self._deaf = True
        self._in_head = False
        self.edge.receive(self, 0)
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
        if whole or self._ended:
            self._finish()
            return
        self._deaf = True
        self.resume()
        if self.transport.can_write_eof():  # not with TLS: there the answer says that the connection ends
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
