"""A dedicated connection to Redis: every answer belongs to its command, even after failed or late ones."""

import asyncio
import os
import signal
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.exceptions import NoScriptError, RedisError, ResponseError
from sharequeue_gateway.cluster.redis_client import LOST, redis_client
from sharequeue_gateway.locks.lock_writer import OwnConnection

from sharequeue.stack import redis as redis_server


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
        assert await connection.execute([["ECHO", "a"], ["ECHO", b"\0\xff"], ["ECHO", 7]]) == [b"a", b"\0\xff", b"7"]
        rounds = [connection.execute([["ECHO", number]]) for number in range(20)]
        assert await asyncio.gather(*rounds) == [[b"%d" % number] for number in range(20)]


async def test_a_failed_command_takes_no_answer_of_the_next_round(redis_url: str) -> None:
    async with connected(redis_url) as connection:
        with pytest.raises(NoScriptError):
            await connection.execute([["ECHO", "a"], ["EVALSHA", "0" * 40, 0], ["ECHO", "b"], ["NONSENSE"]])
        assert await connection.execute([["ECHO", "c"]]) == [b"c"]
        with pytest.raises(ResponseError):
            await connection.execute([["NONSENSE"]])
        assert await connection.execute([["ECHO", "d"]]) == [b"d"]


async def test_a_late_answer_is_discarded(tmp_path: Path) -> None:
    server = redis_server.Redis(tmp_path)
    server.start()
    try:
        async with connected(server.url) as connection:
            assert await connection.execute([["ECHO", "a"]]) == [b"a"]
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await connection.execute([["ECHO", "late"], ["ECHO", "later"]])
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert await connection.execute([["ECHO", "b"]]) == [b"b"]
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
                assert await connection.execute([["ECHO", "a"]]) == [b"a"]
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


async def test_a_fault_of_the_client_itself_ends_its_connection(redis_url: str) -> None:
    """Otherwise the next command would read the answer of this one."""
    async with connected(redis_url) as connection:
        assert await connection.execute([["ECHO", "a"]]) == [b"a"]
        with failing_once(connection._connection):
            with pytest.raises(RedisError, match="redis-py failed: AttributeError"):
                await connection.execute([["ECHO", "b"], ["ECHO", "c"]])
            assert not connection._connection.is_connected
            assert await connection.execute([["ECHO", "d"]]) == [b"d"]


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
