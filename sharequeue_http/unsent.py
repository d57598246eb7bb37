"""The bytes of one connection's answers that its client has not taken, and the answers that wait until it has.

The transport calls `pause` when its buffer is full, because the client takes less than it is sent, and `resume` when
the buffer has room again. Between the two the next answers wait, and the edge counts the bytes of all such connections.
"""

import asyncio
from collections.abc import Callable

Note = Callable[["Unsent", int, float], None]
"""Told of bytes that the client has not taken: see `Edge.send`."""


class Unsent:
    """The bytes that one client has still to take."""

    __slots__ = ("_drop", "_held", "_last", "_loop", "_note", "_transport", "taken_at", "untaken")

    def __init__(
        self, transport: asyncio.Transport, note: Note, loop: asyncio.AbstractEventLoop, drop: Callable[[], None]
    ) -> None:
        """`drop`: closes the connection at once."""
        self._transport = transport
        self._note: Note | None = note
        self._loop = loop
        self._drop: Callable[[], None] | None = drop
        self.untaken: asyncio.Event | None = None
        """Exists while the client does not take what was sent; set when it has taken enough."""
        self.taken_at = 0.0
        """When the client last took some, by the last measurement, in seconds of the loop's clock."""
        self._last = 0
        """Bytes that the client had not taken at the last measurement."""
        self._held = 0
        """Bytes of an answer that waits until the client has taken the one before."""

    def pause(self) -> None:
        if self.untaken is None:
            self.untaken = asyncio.Event()
            self._last = 0
            self._report()

    def resume(self) -> None:
        if self.untaken is not None:
            self.untaken.set()
            self.untaken = None
            self._last = 0
            self.forget()

    async def drain(self, held: int = 0) -> None:
        """Wait until the client has taken enough of what was sent, or has left. `held`: bytes to be written then."""
        untaken = self.untaken
        if untaken is None:
            return
        if held:
            self._held = held
            self._report()
        await untaken.wait()
        self._held = 0

    def measure(self, now: float) -> int:
        """The bytes that the client has not taken. `now`: seconds of the loop's clock."""
        unsent = self._transport.get_write_buffer_size() + self._held
        if unsent < self._last or not self._last:
            self.taken_at = now
        self._last = unsent
        return unsent

    def _report(self) -> None:
        if self._note is not None:
            now = self._loop.time()
            self._note(self, self.measure(now), now)

    def forget(self) -> None:
        """The edge need not count these bytes."""
        if self._note is not None:
            self._note(self, 0, 0.0)

    def drop(self) -> None:
        if self._drop is not None:
            self._drop()

    def release(self) -> None:
        """The connection is lost: wake the answers that wait, and refer to it no more."""
        self.forget()
        self._note = self._drop = None
        if self.untaken is not None:
            self.untaken.set()
