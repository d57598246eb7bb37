"""One request of a connection and its answer: the body as it comes in, the answer as the client takes it.

`sharequeue.http.wire.protocol` makes one for each head and calls it for each event. An endpoint uses it as an
`sharequeue.http.exchange.Exchange`, an ASGI application as an `AsgiRequest`.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final, Protocol

from sharequeue.http.application.paths import Found, split_path
from sharequeue.http.exchange import JOINED_BYTES, WITHOUT_LENGTH, ClientGone, Headers, too_large
from sharequeue.http.wire.unsent import Unsent
from sharequeue.protocol.errors import ApiError

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINES: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, b"")) for status in range(100, 600)}
READ_AHEAD_BYTES: Final = 64 * 1024
"""Reading pauses when more bytes of a body than this wait for a reader."""


class Connection(Protocol):
    """The part of a connection that an exchange uses."""

    transport: asyncio.Transport
    unsent: Unsent

    def address(self, name: str) -> tuple[str, int] | None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def restart_clock(self) -> None: ...

    def on_answered(self, exchange: "ConnectionExchange") -> None: ...


def answer_head(status: int, headers: Headers, length: int | None, *, close: bool) -> bytes:
    """The bytes of an answer before its body. `length`: None: there is no Content-Length."""
    lines = [STATUS_LINES[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    lines.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(lines)


class ConnectionExchange:
    """One request of a connection, and its answer. See `sharequeue.http.exchange.Exchange`."""

    __slots__ = (
        "_body",
        "_chunked",
        "_connection",
        "_fault",
        "_most",
        "_news",
        "_on_gone",
        "_size",
        "_wanted",
        "_without_content",
        "answered",
        "expects",
        "found",
        "headers",
        "keep_alive",
        "left",
        "method",
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
        version: str,
        headers: Headers,
        found: Found | None,
    ) -> None:
        """`target`: path and query as they were sent. `found`: the endpoint; None: the application answers, by ASGI."""
        self._connection = connection
        self.method = method
        self.version = version
        self.headers = headers
        self.found = found
        if found is not None:
            self.path = found.path
            self.query = found.query
            self.target = target
        else:
            self.target, _, self.query = target.partition(b"?")
            _, self.path = split_path(self.target.decode())
        self.keep_alive = True
        self.expects = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.whole = False
        self.received = 0
        """Bytes of the body so far."""
        self.left = False
        """Whether the client has hung up, or has shut down its sending side."""
        self.answered = False
        self._body: bytes | BytesIO = b""
        """One piece as it came in; several in a BytesIO, whose value is no copy of them."""
        self._size = 0
        self._wanted = False
        self._most = 0
        self._fault: ApiError | None = None
        self._news: asyncio.Event | None = None
        """Set at each event of this request; exists once something waits for one."""
        self._on_gone: Callable[[], None] | None = None
        self._chunked = False
        self._without_content = False

    @property
    def kept(self) -> int:
        """Bytes of the body in memory."""
        return self._size

    @property
    def client(self) -> tuple[str, int] | None:
        return self._connection.address("peername")

    @property
    def server(self) -> tuple[str, int] | None:
        return self._connection.address("sockname")

    @property
    def tls(self) -> Any:
        """The connection's `ssl.SSLObject`, None without TLS."""
        return self._connection.transport.get_extra_info("ssl_object")

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    # The request

    def add(self, part: bytes) -> None:
        """A part of the body has come in."""
        self.received += len(part)
        if self.found is not None and not self.found.endpoint.takes_body:
            return
        if not self._size:
            self._body = part
        else:
            if isinstance(self._body, bytes):
                first, self._body = self._body, BytesIO()
                self._body.write(first)
            self._body.write(part)
        self._size += len(part)
        if self._news is not None and self._size > self._most:
            self._news.set()
        if self._size > READ_AHEAD_BYTES and not self._wanted:
            self._connection.pause()

    def end(self) -> None:
        """The request is whole."""
        self.whole = True
        if self._news is not None:
            self._news.set()

    def fail(self, fault: ApiError) -> None:
        """The rest of the request is malformed or too slow and will not be read."""
        self._fault = fault
        self._body, self._size = b"", 0
        self.keep_alive = False
        self._tell()

    def leave(self) -> None:
        """The client is gone."""
        self.left = True
        self._tell()
        if self._on_gone is not None:
            self._on_gone()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()

    async def _hear(self) -> None:
        """Wait for the next event of this request."""
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        await self._news.wait()

    async def _more(self, most: int) -> None:
        """Read on until the body is whole or has more than `most` bytes. Raises: ClientGone; ApiError."""
        connection = self._connection
        if self.expects and self._fault is None and not connection.transport.is_closing():
            self.expects = False
            if not self._size:
                connection.transport.write(CONTINUE)
            connection.restart_clock()
        self._wanted = True
        self._most = most
        connection.resume()
        try:
            while not self.whole and self._size <= most:
                if self._fault is not None:
                    raise self._fault
                if self.left:
                    raise ClientGone
                await self._hear()
        finally:
            self._wanted = False

    async def read(self, most: int) -> bytes:
        if not self.whole:
            await self._more(most)
        if self._size > most:
            raise too_large(most)
        body, self._body = self._body, b""
        return body if isinstance(body, bytes) else body.getvalue()

    async def receive(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether more follows. Raises: ClientGone; ApiError."""
        if not self.whole and not self._size:
            await self._more(0)
        body, self._body, self._size = self._body, b"", 0
        return body if isinstance(body, bytes) else body.getvalue(), not self.whole

    async def until_gone(self) -> None:
        while not self.left and not self.answered:
            await self._hear()

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        self._on_gone = callback
        if self.left and callback is not None:
            callback()

    def gone(self) -> bool:
        return self.left

    # The answer

    async def answer(
        self, status: int, headers: Headers, body: bytes | bytearray, more: Sequence[bytes | memoryview] = ()
    ) -> None:
        connection = self._connection
        length = len(body) + sum(map(len, more)) if more else len(body)
        if connection.unsent.untaken is not None:
            await connection.unsent.drain(length)
        transport = connection.transport
        if transport.is_closing():
            return
        self.expects = False
        bare = status in WITHOUT_LENGTH
        head = answer_head(status, headers, None if bare else length, close=self._closes())
        if bare or not length or self.method == b"HEAD":
            transport.write(head)
        elif more:
            transport.writelines((head, body, *more))
        elif length <= JOINED_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._answered()

    async def start(self, status: int, headers: Headers) -> None:
        """See Exchange. A client of HTTP/1.0 sees the end of the answer by the end of the connection."""
        self.expects = False
        chunked = self.version == "1.1" and status not in WITHOUT_LENGTH
        framing = ((b"transfer-encoding", b"chunked"),) if chunked else ()
        self._without_content = status in WITHOUT_LENGTH or self.method == b"HEAD"
        self._chunked = chunked and not self._without_content
        await self._send(answer_head(status, (*headers, *framing), None, close=self._closes()))

    async def write(self, part: bytes) -> None:
        if not part or self._without_content:
            return
        await self._send(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    def write_at_once(self, part: bytes) -> None:
        connection = self._connection
        if (
            self.answered
            or self._without_content
            or connection.unsent.untaken is not None
            or connection.transport.is_closing()
        ):
            return
        connection.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    async def finish(self) -> None:
        if self._chunked and not self._connection.transport.is_closing():
            self._connection.transport.write(LAST_CHUNK)
        self._answered()

    async def _send(self, data: bytes) -> None:
        connection = self._connection
        if not connection.transport.is_closing():
            connection.transport.write(data)
            if connection.unsent.untaken is not None:
                await connection.unsent.drain()
        if connection.transport.is_closing():
            raise ClientGone

    def _closes(self) -> bool:
        """Whether the connection ends with this answer: the client asked for that, or the request is not whole."""
        if not self.whole:
            self.keep_alive = False
        return not self.keep_alive

    def _answered(self) -> None:
        self.answered = True
        self._body = b""
        if self._news is not None:
            self._news.set()
        self._connection.on_answered(self)
