"""The calling end of a stream of Server-Sent Events: one connection, read event by event.

An event that is not whole when the connection ends is dropped. Source: the HTML standard, 9.2; RFC 9112, 7.1.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from sharequeue_http.calling.caller import error_of_answer
from sharequeue_http.calling.connections import CannotConnect, ConnectionLost, service_url, trust
from sharequeue_http.forms.api import Api

MOST_LINE_BYTES: Final = 64 * 1024
"""Of the head and of chunk sizes. An event may have any size."""
BROKEN: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
"""Raised where what comes is no stream, or no more comes. TimeoutError is an OSError."""


class ServerEvent(NamedTuple):
    """One event. `kind`: its name, `message` without one. `id`: the last id up to this event."""

    kind: str
    data: bytes
    id: str


class EventReader:
    def __init__(self, answered: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """`answered`: says what answers, and to which call."""
        self._answered = answered
        self._reader = reader
        self._writer = writer
        self._unread = bytearray()
        self._id = ""

    @classmethod
    async def open(
        cls,
        api: Api,
        base_url: str,
        target: str,
        headers: Mapping[str, str],
        deadline_s: float,
        ca: str | None = None,
    ) -> Self:
        """Make the request and read the head of the answer.

        Raises: ApiError: the other side refused. CannotConnect; ConnectionLost: there is no answer.
        """
        parts = service_url(base_url)
        tls = trust(ca) if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        try:
            async with asyncio.timeout(deadline_s):
                reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls, limit=MOST_LINE_BYTES)
        except (OSError, TimeoutError) as fault:
            raise CannotConnect(str(fault) or "it does not accept connections in time") from fault
        events = cls(f"{base_url} answered {api.operation_id}", reader, writer)
        lines = [f"GET {parts.path.rstrip('/')}{target} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in {"Accept": "text/event-stream", **headers}.items()]
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            async with asyncio.timeout(deadline_s):
                await events._read_head()
        except BaseException as fault:
            await events.close()
            if isinstance(fault, BROKEN):
                raise ConnectionLost(str(fault) or "it was closed before the answer") from fault
            raise
        return events

    async def _read_head(self) -> None:
        """Raises: ApiError: the answer is not a stream."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        status = int(status_line.split()[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        media_type = headers.get("content-type", "")
        if status == 200 and media_type.startswith("text/event-stream") and "transfer-encoding" in headers:
            return
        length = min(int(headers.get("content-length", "0")), MOST_LINE_BYTES)
        body = await self._reader.readexactly(length)
        raise error_of_answer(body, status, headers, self._answered)

    async def next(self, silence_s: float) -> ServerEvent | None:
        """The next event; None if it only moves the id.

        Raises: ConnectionLost: the stream has ended, or nothing came for `silence_s`, not even a comment.
        """
        while (end := self._unread.find(b"\n\n")) < 0:
            try:
                async with asyncio.timeout(silence_s):
                    size = int(await self._reader.readuntil(b"\r\n"), 16)
                    chunk = await self._reader.readexactly(size + 2)
            except BROKEN as fault:
                raise ConnectionLost(str(fault) or "nothing came for too long") from fault
            if not size:
                raise ConnectionLost("the stream has ended")
            self._unread += chunk[:-2]
        block = bytes(self._unread[:end])
        del self._unread[: end + 2]
        return self._event(block)

    def _event(self, block: bytes) -> ServerEvent | None:
        kind, data = "message", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"id":
                self._id = value.decode()
            elif field == b"event":
                kind = value.decode()
            elif field == b"data":
                data.append(value)
        return ServerEvent(kind, b"\n".join(data), self._id) if data or self._id else None

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()
