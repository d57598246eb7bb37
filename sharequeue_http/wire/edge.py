"""All connections of one server together: chooses one to close or refuse when files, memory or time run out.

A connection registers here while it is idle, while one of its clocks runs, and while a body arrives.
`sharequeue_http.wire.protocol` decides about one connection; this module chooses among them.
"""

import asyncio
import logging
import os
import resource
from typing import Final, Protocol

from sharequeue_http.application.app import App
from sharequeue_http.limits import HttpLimits
from sharequeue_http.log import Tally
from sharequeue_http.unsent import Unsent

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""Seconds between two looks at the clocks of the connections."""
LOOKED_AT_ONCE: Final = 100
"""Connections that are looked at, and closed, in one turn of the event loop."""


class Idle(Protocol):
    """The part of a connection without a request that this module uses: see `connection` and `handshake`."""

    @property
    def silent(self) -> bool: ...

    def drop(self) -> None: ...


class Connection(Idle, Protocol):
    """The part of a connection that this module uses."""

    @property
    def begins(self) -> bool: ...

    def look(self, now: float) -> None: ...

    def give_way(self) -> None: ...


class Edge:
    """The application, the limits and the connections of one server."""

    def __init__(self, app: App, limits: HttpLimits, max_connections: int) -> None:
        """`max_connections`: the limit, or less if the process cannot open so many files."""
        self.app = app
        self.paths = app.paths
        self.limits = limits
        self.max_connections = max_connections
        app.pace.most = max_connections // 4  # those that wait are not idle, so none gives way
        self.idle: dict[Idle, float] = {}
        """Connections without a request, with the time it began (seconds of the loop's clock); the longest idle
        first."""
        self.watched: dict[Connection, None] = {}
        """Connections with a running clock: a head or body arrives, the client takes no answer, or it is closing."""
        self.receiving: dict[Connection, int] = {}
        """Connections with an arriving body, each with the bytes of it in memory, the earliest first."""
        self._receiving_bytes = 0
        self._sending: dict[Unsent, int] = {}
        """Connections whose client does not take its answers as fast as they come, each with the bytes that it has not
        taken at most."""
        self._sending_bytes = 0
        self.malformed = Tally(log, logging.INFO, "refused what a connection sent", most=20)
        self.full = Tally(log, logging.ERROR, "refused a connection: the limit of connections is reached")
        self._no_file = Tally(
            log, logging.ERROR, "no file can be opened; new connections are reset until some are free"
        )

    def admits(self, connections: int) -> bool:
        """Tell whether there is room for one more than these. At the limit, close the connection that is idle longest.
        If none is idle, close one with a part of a head and nothing else."""
        if connections < self.max_connections:
            return True
        connection: Idle | None = next(iter(self.idle), None)
        if connection is None:
            connection = next((watched for watched in self.watched if watched.begins), None)
        if connection is not None:
            connection.drop()
            return True
        self.full.note("", connections=self.max_connections)
        return False

    def receive(self, connection: Connection, kept: int) -> None:
        """A connection has `kept` bytes of an incomplete body in memory; 0: it is complete, or nobody waits for it."""
        receiving = self.receiving
        self._receiving_bytes += kept - receiving.get(connection, 0)
        if not kept:
            receiving.pop(connection, None)
            return
        receiving[connection] = kept
        while self._receiving_bytes > self.limits.max_receiving_bytes and len(receiving) > 1:
            next(iter(receiving)).give_way()

    def send(self, sender: Unsent, unsent: int, now: float) -> None:
        """The client of a connection has not taken `unsent` bytes of its answers; 0: it takes them again, or is gone.

        While such bytes exceed their limit, close the connection whose client has taken nothing for longest.
        """
        sending = self._sending
        self._sending_bytes += unsent - sending.pop(sender, 0)
        if not unsent:
            return
        sending[sender] = unsent
        if self._sending_bytes <= self.limits.max_unsent_bytes:
            return
        for other in sending:
            sending[other] = other.measure(now)
        self._sending_bytes = sum(sending.values())
        for other in sorted(sending, key=lambda stalled: stalled.taken_at)[:-1]:
            if self._sending_bytes <= self.limits.max_unsent_bytes:
                return
            other.drop()

    def _look_for_a_file(self) -> None:
        """Log if no file can be opened. uvicorn then resets new connections, and nothing else would show that."""
        try:
            os.close(os.dup(2))
        except OSError as fault:
            self._no_file.note("", cause=str(fault), limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    async def watch(self) -> None:
        """Close connections whose time is over. Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            self._look_for_a_file()
            for number, connection in enumerate(list(self.watched), 1):
                if number % LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if connection in self.watched:
                    connection.look(now)
            idle_since = now - self.limits.idle_timeout_ms / 1000
            silent_since = now - self.limits.head_timeout_ms / 1000
            for number, (idle, since) in enumerate(list(self.idle.items()), 1):
                if number % LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if self.idle.get(idle) != since:
                    continue
                if since <= idle_since or (idle.silent and since <= silent_since):
                    idle.drop()
                elif since > silent_since:
                    break
