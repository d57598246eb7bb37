"""Has an ASGI application answer a request of the `protocol` of this room: every one that is not for an endpoint.

Source: ASGI 3.0, HTTP and WebSocket specification 2.3.
"""

from typing import Final

from starlette.types import ASGIApp, Message, Scope

from sharequeue_http.exchange import ClientGone, Exchange, Headers

ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


async def serve_asgi(app: ASGIApp, request: Exchange) -> None:
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
    messages = _Messages(request)
    try:
        await app(scope, messages.receive, messages.send)
    except OSError:
        if not request.gone:
            raise


class _Messages:
    """The two calls that an application gets, for one request."""

    def __init__(self, request: Exchange) -> None:
        self._request = request
        self._whole = False
        """Whether the application has all of the body."""
        self._start: Message | None = None
        """The head of the answer. It is sent with the first part, when it is clear whether more parts follow."""
        self._streaming = False

    async def receive(self) -> Message:
        """The next part of the body; after the last one, and for a client that left, the disconnect."""
        if self._whole:
            await self._request.until_gone()
        else:
            try:
                part, more = await self._request.receive()
                self._whole = not more
                return {"type": "http.request", "body": part, "more_body": more}
            except ClientGone:
                pass
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer. Raises: OSError: the client is gone."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is None:
            raise RuntimeError("the application sent a body before http.response.start")
        headers = [
            (name.lower(), value) for name, value in self._start.get("headers", ()) if name.lower() != b"content-length"
        ]
        try:
            await self._send(self._start["status"], headers, message.get("body", b""), message.get("more_body", False))
        except ClientGone:
            raise OSError("the client is gone") from None

    async def _send(self, status: int, headers: Headers, part: bytes, more: bool) -> None:
        if not self._streaming:
            if not more:
                await self._request.answer(status, headers, part)
                return
            await self._request.start(status, headers)
            self._streaming = True
        await self._request.write(part)
        if not more:
            await self._request.finish()
