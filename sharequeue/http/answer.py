"""What a handler may return besides a message: an answer that is already bytes, or one that is sent in parts."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

JSON: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is already bytes, or has headers of its own."""

    body: bytes
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose parts are sent as they come to be; one that nobody takes waits. If making the parts fails, the
    connection ends, so that the client cannot take a piece for the whole."""

    parts: AsyncGenerator[bytes, None]
    headers: tuple[tuple[bytes, bytes], ...]
