"""The client of Redis, which all of a gateway shares."""

from typing import Final

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

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
