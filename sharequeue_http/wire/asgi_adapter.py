"""Has an ASGI application answer a request of the `protocol` of this room: every one that is not for an endpoint.

Source: ASGI 3.0, HTTP and WebSocket specification 2.3.
"""

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Scope

from sharequeue_http.exchange import ClientGone, Exchange

ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


async def serve_asgi(app: ASGIApp, request: Exchange) -> None:
    """Have an application answer a request, whose body it does not get: pages take none. A streamed answer waits for
    the connection."""
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
        "server": request.connection.address("sockname"),
        "state": {},
    }
    gone = asyncio.Event()
    request.when_gone(gone.set)
    head: Message = {}
    streams = False

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal head, streams
        if message["type"] == "http.response.start":
            head = message  # it is sent with the first part, when it is clear whether more parts follow
            return
        headers = [
            (name.lower(), value) for name, value in head.get("headers", ()) if name.lower() != b"content-length"
        ]
        part, more = message.get("body", b""), message.get("more_body", False)
        if not streams and not more:
            await request.answer(head["status"], headers, part)
            return
        if not streams:
            await request.start(head["status"], headers)
            streams = True
        await request.write(part)
        if not more:
            await request.finish()

    with contextlib.suppress(ClientGone):
        await app(scope, receive, send)
