"""The client of Redis, as everything in a gateway shares it."""

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
"""What a call of Redis raises. RuntimeError: uvloop's, where the connection was closed before the first word on it."""


def redis_client(url: str) -> Redis:
    """A client that sends a command again, once and at once, when the connection it had was closed meanwhile.

    After a restart of Redis, or where idle connections are closed on the way, that one says nothing about Redis; what
    gateways write stands the same when it is written twice.
    """
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, socket_connect_timeout=CONNECT_TIMEOUT_S, retry=Retry(NoBackoff(), 1)
    )
    return Redis.from_pool(pool)


class OwnConnection:
    """A connection for who sends all the time: what the client does around a command costs more than the command.

    What a connection that was closed meanwhile took is sent again, as by `redis_client`. How long to wait is for who
    awaits it to know.
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
        """What is cancelled, or fails half-way, closes the connection: nobody takes its answers for those of the next."""
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
