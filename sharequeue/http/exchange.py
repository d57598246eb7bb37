"""The interface of a request and its answer for endpoints; `connection_exchange` and `asgi_exchange` implement it."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sharequeue.protocol.errors import TooLarge

Headers = Sequence[tuple[bytes, bytes]]

WITHOUT_LENGTH: Final = frozenset({204, 304})
"""Statuses whose answers have neither content nor a Content-Length (RFC 9110 8.6)."""
JOINED_BYTES: Final = 4096
"""A body of no more is joined to its head before it is sent: uvloop sends one piece in less time than two."""


class ClientGone(Exception):
    """The client hung up before its request was read, or while its answer was being sent."""


class Exchange(Protocol):
    """`path`: decoded, but an encoded slash stays as it is. `headers`: of the request, names in lower case.

    An answer is either whole (`answer`) or a stream (`start`, `write` as often as wanted, `finish`).
    """

    method: bytes
    path: str
    query: bytes
    headers: Headers

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the other end of the connection."""

    async def read(self, most: int) -> bytes:
        """The request's body. Raises: TooLarge: it has more than `most` bytes; ApiError (400, 408): it is malformed or
        too slow; ClientGone."""

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once the client has hung up, at once if it has; None: call nothing any more."""

    def gone(self) -> bool:
        """Whether this host has learned that the client has hung up."""

    async def answer(
        self, status: int, headers: Headers, body: bytes | bytearray, more: Sequence[bytes | memoryview] = ()
    ) -> None:
        """Send the whole answer, or nothing if the client is gone.

        `headers`: all but Content-Length. `more`: parts of the body that follow; their items are bytes.
        """

    async def start(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length is not known yet. Raises: ClientGone."""

    async def write(self, part: bytes) -> None:
        """Send a part of the answer. Returns when the connection can take another one. Raises: ClientGone."""

    def write_at_once(self, part: bytes) -> None:
        """Send a part of the answer if the connection can take it now; else drop it. Not while `write` is under way."""

    async def finish(self) -> None:
        """End the answer."""


def too_large(most: int) -> TooLarge:
    return TooLarge(f"the request is larger than {most} bytes; send less in one request", limit=most)
