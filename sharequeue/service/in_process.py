"""Answers the calls between services of one process without a connection.

    Client.relay ──bytes──▶ InProcess ──▶ a worker of the other service: Endpoint.serve ──▶ handler
         ◀────────────────── status, headers, bytes ◀──────────────────────────────────────────┘

The endpoint takes the request as it takes one of a connection: it checks the token, decodes the body, and makes a
problem document of an error. Bytes go to and fro, so no object of one service is in the hands of another. The handler
runs in a task of the called service: a caller that stops waiting does not cancel it, but counts as gone.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sharequeue_http.application.app import App
from sharequeue_http.application.paths import LONGEST_KNOWN
from sharequeue_http.calling.connections import ConnectionLost, Connections, HttpAnswer
from sharequeue_http.exchange import Exchange, Headers
from sharequeue_http.wire.protocol import Workers

log = logging.getLogger(__name__)


class InProcess(Connections):
    """The way to a service of this process. A request that no endpoint of it answers takes a connection."""

    def __init__(self, url: str, app: App, tasks: set["asyncio.Task[None]"]) -> None:
        """`tasks`: those of the service's server, which waits for them when it stops."""
        super().__init__(url, 1)
        self._paths = app.paths
        self._workers = Workers(app)
        self._workers.tasks = tasks

    def end(self) -> None:
        """End the tasks that wait for a request: the service has stopped."""
        for worker in self._workers.idle:
            worker.task.cancel()

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, deadline: float
    ) -> HttpAnswer:
        path, _, query = target.encode().partition(b"?")
        found = (self._paths.known if len(path) <= LONGEST_KNOWN else self._paths.find)(method.encode(), path)
        if found is None:
            return await super().request(method, target, headers, body, deadline)
        sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        sent.append((b"host", self._host_header.encode()))
        if body is not None or method != "GET":
            sent.append((b"content-length", b"%d" % len(body or b"")))
        exchange = _Exchange(body or b"", method.encode(), path, query, "1.1", sent, found)
        timer = asyncio.get_running_loop().call_later(max(deadline - time.monotonic(), 0), exchange.end, TimeoutError())
        self._workers.serve(exchange, lambda _, __, fault: exchange.unanswered(fault))
        try:
            return await exchange.answered_with
        finally:
            timer.cancel()
            if not exchange.answered:
                exchange.leave()


class _Exchange(Exchange):
    """A request of no connection, whole from the start. Its answer ends a future. No service calls a stream."""

    __slots__ = ("answered_with",)

    def __init__(self, body: bytes, *request: Any) -> None:
        """`request`: as of an Exchange."""
        super().__init__(None, *request)  # type: ignore[arg-type]
        self.whole = True
        self._body = body
        self.kept = self.received = len(body)
        self.answered_with: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()

    async def answer(
        self, status: int, headers: Headers, body: bytes | bytearray, more: Sequence[bytes | memoryview] = ()
    ) -> None:
        self.answered = True
        if not self.answered_with.done():
            named = {name.decode(): value.decode("latin-1") for name, value in headers}
            self.answered_with.set_result(HttpAnswer(status, named, b"".join((body, *more))))

    def set_aside(self) -> None:
        """Do nothing: there is no connection to read."""

    def end(self, fault: Exception) -> None:
        """End without an answer."""
        if not self.answered_with.done():
            self.answered_with.set_exception(fault)

    def unanswered(self, fault: BaseException | None) -> None:
        """The work for this request has ended without its answer, or with a fault behind it."""
        if fault is not None:
            log.error("serving a request failed", exc_info=fault)
        self.end(ConnectionLost("it ended the request without an answer"))
