"""The calling end of HTTP/1.1: connections stay open, and each has one request at a time, sent with one write.

httptools parses answers, as in uvicorn. There are no redirects, cookies, proxies or compression: no service uses them.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import httptools

from sharequeue_http.answer import JOINED_BYTES
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

IDLE_S: Final = 30.0
"""A connection that was idle for longer is not used again. Services and proxies close theirs later."""


TRUSTED: Final[ContextVar[str | None]] = ContextVar("TRUSTED", default=None)
"""The file of authorities, as in `trust`, of connections that name none. A service sets its own."""
NO_USER: Final = "a URL of a service must not hold a user name or a password before `@`: give a token beside the URL"


class Reread:
    """A TLS context made of PEM files, made again when one of them has changed. If the changed files cannot be used,
    the log says so and the context before stays. Connections that are open keep theirs."""

    def __init__(self, read: Callable[[], ssl.SSLContext], *files: str) -> None:
        """`read`: makes a context of the files. Raises: ValueError, in one sentence: they cannot be used."""
        self._read = read
        self._files = files
        self._seen = self._stamps()
        self._context = read()

    def now(self) -> ssl.SSLContext:
        """The context of the next connection."""
        if (stamps := self._stamps()) != self._seen:
            self._seen = stamps
            try:
                self._context = self._read()
                log.info("took changed certificates", extra=fields(files=self._files))
            except ValueError as fault:
                log.error(
                    "changed certificates are not used, and those before them stay", extra=fields(cause=str(fault))
                )
        return self._context

    def _stamps(self) -> list[tuple[int, int, int]] | None:
        """The time of change, inode and size of each file; None: one is missing."""
        try:
            found = [Path(file).stat() for file in self._files]
        except OSError:
            return None
        return [(file.st_mtime_ns, file.st_ino, file.st_size) for file in found]


@cache
def _authorities(ca: str | None) -> Reread:
    def read() -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=ca)
        except OSError as fault:  # ssl.SSLError is one
            raise ValueError(f"{ca} has no certificates of authorities in PEM: {fault}") from None

    return Reread(read, *filter(None, [ca]))


def trust(ca: str | None) -> ssl.SSLContext:
    """Return what decides whom a URL of https is trusted to be: the certificates in a file of PEM, or those of the
    system. Raises: ValueError: no such file, or no certificate in it."""
    return _authorities(ca).now()


class CannotConnect(Exception):
    """The request was not sent."""


class ConnectionLost(Exception):
    """The request was sent, at least in part; its outcome is unknown."""


class HttpAnswer(NamedTuple):
    """`headers`: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def service_url(url: str) -> SplitResult:
    """The parts of the URL of a service.

    Raises: ValueError: not a URL of http or https, or one with a user name or a password; these are not repeated.
    """
    if "@" in url:
        raise ValueError(NO_USER)
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:  # not a number, or too high a one
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{url!r} is not a URL of the form http://host:port")
    return parts


def _cause(fault: OSError) -> str:
    """Return why there is no connection; if TLS is the cause, also what to do."""
    said = {"WRONG_VERSION_NUMBER": "it does not speak https: its URL begins with http://"}
    said["CERTIFICATE_VERIFY_FAILED"] = f"{fault}; the file of its authority is given as ca, SHAREQUEUE_CA or CA_FILE"
    return said.get(getattr(fault, "reason", None) or "", str(fault))


class Connections:
    """The connections to one service. At most `most` are in use; idle ones are kept for later requests."""

    def __init__(self, base_url: str, most: int, ca: str | None = None) -> None:
        """`ca`: a file, as in `trust`. Raises: ValueError: as `service_url` and `trust`."""
        parts = service_url(base_url)
        self._tls = partial(trust, ca or TRUSTED.get()) if parts.scheme == "https" else lambda: None
        self._tls()  # the file must be there
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        self._host_header = parts.netloc
        self._free = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, deadline: float
    ) -> HttpAnswer:
        """Make one request.

        Args:
            target: the encoded path and query, below the base URL.
            deadline: on the clock of `time.monotonic`.
        Raises: CannotConnect; ConnectionLost; TimeoutError: sent, and not answered before the deadline;
            ValueError: a header with a line break.
        """
        lines = [f"{method} {self._path}{target} HTTP/1.1", f"Host: {self._host_header}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None or method != "GET":
            lines.append(f"Content-Length: {len(body or b'')}")
        head = "\r\n".join(lines)
        if head.count("\n") >= len(lines) or head.count("\r") >= len(lines) or "\0" in head:
            raise ValueError("a header must not hold line breaks")
        if self._free.locked():
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                    await self._free.acquire()
            except TimeoutError as fault:
                raise CannotConnect("all connections are in use") from fault
        else:
            await self._free.acquire()
        try:
            connection = self._take() or await self._connect(deadline)
            answer = connection.ask(f"{head}\r\n\r\n".encode(), body, deadline)
            try:
                return await answer
            finally:
                if not answer.done() or answer.cancelled():  # the caller is gone, and an answer may still arrive
                    connection.close()
        finally:
            self._free.release()

    def _take(self) -> "_Connection | None":
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()  # the one used last, so that the others become too old and close
            if connection.usable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _connect(self, deadline: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._idle, self._open), self._host, self._port, ssl=self._tls()
                )
        except TimeoutError as fault:
            raise CannotConnect("it does not accept connections in time") from fault
        except OSError as fault:
            raise CannotConnect(_cause(fault)) from fault
        if not connection.usable:
            raise CannotConnect("it was closed at once")
        return connection

    def close(self) -> None:
        """Close every connection; requests under way fail with ConnectionLost."""
        for connection in self._open:
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection. httptools calls the methods `on_…` while an answer arrives."""

    def __init__(self, idle: list["_Connection"], all_open: set["_Connection"]) -> None:
        self._idle = idle
        self._open = all_open
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._headed = False
        self.usable = True
        self.idle_since = 0.0

    def ask(self, head: bytes, body: bytes | None, deadline: float) -> "asyncio.Future[HttpAnswer]":
        """Make a request. A caller that stops waiting for the answer closes the connection."""
        self._answer = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._body, self._headed = {}, [], False
        if body is not None and len(body) > JOINED_BYTES:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body if body else head)
        self._timer = self._loop.call_later(max(deadline - time.monotonic(), 0), self._end, TimeoutError())
        return self._answer

    def close(self) -> None:
        self.usable = False
        self._transport.abort()

    def _closed_early(self) -> str:
        said = "it was closed before the answer was whole"
        plain = self._transport.get_extra_info("ssl_object") is None
        # A listener with TLS ends a plain request without a word, as a service that dies does.
        first = plain and not self._headed and not self.idle_since
        return f"{said}; if the service has a certificate, its URL begins with https://" if first else said

    def _end(self, fault: Exception) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self._end(ConnectionLost("it answered without a request"))
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as fault:
            self._end(ConnectionLost(f"its answer is not HTTP: {fault}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is None or self._answer.done():
            return
        ends_with_it = "content-length" not in self._headers and "transfer-encoding" not in self._headers
        if exc is None and self._headed and ends_with_it:
            self.on_message_complete()
        else:
            self._answer.set_exception(ConnectionLost(str(exc) if exc else self._closed_early()))

    # httptools.HttpResponseParser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer: the final one follows
            self._headers, self._body, self._headed = {}, [], False
            return
        if self._answer is None or self._answer.done():
            self._end(ConnectionLost("it answered without a request"))
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.usable and self._parser.should_keep_alive():
            self.idle_since = time.monotonic()
            self._idle.append(self)
        else:
            self.usable = False
            self._transport.abort()
        self._answer.set_result(HttpAnswer(status, self._headers, b"".join(self._body)))
