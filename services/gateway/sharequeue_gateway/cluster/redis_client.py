"""The client of Redis, as everything in a gateway shares it."""

from typing import Final

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

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
