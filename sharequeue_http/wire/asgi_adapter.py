"""Has an ASGI application answer a request of the `protocol` of this room: every one that is not for an endpoint.

Source: ASGI 3.0, HTTP and WebSocket specification 2.3.
"""

from typing import Final

from starlette.types import ASGIApp, Message, Scope

from sharequeue_http.exchange import Exchange

ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


async def serve_asgi(app: ASGIApp, request: Exchange) -> None:
    """Have an application answer a request, whose body it does not get: pages take none. They are sent whole."""
    scope: Scope = {
        "type": "http",
        "asgi": ASGI,
        "http_version": request.version,
        "method": request.method.decode(),
        "path": request.path,
        "raw_path": request.target,
        "query_string": request.query,
        "headers": request.headers,
    }
    head: Message = {}

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            head.update(message)
            return
        assert not message.get("more_body"), "a page is sent whole"
        headers = [
            (name.lower(), value) for name, value in head.get("headers", ()) if name.lower() != b"content-length"
        ]
        await request.answer(head["status"], headers, message.get("body", b""))

    await app(scope, receive, send)
