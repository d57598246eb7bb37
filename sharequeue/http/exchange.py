"""One request and its answer, as a server hands them to an endpoint: whole bodies, not messages about parts of them."""

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.types import Message, Receive, Scope, Send

from sharequeue.protocol.errors import TooLarge

Headers = Sequence[tuple[bytes, bytes]]

WITHOUT_LENGTH: Final = frozenset({204, 304})
"""Statuses whose answers have no content, and so no length of it (RFC 9110 8.6)."""


class ClientGone(Exception):
    """The client hung up before its request was read, or while its answer was on the way."""


class Exchange(Protocol):
    """`path`: decoded, but an encoded slash stays as it is. `headers`: of the request, names in lower case.

    An answer is either whole (`answer`) or a stream (`start`, `write` as often as wanted, `finish`).
    """

    path: str
    query: bytes
    headers: Headers

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the other end of the connection."""

    async def read(self, most: int) -> bytes:
        """The request's body. Raises: TooLarge: it has more than so many bytes; ApiError (400, 408): it is malformed or
        too slow; ClientGone."""

    async def until_gone(self) -> None:
        """Return when the client has hung up."""

    def gone(self) -> bool:
        """Whether the client has hung up by now, as far as this host has heard."""

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the answer; nothing where the client is gone. `headers`: all but the length."""

    async def start(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length nobody knows yet. Raises: ClientGone."""

    async def write(self, part: bytes) -> None:
        """Send a part of it; returns once the connection can take another. Raises: ClientGone."""

    async def finish(self) -> None:
        """End it."""


def too_large(most: int) -> TooLarge:
    return TooLarge(f"the request is larger than {most} bytes; send less in one request", limit=most)


class AsgiExchange:
    """An exchange with any ASGI server, or behind ASGI middleware."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.client: tuple[str, int] | None = scope.get("client")
        self._receive = receive
        self._send = send

    async def read(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large(most)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def gone(self) -> bool:
        receiving = self._receive()
        try:
            receiving.send(None)  # type: ignore[attr-defined]  # one step: it ends at once if a message is there
        except StopIteration as ended:
            message: Message = ended.value
            return bool(message["type"] == "http.disconnect")
        receiving.close()  # type: ignore[attr-defined]
        return False

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        length = () if status in WITHOUT_LENGTH else ((b"content-length", b"%d" % len(body)),)
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, part: bytes) -> None:
        try:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        except OSError:  # what servers of this specification raise when the client is gone
            raise ClientGone from None

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})
