"""A group coordinator as the other end of the wire sees it: each call waits until the test answers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import MetadataChangesResponse, ShardOwner, ShardsResponse
from sharequeue.protocol.shards import CLUSTER_SHARD
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode

DEADLINE_S: Final = 60


class Question:
    """A call of the group coordinator. The test answers when it wants to; None closes the connection instead."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class CoordinatorWire:
    """An HTTP server in the place of a group coordinator that owns every shard.

    expect, answer: the calls of the code under test, in order.
    change: the change feed, which a client follows beside them.
    """

    def __init__(self) -> None:
        self.url = ""
        self.away = False
        """Closes the connection at every call, except those of the feed."""
        self.shards: ShardsResponse | None = None
        """Who owns what, if it is not this one alone."""
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._feed: asyncio.Queue[Question] = asyncio.Queue()

    async def expect(self, api: Api) -> asyncio.Future[Any]:
        """Wait for the next call, which must be this one. Returns: the future of its answer."""
        question = await asyncio.wait_for(self._questions.get(), DEADLINE_S)
        assert question.call == f"{api.method} {api.path.format(topic='orders', group='g')}"
        return question.answer

    async def answer(self, api: Api, answer: Any) -> None:
        """Answer the next call, which must be this one."""
        (await self.expect(api)).set_result(answer)

    async def change(self, changes: MetadataChangesResponse) -> int:
        """Answer the feed with changes, and wait until the client asks for later ones.

        Returns: the version that it has applied: the one of these changes, or an earlier one if it failed.
        """
        (await asyncio.wait_for(self._feed.get(), DEADLINE_S)).answer.set_result(changes)
        following = await asyncio.wait_for(self._feed.get(), DEADLINE_S)
        self._feed.put_nowait(following)
        (since,) = parse_qs(urlsplit(following.call.partition(" ")[2]).query)["since"]
        return int(since)

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
                call = line.rpartition(" ")[0]
                answer = await self._answer(call)
                if answer is None:
                    break
                body = encode(answer)
                status = 201 if call == f"{apis.CREATE_TOPIC.method} {apis.CREATE_TOPIC.path}" else 200
                head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n" % status
                head += b"Content-Length: %d\r\n\r\n" % len(body)
                writer.write(head + body)
        writer.close()

    async def _answer(self, call: str) -> Any:
        if call == f"{apis.SHARDS.method} {apis.SHARDS.path}":
            if self.shards is not None:
                return self.shards
            owners = [ShardOwner(shard=n, node_id="a", url=self.url, owner_epoch=1) for n in (CLUSTER_SHARD, 0)]
            return ShardsResponse(shards=owners, count=1)
        feed = call.startswith(f"{apis.METADATA_CHANGES.method} {apis.METADATA_CHANGES.path}")
        if self.away and not feed:
            return None
        question = Question(call)
        (self._feed if feed else self._questions).put_nowait(question)
        return await question.answer
