"""The client of Redis, of which a gateway has one, and the names of keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sharequeue.protocol.types import SharePartitionKey

MAX_CONNECTIONS: Final = 8
CONNECT_TIMEOUT_S: Final = 5  # each caller sets its own timeout
LOST: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""The exceptions of a call to Redis. RuntimeError: uvloop raises it if the connection closed before its first use."""


@contextmanager
def asking() -> Iterator[None]:
    """Make a fault of redis-py itself one of LOST, as when a connection closed while the event loop stood still."""
    try:
        yield
    except LOST:
        raise
    except Exception as fault:
        raise RedisError(f"redis-py failed: {fault!r}") from fault


class RedisKeys(NamedTuple):
    """The names of keys and of the channel. Clusters that share a Redis have none in common: each has its own id."""

    cluster_id: str = ""

    def leader(self, key: SharePartitionKey) -> str:
        return f"sharequeue:{self.cluster_id}:leader:{key.topic_id}:{key.partition}:{key.group_id}"

    def locks(self, key: SharePartitionKey, leader_epoch: int | str = "") -> str:
        """The name of a leader's locks. Without an epoch: its begin."""
        return f"sharequeue:{self.cluster_id}:locks:{key.topic_id}:{key.partition}:{key.group_id}:{leader_epoch}"

    def fetch(self, name: str) -> str:
        return f"sharequeue:{self.cluster_id}:fetch:{name}"

    def mark(self, node_id: str) -> str:
        return f"sharequeue:{self.cluster_id}:mark:{node_id}"

    def probe(self, node_id: str) -> str:
        return f"sharequeue:{self.cluster_id}:probe:{node_id}"

    @property
    def appended(self) -> str:
        return f"sharequeue:{self.cluster_id}:appended"


class _Client(Redis):
    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        with asking():
            return await super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]


def redis_client(url: str) -> Redis:
    """Make a client. If its connection is closed, it repeats a command once, without a pause.

    A restart of Redis closes connections, and so does a proxy when they are idle: Redis need not be away. A repeat is
    safe, because each write of a gateway may happen twice.
    """
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, socket_connect_timeout=CONNECT_TIMEOUT_S, retry=Retry(NoBackoff(), 1)
    )
    return _Client.from_pool(pool)
