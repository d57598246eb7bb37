"""What all connections of one server share: the application, the limits, and which of them may be closed.

A connection is here while it may run out of time or of room: idle, in the middle of something, or with a body on its way.
`sharequeue.http.protocol` says when; what happens to the others is decided here.
"""

import asyncio
import logging
import os
import resource
from typing import Final, Protocol

from starlette.types import ASGIApp

from sharequeue.http.app import App
from sharequeue.http.limits import HttpLimits
from sharequeue.log import Rarely, fields

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""How often connections are looked at that may have run out of time."""


class Connection(Protocol):
    """What is asked of a connection here."""

    silent: bool
    """Whether no byte of a request has come yet."""
    unsent: int
    """Bytes that the client had not taken when that was last looked at."""
    taken_at: float
    """When the client last took some, by the loop's clock."""

    @property
    def begins(self) -> bool:
        """Whether all there is of this connection's requests is a part of a head."""

    def look(self, now: float) -> None:
        """Close this connection, or refuse its request, if its time is over."""

    def give_way(self) -> None:
        """Refuse the body that comes in: others need its memory."""

    def drop(self) -> None:
        """Close the connection for good. An answer that was not taken yet is lost."""


class Edge:
    """What all connections of one server share: the application, the limits, and which connections may be closed."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, max_connections: int) -> None:
        """`max_connections`: what the limits say, or less where the process may not open so many files."""
        self.app = app
        self.paths = app.straight if isinstance(app, App) else None
        self.limits = limits
        self.max_connections = max_connections
        self.idle: dict[Connection, float] = {}
        """Connections without a request, and since when (seconds of the loop's clock). The longest idle comes first."""
        self.watched: dict[Connection, None] = {}
        """Connections that may run out of time: in a head or a body, with an answer that is not taken, or closing."""
        self._receiving: dict[Connection, int] = {}
        """Connections with a body on its way, and what they keep of it. The one that began first comes first."""
        self._receiving_bytes = 0
        self.malformed = Rarely(lines=3, seconds=1)
        self.full = Rarely(lines=1, seconds=60)
        self._no_file = Rarely(lines=1, seconds=60)

    def make_room(self) -> bool:
        """Close the connection that is idle longest; with none idle one that has sent a part of a head and nothing else.

        Returns: False if there is neither.
        """
        connection = next(iter(self.idle), None)
        if connection is None:
            connection = next((watched for watched in self.watched if watched.begins), None)
        if connection is None:
            return False
        connection.drop()
        return True

    def receive(self, connection: Connection, kept: int) -> None:
        """A connection keeps so many bytes of a body that is not whole; 0 when it is, or has ended."""
        receiving = self._receiving
        self._receiving_bytes += kept - receiving.get(connection, 0)
        if not kept:
            receiving.pop(connection, None)
            return
        receiving[connection] = kept
        while self._receiving_bytes > self.limits.max_receiving_bytes and len(receiving) > 1:
            next(iter(receiving)).give_way()

    def _look_for_a_file(self, now: float) -> None:
        """Say so if no file can be opened. New connections are reset by then, which nothing else would tell."""
        try:
            os.close(os.dup(2))
        except OSError as fault:
            if self._no_file.allows(now) is not None:
                log.error(
                    "no file can be opened; new connections are reset until some are free",
                    extra=fields(cause=str(fault), limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                )

    def _bound_unsent(self) -> None:
        """Close the connections that have taken nothing for longest, while too much waits to be taken."""
        stalled = [connection for connection in self.watched if connection.unsent]
        unsent = sum(connection.unsent for connection in stalled)
        stalled.sort(key=lambda connection: connection.taken_at)
        for connection in stalled:
            if unsent <= self.limits.max_unsent_bytes:
                return
            unsent -= connection.unsent
            connection.drop()

    async def watch(self) -> None:
        """Close connections that ran out of time. Runs as long as the service does."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            self._look_for_a_file(now)
            for connection in list(self.watched):
                connection.look(now)
            self._bound_unsent()
            idle_since = now - self.limits.idle_timeout_ms / 1000
            silent_since = now - self.limits.head_timeout_ms / 1000
            for connection, since in list(self.idle.items()):
                if since <= idle_since or (connection.silent and since <= silent_since):
                    connection.drop()
                elif since > silent_since:
                    break
