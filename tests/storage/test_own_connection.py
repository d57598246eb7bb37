"""A dedicated connection to Redis: every answer belongs to its command, even after failed or late ones."""

import asyncio
import os
import signal
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.exceptions import InvalidResponse, RedisError, ResponseError
from sharequeue_gateway.cluster.redis_client import LOST, OwnConnection, redis_client

from sharequeue.stack import redis as redis_server
from tests.certificates import Authority

WAIT_S = 20.0


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[OwnConnection]:
    redis = redis_client(url)
    connection = OwnConnection(redis)
    try:
        yield connection
    finally:
        await connection.close()
        await redis.aclose()


async def test_commands_are_answered_in_order(redis_url: str) -> None:
    async with connected(redis_url) as connection:
        assert await connection.execute([["ECHO", "a"], ["ECHO", b"\0\xff"], ["ECHO", 7]], WAIT_S) == [
            b"a",
            b"\0\xff",
            b"7",
        ]
        rounds = [connection.execute([["ECHO", number]], WAIT_S) for number in range(20)]
        assert await asyncio.gather(*rounds) == [[b"%d" % number] for number in range(20)]


async def test_a_failed_command_takes_no_answer_of_the_next_round(redis_url: str) -> None:
    async with connected(redis_url) as connection:
        with pytest.raises(ResponseError, match="NOSCRIPT"):
            await connection.execute([["ECHO", "a"], ["EVALSHA", "0" * 40, 0], ["ECHO", "b"], ["NONSENSE"]], WAIT_S)
        assert await connection.execute([["ECHO", "c"]], WAIT_S) == [b"c"]
        with pytest.raises(ResponseError):
            await connection.execute([["NONSENSE"]], WAIT_S)
        assert await connection.execute([["ECHO", "d"]], WAIT_S) == [b"d"]


@pytest.mark.parametrize("by", ["timeout", "caller"])
async def test_a_late_answer_is_discarded(tmp_path: Path, by: str) -> None:
    server = redis_server.Redis(tmp_path)
    server.start()
    try:
        async with connected(server.url) as connection:
            assert await connection.execute([["ECHO", "a"]], WAIT_S) == [b"a"]
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05 if by == "caller" else None):
                        await connection.execute(
                            [["ECHO", "late"], ["ECHO", "later"]], WAIT_S if by == "caller" else 0.05
                        )
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert await connection.execute([["ECHO", "b"]], WAIT_S) == [b"b"]
    finally:
        server.stop()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does this with each connection, one after another. Yields: its port."""

    def accept() -> None:
        with suppress(OSError):  # the server is closed
            while True:
                serve(server.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_hangs_up_at_once_counts_as_unreachable() -> None:
    """Where it does so before the first word is sent, uvloop raises what the client does not expect:
    once in 300 tries."""

    async def ask(port: int) -> None:
        redis = redis_client(f"redis://127.0.0.1:{port}/0")
        for _ in range(1000):
            with suppress(*LOST):
                await redis.ping()
                pytest.fail("nobody is there to answer")
        await redis.aclose()

    with serving(reset) as port:
        uvloop.run(ask(port))


def test_a_connection_that_was_reset_is_replaced() -> None:
    """The commands on it did not reach Redis: uvloop raises an exception of its own."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        """Answer as Redis would; reset the connection at the first ECHO."""
        with connection.makefile("rb") as received:
            while line := received.readline():
                words = [received.read(int(received.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                if words[0] != b"ECHO":
                    connection.sendall(b"-ERR no\r\n" if words[0] == b"HELLO" else b"+OK\r\n")
                    continue
                connection.sendall(b"+%b\r\n" % words[1])
                break
        reset(connection)
        ended.set()

    async def ask(port: int) -> None:
        async with connected(f"redis://127.0.0.1:{port}/0?protocol=2") as connection:
            for _ in range(3):
                assert await connection.execute([["ECHO", "a"]], WAIT_S) == [b"a"]
                assert await asyncio.to_thread(ended.wait, 10)
                ended.clear()

    with serving(answer) as port:
        uvloop.run(ask(port))


@contextmanager
def failing_once(of: object) -> Iterator[None]:
    """The client itself fails at its next answer, as when a connection closes while the loop stands still.
    `of`: a connection or a parser of its kind."""
    parser: Any = type(of)
    read_response, failed = parser.read_response, []

    async def read(self: Any, *arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(self)
            raise AttributeError("'NoneType' object has no attribute 'read'")
        return await read_response(self, *arguments, **options)

    parser.read_response = read
    try:
        yield
    finally:
        parser.read_response = read_response
    assert failed


@asynccontextmanager
async def in_front_of(redis: redis_server.Redis, kind: str, home: Path) -> AsyncIterator[str]:
    """Serve a Redis over TLS, or at a socket of the file system. Yields: its URL without scheme and login."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", redis.port)
        with suppress(OSError):
            await asyncio.gather(copy(reader, back), copy(there, writer))

    authority = Authority(home / "authority")
    if kind == "unix":
        server = await asyncio.start_unix_server(serve, home / "socket")
        yield f"{home / 'socket'}?db=1"
    else:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*authority.pair("redis", "localhost" if kind == "rediss" else "elsewhere"))
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        yield f"localhost:{server.sockets[0].getsockname()[1]}/1?ssl_ca_certs={authority.file}"
    server.close()


@pytest.mark.parametrize("kind", ["rediss", "unix"])
async def test_the_url_says_how_to_connect_log_in_and_which_database(tmp_path: Path, kind: str) -> None:
    server = redis_server.Redis(tmp_path, databases=2, password="secret")
    server.start()
    try:
        async with in_front_of(server, kind, tmp_path) as place:
            async with connected(f"{kind}://:secret@{place}") as connection:
                await connection.execute(
                    [["SET", "a", 1], ["ACL", "SETUSER", "u", "on", ">own", "~*", "+@all"]], WAIT_S
                )
            async with connected(f"{kind}://u:own@{place}") as connection:
                assert await connection.execute([["GET", "a"], ["ACL", "WHOAMI"]], WAIT_S) == [b"1", b"u"]
            async with connected(f"{kind}://u:wrong@{place}") as connection:
                with pytest.raises(ResponseError, match="WRONGPASS"):
                    await connection.execute([["GET", "a"]], WAIT_S)
        async with connected(f"redis://:secret@127.0.0.1:{server.port}/7") as connection:
            for _ in range(2):  # no command goes to another database
                with pytest.raises(ResponseError, match="DB index is out of range"):
                    await connection.execute([["FLUSHALL"]], WAIT_S)
        async with (
            in_front_of(server, "elsewhere", tmp_path) as place,
            connected(f"rediss://:secret@{place}") as connection,
        ):
            with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
                await connection.execute([["GET", "a"]], WAIT_S)
    finally:
        server.stop()


def test_a_redis_that_takes_no_more_connections_says_so() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"-ERR max number of clients reached\r\n")
        connection.close()

    async def ask(port: int) -> None:
        async with connected(f"redis://:secret@127.0.0.1:{port}/1") as connection:
            with pytest.raises(ResponseError, match="max number of clients"):
                await connection.execute([["ECHO", "a"]], WAIT_S)

    with serving(refuse) as port:
        uvloop.run(ask(port))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b"<html>\r\n", InvalidResponse),
        (b"-LOADING from disk\r\n", ResponseError),
        (b"+a\r\n+b\r\n", InvalidResponse),
    ],
)
def test_an_answer_that_is_none_is_a_fault(said: bytes, fault: type[Exception]) -> None:
    """A proxy in front of Redis may send a page of its own, and a Redis that starts refuses commands."""

    def answer(connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            while line := received.readline():
                words = [received.read(int(received.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                connection.sendall(said if words[0] == b"ECHO" else b"+OK\r\n")

    async def ask(port: int) -> None:
        async with connected(f"redis://127.0.0.1:{port}/0") as connection:
            with pytest.raises(fault):
                await connection.execute([["ECHO", "a"]], WAIT_S)

    with serving(answer) as port:
        uvloop.run(ask(port))


async def test_a_fault_of_the_client_itself_in_a_command_is_one_of_its_faults(redis_url: str) -> None:
    redis = redis_client(redis_url)
    try:
        assert await redis.echo("a") == b"a"
        with failing_once(redis.connection_pool.make_connection()._parser):
            with pytest.raises(RedisError, match="redis-py failed: AttributeError"):
                await redis.echo("b")
            assert await redis.echo("c") == b"c"
    finally:
        await redis.aclose()
