"""A real server before a gateway that lets no request pass without a header, with or without TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec


class Door:
    """Passes a request on if it has the header `wanted`, a name and its values; else it answers 401.

    `own`: the answer is the problem document of a gateway. `heads`: the headers of all requests
    so far. `on_refusal` is called with each refusal.
    """

    def __init__(self, upstream: str, wanted: tuple[str, ...], *, own: bool = False) -> None:
        self._upstream = urlsplit(upstream)
        self.wanted = wanted
        self.own = own
        self.heads: list[dict[str, str]] = []
        self.refusals = 0
        self.on_refusal = lambda: None
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
            self.heads.append(headers)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            name, *values = self.wanted
            if headers.get(name) not in values:
                self.refusals += 1
                self.on_refusal()
                writer.write(self._refusal())
                await writer.drain()
            else:
                there, back = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
                kept = [each for each in lines if each.partition(":")[0].lower() not in ("host", "connection")]
                kept += [f"Host: {self._upstream.netloc}", "Connection: close"]
                back.write(("\r\n".join([line, *kept]) + "\r\n\r\n").encode() + body)
                while data := await there.read(65536):
                    writer.write(data)
                    await writer.drain()
                back.close()
        writer.close()

    def _refusal(self) -> bytes:
        kind, body = "text/html", b"<h1>Who are you?</h1>"
        if self.own:
            kind = "application/problem+json"
            problem = {
                "type": "about:blank",
                "title": "Not authenticated",
                "status": 401,
                "detail": "no key that holds",
            }
            codes = {"code": "SASL_AUTHENTICATION_FAILED", "kafka_code": 58, "retriable": False, "definite": True}
            body = msgspec.json.encode({**problem, **codes, "request_id": "r1"})
        head = f"HTTP/1.1 401 No\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body


@asynccontextmanager
async def door(
    upstream: str, wanted: tuple[str, ...], *, own: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Door]:
    """Serve one on this machine while the block runs."""
    made = Door(upstream, wanted, own=own)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    scheme = "http" if tls is None else "https"
    made.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
