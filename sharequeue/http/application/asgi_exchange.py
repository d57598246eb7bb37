"""An exchange on ASGI: how FastAPI hands a request to an endpoint, behind middleware and dependencies."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Send

from sharequeue.background import start
from sharequeue.http.exchange import WITHOUT_LENGTH, ClientGone, Headers, too_large
from sharequeue.protocol.errors import ApiError


class AsgiExchange:
    """See `sharequeue.http.exchange.Exchange`. A dependency may have read the body with `request.body()` before."""

    def __init__(self, request: Request, send: Send) -> None:
        self.method: bytes = request.method.encode()
        self.path: str = request.scope["path"]
        self.query: bytes = request.scope["query_string"]
        self.headers: Headers = request.scope["headers"]
        self.client: tuple[str, int] | None = request.scope.get("client")
        self._request = request
        self._send = send
        self._sending: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.Task[None] | None = None
        """Ends when the client hangs up."""
        self._left = False
        self._on_gone: Callable[[], None] | None = None

    async def read(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with contextlib.aclosing(self._request.stream()) as stream:
                async for part in stream:
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise too_large(most)
        except ClientDisconnect:
            raise ClientGone from None
        self._watch()
        return b"".join(parts)

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        self._on_gone = callback
        if self.gone() and callback is not None:
            callback()

    def gone(self) -> bool:
        self._watch()
        return self._left

    def _watch(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._until_gone())

    async def _until_gone(self) -> None:
        with contextlib.suppress(ApiError):  # the body is malformed or too slow, and no endpoint reads it
            while (await self._request.receive())["type"] != "http.disconnect":
                pass
        self._left = True
        if self._on_gone is not None:
            self._on_gone()

    async def answer(
        self, status: int, headers: Headers, body: bytes | bytearray, more: Sequence[bytes | memoryview] = ()
    ) -> None:
        body = b"".join((body, *more))
        length = () if status in WITHOUT_LENGTH else ((b"content-length", b"%d" % len(body)),)
        await self.start(status, (*headers, *length))
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, part: bytes) -> None:
        try:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        except OSError:  # ASGI: the client is gone
            raise ClientGone from None

    def write_at_once(self, part: bytes) -> None:
        message = {"type": "http.response.body", "body": part, "more_body": True}
        start(self._sending, self._send_quietly(message))

    async def _send_quietly(self, message: Message) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the client is gone, or the answer has ended
            await self._send(message)

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """The request is answered: nobody asks whether the client is gone any more."""
        if self._leaving is not None:
            self._leaving.cancel()
