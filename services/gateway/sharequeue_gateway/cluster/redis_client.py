"""The client of Redis, which all of a gateway shares."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionClosed
from redis.exceptions import RedisError, ResponseError

MAX_CONNECTIONS: Final = 8
CONNECT_TIMEOUT_S: Final = 5  # each caller sets its own timeout
LOST: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""What a call of Redis raises. RuntimeError: uvloop raises it if the connection closed before its first use."""


def redis_client(url: str) -> Redis:
    """A client that repeats a command once, at once, if its connection turns out to be closed.

    After a restart of Redis, or behind a proxy that closes idle connections, a closed connection does not mean that
    Redis is away. Everything that gateways write may be written twice.
    """
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, socket_connect_timeout=CONNECT_TIMEOUT_S, retry=Retry(NoBackoff(), 1)
    )
    return Redis.from_pool(pool)


class OwnConnection:
    """A dedicated connection for the busy writer: the client's work around a command costs more than the command.

    Commands on a connection that was closed are sent again, as by `redis_client`. Callers apply their own timeout.
    """

    def __init__(self, redis: Redis) -> None:
        pool = redis.connection_pool
        self._connection: Any = pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": None})
        self._in_use = asyncio.Lock()

    async def execute(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run commands in one round trip. Returns: their answers. Raises: RedisError, also if one of them failed."""
        packed = b"".join([pack_command(tuple(command)) for command in commands])
        async with self._in_use:
            try:
                return await self._round_trip(packed, len(commands))
            except (ConnectionClosed, RuntimeError):  # uvloop's, as above
                return await self._round_trip(packed, len(commands))

    async def _round_trip(self, packed: bytes, count: int) -> list[Any]:
        """If this is cancelled or fails half-way, the driver closes the connection, so no answer reaches a later command."""
        await self._connection.send_packed_command(packed, check_health=False)
        answers: list[Any] = []
        failed: ResponseError | None = None
        for _ in range(count):
            try:
                answers.append(await self._connection.read_response())
            except ResponseError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return answers

    async def close(self) -> None:
        await self._connection.disconnect()
