"""HTTP as uvicorn speaks it, tuned: head and body of an answer leave in one write, and so wake the client once."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sharequeue.protocol.errors import InvalidRequest
from sharequeue.serving import problem_answer, request_id_from


class _Joined:
    """A transport that holds the first write of a pair back for the second; one that stays alone leaves soon."""

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        else:
            self._held = data
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(held)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with two differences: an answer is one write, and bytes that are not HTTP get a problem document."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(_Joined(transport, self.loop))  # type: ignore[arg-type]  # it does all that is used

    def send_400_response(self, msg: str) -> None:
        request_id = request_id_from(None)
        answer = problem_answer(InvalidRequest(f"{msg} A header or the framing of the body is malformed."), request_id)
        headers = (
            *answer.headers,
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
        )
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + answer.body)
        self.transport.close()
