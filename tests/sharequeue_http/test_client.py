"""The HTTP client against a server that answers byte by byte what a test says."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharequeue_http.calling import connections as connections_module
from sharequeue_http.calling.connections import CannotConnect, ConnectionLost, Connections, HttpAnswer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with what `answer` makes of its bytes; None: closes instead."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.answer: Callable[[int], Any] = lambda number: OK

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answer(len(self.requests))
                for part in (answer,) if isinstance(answer, bytes) else answer:
                    if part is None:
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.005)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def run(work: Callable[[Server, str], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            await work(server, f"http://127.0.0.1:{port}/base")

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in the server
            await asyncio.sleep(0.001)


async def get(connections: Connections, seconds: float = 60, **headers: str) -> HttpAnswer:
    return await connections.request("GET", "/x?y=1", headers, None, time.monotonic() + seconds)


def test_a_request_is_one_message_and_its_connection_is_used_again() -> None:
    async def work(server: Server, url: str) -> None:
        connections = Connections(url, 4)
        deadline = time.monotonic() + 60
        first = await connections.request("POST", "/x", {"A": "b"}, b"body", deadline)
        assert (first.status, first.headers, first.body) == (200, {"content-length": "2"}, b"ok")
        await connections.request("POST", "/x", {}, None, deadline)
        await get(connections)
        host = url.removeprefix("http://").removesuffix("/base").encode()
        assert server.requests == [
            b"POST /base/x HTTP/1.1\r\nHost: " + host + b"\r\nA: b\r\nContent-Length: 4\r\n\r\nbody",
            b"POST /base/x HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 0\r\n\r\n",
            b"GET /base/x?y=1 HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
        ]
        assert server.connections == 1
        connections.close()

    run(work)


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"3\r\ndef\r\n", b"0\r\n\r\n"],
        [b"HTTP/1.1 20", b"0 OK\r\nContent-Le", b"ngth: 6\r\n\r\nab", b"cdef"],
        [b"HTTP/1.1 200 OK\r\n\r\nabc", b"def", None],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabcdef"],
    ],
    ids=["chunked", "in pieces", "until the end of the connection", "after 100", "closing"],
)
def test_answers_are_read_in_any_framing(parts: list[bytes | None]) -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: parts if number == 1 else OK
        connections = Connections(url, 1)
        answer = await get(connections)
        assert (answer.status, answer.body) == (200, b"abcdef")
        assert (await get(connections)).body == b"ok"
        closes = None in parts or any(part and b"close" in part for part in parts)
        assert server.connections == (2 if closes else 1)
        connections.close()

    run(work)


def test_answers_without_a_body_are_read() -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: b"HTTP/1.1 204 No Content\r\n\r\n"
        connections = Connections(url, 1)
        assert [(await get(connections))[::2] for _ in range(2)] == [(204, b""), (204, b"")]
        assert server.connections == 1
        connections.close()

    run(work)


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ([None], "closed before the answer was whole; if the service has a certificate, its URL begins with https://"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc", None], "closed before the answer was whole$"),
        ([b"SMTP ready\r\n\r\n"], "not HTTP"),
    ],
    ids=["no answer", "half an answer", "another protocol"],
)
def test_a_connection_that_ends_early_leaves_the_outcome_unknown(parts: list[bytes | None], cause: str) -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: parts if number == 1 else OK
        connections = Connections(url, 1)
        with pytest.raises(ConnectionLost, match=cause):
            await get(connections)
        assert (await get(connections)).body == b"ok"
        connections.close()

    run(work)


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    async def work(server: Server, url: str) -> None:
        held = [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"", b"", b"", b"", b"", b"", b"", b"late"]
        server.answer = lambda number: held if number == 2 else OK
        connections = Connections(url, 1)
        assert (await get(connections)).body == b"ok"
        with pytest.raises(TimeoutError):
            await get(connections, seconds=0.01)
        assert (await get(connections)).body == b"ok"
        asking = asyncio.create_task(get(connections))
        server.answer = lambda number: held
        await until(lambda: len(server.requests) == 4)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        server.answer = lambda number: OK
        assert (await get(connections)).body == b"ok"
        assert server.connections == 3
        connections.close()

    run(work)


def test_an_unexpected_answer_ends_the_connection() -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: OK + OK if number == 1 else OK
        connections = Connections(url, 2)
        await get(connections)
        answers = await asyncio.gather(get(connections), get(connections))
        assert [answer.body for answer in answers] == [b"ok", b"ok"]
        assert server.connections == 3
        connections.close()

    run(work)


def test_a_connection_the_other_side_closed_is_not_used_again() -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: [OK, None] if number == 1 else OK
        connections = Connections(url, 1)
        await get(connections)
        await until(lambda: not connections._open)
        assert (await get(connections)).body == b"ok"
        connections.close()

    run(work)


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: Server, url: str) -> None:
        connections = Connections(url, 1)
        await get(connections)
        monkeypatch.setattr(connections_module, "IDLE_S", -1.0)
        await get(connections)
        assert server.connections == 2
        connections.close()

    run(work)


def test_more_requests_than_connections_wait_for_one() -> None:
    async def work(server: Server, url: str) -> None:
        connections = Connections(url, 2)
        answers = await asyncio.gather(*(get(connections) for _ in range(20)))
        assert [answer.body for answer in answers] == [b"ok"] * 20
        assert server.connections == 2
        server.answer = lambda number: [b"HTTP/1.1 200 OK\r\n", *[b""] * 100, None]
        asking = [asyncio.create_task(get(connections)) for _ in range(2)]
        await until(lambda: len(server.requests) == 22)
        with pytest.raises(CannotConnect, match="in use"):
            await get(connections, seconds=0.02)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        server.answer = lambda number: OK
        assert (await get(connections)).body == b"ok"
        connections.close()

    run(work)


def test_requests_under_way_end_when_the_client_closes() -> None:
    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: [b"HTTP/1.1 200 OK\r\n", *[b""] * 1000]
        connections = Connections(url, 2)
        asking = asyncio.create_task(get(connections))
        await until(lambda: server.requests)
        connections.close()
        with pytest.raises(ConnectionLost):
            await asking
        server.answer = lambda number: OK
        assert (await get(connections)).body == b"ok"
        connections.close()

    run(work)


def test_a_port_without_a_server_raises_cannot_connect() -> None:
    async def work(server: Server, url: str) -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        listening.close()
        await listening.wait_closed()
        with pytest.raises(CannotConnect):
            await get(Connections(f"http://127.0.0.1:{port}", 1))

    run(work)


def test_a_header_cannot_smuggle_another() -> None:
    async def work(server: Server, url: str) -> None:
        connections = Connections(url, 1)
        for value in ("a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rX-Evil: 1", "a\0b"):
            with pytest.raises(ValueError, match="line breaks"):
                await get(connections, Key=value)
        assert server.requests == []

    run(work)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://a:b", "http://a:99999", ""])
def test_an_invalid_url_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Connections(url, 1)
