"""How tests use the Python client: in an event loop each, if need be through a network that loses answers."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

import httpx

from sharequeue.client import (
    NewRecord,
    Producer,
    ShareConsumer,
)
from sharequeue.stack.stack import Stack
from tests.http.calls import dotted

MOST_S = 180
NOTHING_MS = 300
"""Long enough for the service to hand out what it has."""


class Network:
    """A real TCP hop before the gateway that can lose answers: the request arrives, the answer does not."""

    def __init__(self, port: int, own_port: int = 0) -> None:
        self._upstream_port = port
        self._own_port = own_port
        self._losing: list[bytes] = []
        self.lost = asyncio.Event()
        self.open = asyncio.Event()
        """Cleared: new connections are held up."""
        self.open.set()
        self.requests: list[bytes] = []
        self.rewrite: Callable[[bytes], bytes] = lambda answer: answer
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Network":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._own_port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def lose_answer_of(self, path_end: str) -> None:
        """Lose the answer of the next request whose path ends so."""
        self._losing.append(f"{path_end} HTTP/1.1".encode())
        self.lost.clear()

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def count(self, path_end: str) -> int:
        return sum(f"{path_end} HTTP/1.1".encode() in request for request in self.requests)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, upstream_writer}
        losing = asyncio.Event()

        async def requests() -> None:
            while data := await reader.read(1 << 20):
                self.requests.append(data)
                for wanted in self._losing:
                    if wanted in data:
                        self._losing.remove(wanted)
                        losing.set()
                        break
                upstream_writer.write(data)
            upstream_writer.close()

        async def answers() -> None:
            while data := await upstream_reader.read(1 << 20):
                if losing.is_set():
                    self.lost.set()
                    break
                writer.write(self.rewrite(data))
            writer.transport.abort()

        for pump in (requests(), answers()):
            task = asyncio.get_running_loop().create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)


Arguments = ParamSpec("Arguments")


def in_event_loop(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Run a test that is a coroutine function, for three minutes at most."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **fixtures: Arguments.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), MOST_S))

    return run


def port_of(stack: Stack) -> int:
    return int(stack.url.rsplit(":", 1)[1])


@contextlib.asynccontextmanager
async def consumers(stack: Stack, group: str, *topics: str, **options: Any) -> AsyncIterator[ShareConsumer]:
    """A consumer whose polls fetch all there is, unless `options` say otherwise."""
    async with ShareConsumer(stack.url, group, topics, **{"max_records": 500, **options}) as consumer:
        yield consumer


async def produce(stack: Stack, topic: str, *values: Any, **options: Any) -> None:
    async with Producer(stack.url) as producer:
        await producer.send_many(topic, [NewRecord(value, **options) for value in values])


async def seen_by_another(stack: Stack, group: str, topic: str, timeout_ms: float = 30_000) -> list[tuple[int, int]]:
    """The records that another member gets, as (offset, delivery count); they are released. A busy machine may take its
    time to hand out some: a test that expects none gives NOTHING_MS."""
    async with consumers(stack, group, topic, acknowledgement="explicit") as other:
        records = await other.poll(timeout_ms)
        for record in records:
            other.acknowledge(record, "release")
        return [(record.offset, record.delivery_count) for record in records]


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.02)


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def configure(client: httpx.Client, group: str, **config: Any) -> None:
    ask(client, "PATCH", f"/v1/share-groups/{group}/config", {"config": dotted(config)})
