"""A TCP proxy before Redis that holds each answer back for a while, and counts what one command and one answer have."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

LATE_S = 0.05
_COUNT = re.compile(rb"\*(\d+)\r\n")


class SlowRedis:
    """`most_asked`, `most_answered`: the most parts of one command and of one answer. A hash field has two of them."""

    def __init__(self, redis_url: str) -> None:
        self._parts = urlsplit(redis_url)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self.most_asked = 0
        self.most_answered = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        return self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()

    @contextmanager
    def running(self) -> Iterator["SlowRedis"]:
        """Serve in a thread."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
            self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            client.close()
            return
        await asyncio.gather(self._requests(client_reader, server), self._answers(server_reader, client))

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            self.most_asked = max([self.most_asked, *(int(count) for count in _COUNT.findall(data))])
            server.write(data)
        server.close()

    async def _answers(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            self.most_answered = max([self.most_answered, *(int(count) for count in _COUNT.findall(data))])
            self._loop.call_later(LATE_S, client.write, data)
        self._loop.call_later(LATE_S, client.close)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 18)
    except OSError:
        return b""
