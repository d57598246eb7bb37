"""An ASGI application on an exchange of `sharequeue.http.protocol`: FastAPI's own routes, unknown paths, middleware.

Source: ASGI 3.0, HTTP and WebSocket specification 2.3.
"""

import logging
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Scope

from sharequeue.http.exchange import ClientGone, Exchange

log = logging.getLogger(__name__)

ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


class AsgiRequest(Exchange, Protocol):
    """What an application is told beyond an endpoint. `target`: the path as it was sent."""

    method: bytes
    target: bytes
    version: str
    answered: bool

    @property
    def scheme(self) -> str: ...

    @property
    def server(self) -> tuple[str, int] | None: ...

    async def receive(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether more follows. Raises: ClientGone; ApiError."""


async def serve_asgi(app: ASGIApp, request: AsgiRequest) -> None:
    """Have an application answer a request. A streamed answer waits for the connection."""
    scope: Scope = {
        "type": "http",
        "asgi": ASGI,
        "http_version": request.version,
        "method": request.method.decode(),
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.target,
        "query_string": request.query,
        "root_path": "",
        "headers": request.headers,
        "client": request.client,
        "server": request.server,
        "state": {},
    }
    begun: Message | None = None
    streaming = False
    whole = False

    async def receive() -> Message:
        nonlocal whole
        if whole:
            await request.until_gone()
        else:
            try:
                part, more = await request.receive()
                whole = not more
                return {"type": "http.request", "body": part, "more_body": more}
            except ClientGone:
                pass
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal begun, streaming
        if message["type"] == "http.response.start":
            begun = message
            return
        if begun is None:
            raise RuntimeError("the application sent a body before http.response.start")
        headers = [
            (name.lower(), value) for name, value in begun.get("headers", ()) if name.lower() != b"content-length"
        ]
        part, more = message.get("body", b""), message.get("more_body", False)
        try:
            if not streaming and not more:
                await request.answer(begun["status"], headers, part)
                return
            if not streaming:
                await request.start(begun["status"], headers)
                streaming = True
            await request.write(part)
            if not more:
                await request.finish()
        except ClientGone:
            raise OSError("the client is gone") from None

    try:
        await app(scope, receive, send)
    except OSError:
        if not request.gone():
            raise
