"""Answers that a handler returns instead of a message: bytes that are ready, or a stream of parts."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

JSON: Final = (b"content-type", b"application/json")
JOINED_BYTES: Final = 4096
"""A body of no more is joined to its head before it is sent: uvloop sends one piece in less time than two."""


class Answer(msgspec.Struct, frozen=True):
    """An answer that is already bytes, or has headers of its own.

    `more`: large parts of the body that follow `body`. They are sent from where they are: joining them would take new
    memory, and a copy.
    """

    body: bytes | bytearray
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    more: Sequence[bytes | memoryview] = ()


class Stream(msgspec.Struct, frozen=True):
    """An answer that is sent part by part. The next part is made when the connection can take it. If that fails, the
    connection is reset, so that the client cannot take a part for the whole."""

    parts: AsyncGenerator[bytes, None]
    headers: tuple[tuple[bytes, bytes], ...]
