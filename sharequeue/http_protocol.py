"""HTTP as uvicorn speaks it, but our endpoints are handed requests, and give back answers, whole.

ASGI parts an exchange into messages, which cost more than all else that serving does; whatever is not for our endpoints
takes that way.
"""

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sharequeue.exchange import ClientGone, Headers, too_large
from sharequeue.protocol.errors import InvalidRequest
from sharequeue.serving import App, Found, problem_answer, request_id_from

log = logging.getLogger(__name__)

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def _head(status: int, headers: Headers, length: int, *, close: bool) -> bytes:
    """An answer up to its body."""
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"content-length: %d\r\n%b\r\n" % (length, b"connection: close\r\n" if close else b""))
    return b"".join(lines)


class _Exchange:
    """One exchange on a connection of uvicorn's, which fills the public attributes in as it hears of them."""

    def __init__(self, protocol: "HttpProtocol", found: Found, *, keep_alive: bool) -> None:
        self.found = found
        self.path = found.path
        self.query = found.query
        self.headers: Headers = protocol.headers
        self.client = protocol.client
        self.body = bytearray()
        self.more_body = True
        self.message_event = asyncio.Event()
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = keep_alive
        self._protocol = protocol
        self._continue = protocol.expect_100_continue

    async def read(self, most: int) -> bytes:
        if self._continue and not self.disconnected:
            self._protocol.transport.write(CONTINUE)
        while self.more_body and not self.disconnected and len(self.body) <= most:
            await self._hear()
        if self.disconnected:
            raise ClientGone
        body, self.body = self.body, bytearray()  # or it is kept until the connection's next request
        if len(body) > most:
            raise too_large(most)
        return bytes(body)

    async def until_gone(self) -> None:
        while not self.disconnected and not self.response_complete:
            await self._hear()

    def gone(self) -> bool:
        return self.disconnected

    async def _hear(self) -> None:
        self._protocol.flow.resume_reading()
        self.message_event.clear()
        await self.message_event.wait()

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        protocol = self._protocol
        if protocol.flow.write_paused and not self.disconnected:
            await protocol.flow.drain()
        if self.disconnected:
            return
        protocol.transport.writelines((_head(status, headers, len(body), close=not self.keep_alive), body))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with two differences: our endpoints are served without ASGI, and bytes that are not HTTP get a
    problem document."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paths = self.app.paths if isinstance(self.app, App) else None
        self._serving: _Exchange | None = None

    def on_headers_complete(self) -> None:
        found = None if self._paths is None else self._paths.find(self.parser.get_method(), self.url)
        if found is None:
            super().on_headers_complete()
            return
        before: Any = self.cycle
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        exchange: Any = _Exchange(self, found, keep_alive=keep_alive)
        self.cycle = exchange
        if before is None or before.response_complete:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if not isinstance(cycle, _Exchange):
            super()._start_asgi_task(cycle, app)
            return
        self._serving = cycle
        task = self.loop.create_task(cycle.found.endpoint.serve(cycle, cycle.found.parameters))
        self.tasks.add(task)
        task.add_done_callback(self._served)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)  # which tells the request that came last
        if self._serving is not None and not self._serving.response_complete:
            self._serving.disconnected = True
            self._serving.message_event.set()

    def _served(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            log.error("an exchange ended without an answer", exc_info=None if task.cancelled() else task.exception())
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False  # what follows a whole request is no answer to it
            return
        request_id = request_id_from(None)
        answer = problem_answer(InvalidRequest(f"{msg} A header or the framing of the body is malformed."), request_id)
        headers = (*answer.headers, (b"x-request-id", request_id.encode()))
        self.transport.write(_head(400, headers, len(answer.body), close=True) + answer.body)
        self.transport.close()
