"""The client of Redis. One gateway has one."""

from typing import Final

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

MAX_CONNECTIONS: Final = 8
CONNECT_TIMEOUT_S: Final = 5  # each caller sets its own timeout
LOST: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""The exceptions of a call to Redis. RuntimeError: uvloop raises it if the connection closed before its first use."""


def redis_client(url: str) -> Redis:
    """Make a client. If its connection is closed, it repeats a command once, without a pause.

    A restart of Redis closes connections, and so does a proxy when they are idle: Redis need not be away. A repeat is
    safe, because each write of a gateway may happen twice.
    """
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, socket_connect_timeout=CONNECT_TIMEOUT_S, retry=Retry(NoBackoff(), 1)
    )
    return Redis.from_pool(pool)
