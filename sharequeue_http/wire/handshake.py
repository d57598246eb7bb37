"""TLS before HTTP. A connection counts from its first packet on, not only when its client has shaken hands.

accepted ──▶ shakes hands ──▶ a connection of HTTP
                  │
                  └─ `head_timeout_ms` are over, or others need its place ──▶ closed
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

from sharequeue_http.wire.edge import Edge


class Handshake(asyncio.Protocol):
    """The connection of a client that has not shaken hands yet. Until then it is one that has sent nothing."""

    silent: Final = True

    def __init__(
        self, edge: Edge, context: ssl.SSLContext, connections: set[Any], make: Callable[[], asyncio.Protocol]
    ) -> None:
        """`connections`: all of the server, as uvicorn counts them. `make`: makes the connection of HTTP."""
        self._edge = edge
        self._context = context
        self._connections = connections
        self._make = make
        self._early = b""
        """What came before TLS began, and then with the end of the handshake."""
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream, always
        self._transport = transport
        if not self._edge.admits(len(self._connections)):
            transport.abort()
            return
        self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._edge.idle[self] = loop.time()
        self._task = loop.create_task(self._shake_hands(loop, transport))

    async def _shake_hands(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        timeout_s = self._edge.limits.head_timeout_ms / 1000
        starting = loop.start_tls(transport, self, self._context, server_side=True, ssl_handshake_timeout=timeout_s)
        try:
            secured = await self._with_early_bytes(loop.create_task(starting), transport)
        except OSError:  # of ssl, too
            return
        finally:
            self._leave()
        if secured is None or transport.is_closing():
            return
        connection = self._make()
        secured.set_protocol(connection)
        connection.connection_made(secured)
        if self._early:
            connection.data_received(self._early)

    async def _with_early_bytes(
        self, starting: "asyncio.Task[asyncio.Transport | None]", transport: asyncio.Transport
    ) -> asyncio.Transport | None:
        """Give TLS what the client sent before TLS began: uvloop reads at once."""
        await asyncio.sleep(0)  # TLS has taken the transport: until then bytes may come here
        await asyncio.sleep(0)  # and is ready for bytes
        early, self._early = self._early, b""
        if early:
            tls: Any = transport.get_protocol()  # a BufferedProtocol, by its methods
            while early and not transport.is_closing():
                room = tls.get_buffer(len(early))
                size = min(len(room), len(early))
                room[:size], early = early[:size], early[size:]
                tls.buffer_updated(size)
        return await starting

    def data_received(self, data: bytes) -> None:
        self._early += data

    def drop(self) -> None:
        self._leave()
        self._transport.abort()

    def shutdown(self) -> None:
        """uvicorn stops."""
        self.drop()

    def _leave(self) -> None:
        self._connections.discard(self)
        self._edge.idle.pop(self, None)
