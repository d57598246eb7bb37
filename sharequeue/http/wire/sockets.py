"""What only the socket of a connection knows or can do, beside its transport."""

import asyncio
import contextlib
import select
import socket
import struct
from typing import Final

HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Asks a socket whether its peer has shut down its sending side, even if bytes before that are unread. Linux has it."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, so that the client sees a failure and not an end."""


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client has left, although nothing is read from it now."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), HUNG_UP)
    return bool(poll.poll(0))


def reset(transport: asyncio.Transport) -> None:
    """Reset the connection, so that the client cannot take a part of an answer for the whole."""
    with contextlib.suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    transport.abort()
