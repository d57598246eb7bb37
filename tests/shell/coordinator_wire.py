"""A group coordinator as the other end of the wire sees it: each call waits until the test answers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sharequeue.http.caller import encode
from sharequeue.protocol import apis
from sharequeue.protocol.internal import ShardOwner, ShardsResponse
from sharequeue.protocol.shards import CLUSTER_SHARD


class Question:
    """A call of the group coordinator. The test answers when it wants to; None closes the connection instead."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class CoordinatorWire:
    """Where a group coordinator is asked; it owns everything."""

    def __init__(self) -> None:
        self.url = ""
        self._questions: asyncio.Queue[Question] = asyncio.Queue()

    async def asked(self, api: apis.Api) -> asyncio.Future[Any]:
        """Wait for the next question, which is to be this call. Returns: where its answer goes."""
        question = await asyncio.wait_for(self._questions.get(), 5)
        assert question.call == f"{api.method} {api.path.format(topic='orders', group='g')}"
        return question.answer

    async def told(self, api: apis.Api, answer: Any) -> None:
        """Answer the next question, which is to be this call."""
        (await self.asked(api)).set_result(answer)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["CoordinatorWire"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                line, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                lengths = [header[16:] for header in headers if header.startswith("Content-Length: ")]
                await reader.readexactly(int(lengths[0]) if lengths else 0)
                answer = await self._answer(line.rpartition(" ")[0])
                if answer is None:
                    break
                body = encode(answer)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                writer.write(head + body)
        writer.close()

    async def _answer(self, call: str) -> Any:
        if call == f"{apis.SHARDS.method} {apis.SHARDS.path}":
            owners = [ShardOwner(shard=n, node_id="a", url=self.url, owner_epoch=1) for n in (CLUSTER_SHARD, 0)]
            return ShardsResponse(shards=owners, count=1)
        question = Question(call)
        self._questions.put_nowait(question)
        return await question.answer
