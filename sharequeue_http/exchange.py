"""One request of a connection and its answer: the body as it comes in, the answer as the client takes it.

`sharequeue_http.wire.protocol` makes an exchange for each head and calls it for each event. An endpoint reads and
answers it, or an ASGI application through `sharequeue_http.wire.asgi_adapter`.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from io import BytesIO
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from sharequeue_http.answer import JOINED_BYTES
from sharequeue_http.forms.errors import ApiError, TooLarge
from sharequeue_http.unsent import Unsent

Headers = Sequence[tuple[bytes, bytes]]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINES: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, b"")) for status in range(100, 600)}
WITHOUT_LENGTH: Final = frozenset({204, 304})
"""Statuses whose answers have neither content nor a Content-Length (RFC 9110 8.6)."""
READ_AHEAD_BYTES: Final = 64 * 1024
"""Reading pauses when more bytes of a body than this wait for a reader."""

_request_prefix: Final = f"{os.getpid():x}-{time.time_ns():x}"
_request_numbers: Final = itertools.count(1)


class ClientGone(Exception):
    """The client hung up before its request was read, or while its answer was being sent."""


class Connection(Protocol):
    """The part of a connection that an exchange uses."""

    transport: asyncio.Transport
    peer: tuple[str, int] | None
    """The address and port of the client."""
    unsent: Unsent

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def restart_clock(self) -> None: ...

    def set_aside(self, exchange: "Exchange") -> None: ...

    def on_answered(self, exchange: "Exchange") -> None: ...


class Server(Protocol):
    """Answers the requests of one call. See `sharequeue_http.application.endpoint.Endpoint`."""

    takes_body: bool

    async def serve(self, exchange: "Exchange", path: Mapping[str, str]) -> None: ...


class Found(NamedTuple):
    """The endpoint of a request, and the decoded path with its parameters."""

    endpoint: Server
    parameters: Mapping[str, str]
    path: str


def too_large(most: int) -> TooLarge:
    return TooLarge(f"the request is larger than {most} bytes; send less in one request", limit=most)


def request_id_from(given: bytes | None) -> str:
    """The given id of a request if it can be echoed in a header and is not a key, else a new one: unique over all
    processes."""
    if given and len(given) <= 128 and given.isascii() and given.decode().isprintable() and b"sq_" not in given:
        return given.decode()
    return f"{_request_prefix}-{next(_request_numbers):x}"


def split_path(path: str) -> tuple[list[str], str]:
    """The decoded segments of a path, and the decoded path. A slash within a segment stays encoded in the path."""
    segments = path.split("/")
    if "%" in path:
        segments = [unquote(segment) for segment in segments]
        path = "/".join(segment.replace("/", "%2F") for segment in segments)
    return segments, path


def answer_head(status: int, headers: Headers, length: int | None, *, close: bool) -> bytes:
    """The bytes of an answer before its body. `length`: None: there is no Content-Length."""
    lines = [STATUS_LINES[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    lines.append(b"connection: close\r\n" if close else b"")
    lines.append(b"x-content-type-options: nosniff\r\n\r\n")
    return b"".join(lines)


class Exchange:
    """One request of a connection, and its answer: whole (`answer`), or a stream (`start`, `write` as often as wanted,
    `finish`).

    `path`: decoded, but an encoded slash stays as it is. `headers`: names in lower case. `gone`: whether the client has
    hung up, or has shut down its sending side.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_fault",
        "_most",
        "_on_gone",
        "_wanted",
        "_without_content",
        "answered",
        "connection",
        "expects",
        "found",
        "gone",
        "headers",
        "keep_alive",
        "kept",
        "method",
        "news",
        "path",
        "query",
        "received",
        "target",
        "version",
        "whole",
    )

    def __init__(
        self,
        connection: Connection,
        method: bytes,
        target: bytes,
        query: bytes,
        version: str,
        headers: Headers,
        found: Found | None,
    ) -> None:
        """`target`: the path as it was sent. `found`: the endpoint; None: the application answers, by ASGI."""
        self.connection = connection
        self.method = method
        self.target = target
        self.query = query
        self.version = version
        self.headers = headers
        self.found = found
        self.path = split_path(target.decode())[1] if found is None else found.path
        self.keep_alive = True
        self.expects = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.whole = False
        self.received = 0
        """Bytes of the body so far."""
        self.gone = False
        self.answered = False
        self._body: bytes | BytesIO = b""
        """One piece as it came in; several in a BytesIO, whose value is no copy of them."""
        self.kept = 0
        """Bytes of the body in memory."""
        self._wanted = False
        self._most = 0
        self._fault: ApiError | None = None
        self.news: asyncio.Event | None = None
        """Set when the reader of the body has to look; exists once it has waited."""
        self._on_gone: Callable[[], None] | None = None
        self._chunked = False
        self._without_content = False

    @property
    def client(self) -> tuple[str, int] | None:
        return self.connection.peer

    # The request

    def add(self, part: bytes) -> None:
        self.received += len(part)
        if self.found is None or not self.found.endpoint.takes_body:
            return
        if not self.kept:
            self._body = part
        else:
            if isinstance(self._body, bytes):
                first, self._body = self._body, BytesIO()
                self._body.write(first)
            self._body.write(part)
        self.kept += len(part)
        if self.news is not None and self.kept > self._most:
            self.news.set()
        if self.kept > READ_AHEAD_BYTES and not self._wanted:
            self.connection.pause()

    def fail(self, fault: ApiError) -> None:
        """The rest of the request is malformed or too slow and will not be read."""
        self._fault = fault
        self._body, self.kept = b"", 0
        self.keep_alive = False
        self._tell()

    def set_aside(self) -> None:
        """Keep no headers and nothing of the body, and read no more until the answer, which waits."""
        self.headers = ()
        self._body, self.kept = b"", 0
        self.connection.set_aside(self)

    def leave(self) -> None:
        self.gone = True
        self._tell()
        if self._on_gone is not None:
            self._on_gone()

    def _tell(self) -> None:
        if self.news is not None:
            self.news.set()

    async def _more(self, most: int) -> None:
        """Read on until the body is whole or has more than `most` bytes. Raises: ClientGone; ApiError."""
        connection = self.connection
        if self.expects and self._fault is None and not connection.transport.is_closing():
            self.expects = False
            if not self.kept:
                connection.transport.write(CONTINUE)
            connection.restart_clock()
        self._wanted = True
        self._most = most
        connection.resume()
        try:
            while not self.whole and self.kept <= most:
                if self._fault is not None:
                    raise self._fault
                if self.gone:
                    raise ClientGone
                self.news = self.news or asyncio.Event()
                self.news.clear()
                await self.news.wait()
        finally:
            self._wanted = False

    async def read(self, most: int) -> bytes:
        """The request's body. Raises: TooLarge: it has more than `most` bytes; ApiError (400, 408): it is malformed or
        too slow; ClientGone."""
        if not self.whole:
            await self._more(most)
        if self.kept > most:
            raise too_large(most)
        body, self._body = self._body, b""
        return body if isinstance(body, bytes) else body.getvalue()

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once the client has hung up, at once if it has; None: call nothing any more."""
        self._on_gone = callback
        if self.gone and callback is not None:
            callback()

    # The answer

    async def answer(
        self, status: int, headers: Headers, body: bytes | bytearray, more: Sequence[bytes | memoryview] = ()
    ) -> None:
        """Send the whole answer, or nothing if the client is gone.

        `headers`: all but Content-Length. `more`: parts of the body that follow; their items are bytes.
        """
        connection = self.connection
        length = len(body) + sum(map(len, more)) if more else len(body)
        if connection.unsent.untaken is not None:
            await connection.unsent.drain(length)
        transport = connection.transport
        if transport.is_closing():
            return
        self.expects = False
        self.keep_alive &= self.whole  # a connection in the middle of a request ends with its answer
        bare = status in WITHOUT_LENGTH
        head = answer_head(status, headers, None if bare else length, close=not self.keep_alive)
        if bare or not length or self.method == b"HEAD":
            transport.write(head)
        elif more:
            transport.writelines((head, body, *more))
        elif length <= JOINED_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._body = b""
        connection.on_answered(self)

    async def start(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length is not known yet. Raises: ClientGone.

        A client of HTTP/1.0 sees the end of the answer by the end of the connection.
        """
        self.expects = False
        self.keep_alive &= self.whole
        chunked = self.version == "1.1" and status not in WITHOUT_LENGTH
        framing = ((b"transfer-encoding", b"chunked"),) if chunked else ()
        self._without_content = status in WITHOUT_LENGTH or self.method == b"HEAD"
        self._chunked = chunked and not self._without_content
        await self._send(answer_head(status, (*headers, *framing), None, close=not self.keep_alive))

    async def write(self, part: bytes) -> None:
        """Send a part of the answer. Returns when the connection can take another one. Raises: ClientGone."""
        if not part or self._without_content:
            return
        await self._send(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    def write_at_once(self, part: bytes) -> None:
        """Send a part of the answer if the connection can take it now; else drop it. Not while `write` is under way."""
        connection = self.connection
        if (
            self.answered
            or self._without_content
            or connection.unsent.untaken is not None
            or connection.transport.is_closing()
        ):
            return
        connection.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    async def finish(self) -> None:
        if self._chunked and not self.connection.transport.is_closing():
            self.connection.transport.write(LAST_CHUNK)
        self._body = b""
        self.connection.on_answered(self)

    async def _send(self, data: bytes) -> None:
        connection = self.connection
        if not connection.transport.is_closing():
            connection.transport.write(data)
            if connection.unsent.untaken is not None:
                await connection.unsent.drain()
        if connection.transport.is_closing():
            raise ClientGone
