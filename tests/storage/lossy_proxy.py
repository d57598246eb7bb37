"""A TCP proxy before PostgreSQL that loses answers or holds requests back, as a network does at the worst moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class LossyProxy:
    """`lose_answers`: bytes of the server are dropped. `hold_requests`: bytes of the client wait for `deliver`."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        self._target = (parts.hostname, parts.port)
        self._parts = parts
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._clients: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.lose_answers = False
        self.hold_requests = False
        self.held = asyncio.Event()
        self.answered = asyncio.Event()
        """The server has said something since `deliver`."""

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return self._parts._replace(netloc=f"{self._parts.username}:{self._parts.password}@127.0.0.1:{port}").geturl()

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        server_reader, server = await asyncio.open_connection(*self._target)
        self._clients.add(client)
        self._servers.add(server)
        await asyncio.gather(self._requests(client_reader, server), self._answers(server_reader, client))

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        kept = False
        while data := await _read(reader):
            if self.hold_requests:
                self._held.append((server, data))
                self.held.set()
                kept = True
            else:
                server.write(data)
        if not kept:
            server.close()

    async def _answers(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            self.answered.set()
            if not self.lose_answers and not client.transport.is_closing():
                client.write(data)
        client.close()

    async def holds_of(self, port: int) -> None:
        """Wait until a request of the connection is held that PostgreSQL sees with this port: loops send others."""
        while port not in {server.get_extra_info("sockname")[1] for server, _ in self._held}:
            self.held.clear()
            await self.held.wait()

    def cut(self) -> None:
        """Break all connections as the client sees them, and behave from now on."""
        self.lose_answers = self.hold_requests = False
        for client in self._clients:
            client.transport.abort()
        self._clients.clear()

    async def deliver(self) -> None:
        """Send the held requests to the server after all; wait until it has answered them."""
        assert self._held
        self.answered.clear()
        for server, data in self._held:
            server.write(data)
        await self.answered.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["LossyProxy"]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._server.close()
            self.cut()
            for server in self._servers:
                server.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except OSError:
        return b""
