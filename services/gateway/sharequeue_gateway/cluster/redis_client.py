"""The client of Redis, of which a gateway has one, a connection for one busy writer, and the names of keys."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from hiredis import Reader, pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionClosed
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from sharequeue.protocol.types import SharePartitionKey

MAX_CONNECTIONS: Final = 8
CONNECT_TIMEOUT_S: Final = 5  # each caller sets its own timeout
TURNS: Final = 10
"""The turns of a timeout. Each starts after the one before it has ended, so a loop that stands still uses up one turn:
only time in which the loop runs counts, and a busy loop does not make Redis late."""
LOST: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""The exceptions of a call to Redis. RuntimeError: uvloop raises it if the connection closed before its first use."""
Commands = Sequence[Sequence[Any]]


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


class OwnConnection:
    """A connection for one busy writer. Of redis-py it has only the settings that the URL names: around a command,
    redis-py uses more CPU than the command itself.

    If the connection is closed, the commands are sent once more, as by `redis_client`.
    """

    def __init__(self, redis: Redis) -> None:
        pool = redis.connection_pool
        self._settings: Any = pool.connection_class(**pool.connection_kwargs)
        self._wire: _Wire | None = None
        self._in_use = asyncio.Lock()

    async def execute(self, commands: Commands, timeout_s: float) -> list[Any]:
        """Run commands in one round trip. Returns: their answers. Raises: LOST, also if one of them failed."""
        once_more = True
        async with self._in_use:
            while True:
                try:
                    if self._wire is None or self._wire.transport.is_closing():
                        self._wire = await in_time(self._open(timeout_s), timeout_s)
                    return await self._wire.round_trip(commands, timeout_s)
                except (ConnectionClosed, RuntimeError):  # RuntimeError: see LOST
                    if not once_more:
                        raise
                    once_more = False

    async def _open(self, timeout_s: float) -> "_Wire":
        """Connect, log in and select the database."""
        settings, loop = self._settings, asyncio.get_running_loop()
        if isinstance(settings, UnixDomainSocketConnection):
            transport, wire = await loop.create_unix_connection(_Wire, settings.path)
        else:
            tls = settings.ssl_context.get() if isinstance(settings, SSLConnection) else None
            transport, wire = await loop.create_connection(_Wire, settings.host, settings.port, ssl=tls)
        commands: list[Sequence[Any]] = []
        if settings.username or settings.password:
            commands.append(["AUTH", *filter(None, (settings.username, settings.password or ""))])
        if settings.db:
            commands.append(["SELECT", settings.db])
        try:
            if commands:
                await wire.round_trip(commands, timeout_s)
        except ResponseError:
            transport.abort()
            raise
        return wire

    async def close(self) -> None:
        if self._wire is not None:
            self._wire.transport.abort()


class _Wire(asyncio.Protocol):
    """The bytes of one connection, in version 2 of the protocol, in which Redis sends nothing unasked."""

    transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self) -> None:
        self._reader = Reader(protocolError=InvalidResponse, replyError=ResponseError)
        self._loop = asyncio.get_running_loop()
        self._answers: list[Any] = []
        self._count = 0
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._answered.cancel()  # nothing is asked yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def round_trip(self, commands: Commands, timeout_s: float) -> list[Any]:
        """Returns: the answers. Raises: ResponseError, if one of them is one. All else that it raises ends the
        connection, or the next round trip would read late answers."""
        if self.transport.is_closing():
            raise ConnectionClosed("Redis has closed the connection")
        packed = b"".join([pack_command(tuple(command)) for command in commands])
        self._answers, self._count, self._answered = [], len(commands), self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s / TURNS, self._turn, TURNS - 1, timeout_s / TURNS)
        try:
            self.transport.write(packed)
            await self._answered
        except BaseException:
            self.transport.abort()
            raise
        finally:
            self._timer.cancel()
        for answer in self._answers:
            if isinstance(answer, ResponseError):
                raise answer
        return self._answers

    def _turn(self, left: int, pause_s: float) -> None:
        if left:
            self._timer = self._loop.call_later(pause_s, self._turn, left - 1, pause_s)
        else:
            self._end(TimeoutError())

    def _end(self, fault: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(fault)

    def data_received(self, data: bytes) -> None:
        if self._answered.done():  # nobody has asked, so it is the answer of no command
            self.transport.abort()
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                self._answers.append(answer)
        except InvalidResponse as fault:
            self._end(fault)
        if len(self._answers) > self._count:
            self._end(InvalidResponse("more answers than commands"))
        elif len(self._answers) == self._count and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        refused = next((answer for answer in self._answers if isinstance(answer, ResponseError)), None)
        self._end(refused or ConnectionClosed(f"Redis has closed the connection: {exc}"))


async def in_time(call: Awaitable[Any], timeout_s: float) -> Any:
    """Await a call, for TURNS turns at most. Raises: TimeoutError."""
    loop = asyncio.get_running_loop()
    turns = 0
    timer: asyncio.TimerHandle

    def turn() -> None:
        nonlocal turns, timer
        turns += 1
        if turns == TURNS:
            limit.reschedule(loop.time())
        else:
            timer = loop.call_later(timeout_s / TURNS, turn)

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(timeout_s / TURNS, turn)
        try:
            return await call
        finally:
            timer.cancel()
