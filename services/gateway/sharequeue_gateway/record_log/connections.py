"""Lends connections of a pool until a deadline. A connection that hangs is terminated without a rollback."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

from sharequeue.service.postgres_faults import LOST, check_replicated, end_if_unreplicated, terminated_at
from sharequeue.service.time_line import TimeLine

LEAST_S: Final = 0.1
"""The shortest time for a caller, even if its deadline has passed."""
GIVE_BACK_S: Final = 5.0


@asynccontextmanager
async def locking(connection: Any, lock_timeout_ms: int) -> AsyncIterator[None]:
    """As `connection.transaction()`, with a lock timeout and one round trip less."""
    await connection.execute(f"BEGIN; SET LOCAL lock_timeout = {lock_timeout_ms}")
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


@asynccontextmanager
async def ends_with(connection: Any) -> AsyncIterator[None]:
    """End a COPY with its connection: asyncpg waits on for room in a socket that is closed. Raises: LOST."""
    loop = asyncio.get_running_loop()
    copying = asyncio.timeout(None)

    def end(_: Any) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            copying.reschedule(loop.time())

    connection.add_termination_listener(end)
    try:
        async with copying:
            yield
    except Exception as fault:  # asyncpg may still write to the socket
        if copying.expired():
            raise asyncpg.ConnectionDoesNotExistError("the connection was closed within a COPY") from fault
        raise
    finally:
        with suppress(asyncpg.InterfaceError):  # a terminated connection has left the pool
            connection.remove_termination_listener(end)


@asynccontextmanager
async def in_turn(
    until: float, turns: Iterable[asyncio.Lock | asyncio.Semaphore], late: Callable[[TimeoutError], Exception]
) -> AsyncIterator[None]:
    """Wait for these, one after the other, and hold them. `until`: of `time.monotonic()`. Raises: what `late` makes."""
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), LEAST_S)):
                for turn in turns:
                    await held.enter_async_context(turn)
        except TimeoutError as fault:
            raise late(fault) from fault
        yield


class Connections:
    """`pool`: of asyncpg. A use that began before a further start of PostgreSQL gets no connection after it."""

    def __init__(self, pool: Any, time_line: TimeLine) -> None:
        self._pool = pool
        self._time_line = time_line
        self._given_back: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lend(
        self, seconds: float, wait_s: float | None = None, lent_s: float | None = None
    ) -> AsyncIterator[Any]:
        """Lend a connection for `seconds`, then terminate it: a statement under way fails with TimeoutError.

        Raises: LOST.

        `wait_s`: the part of `seconds` that may pass until a connection is free; None: all of it.
        `lent_s`: the time for which the connection is lent once it is free; None: the rest of `seconds`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + max(seconds, LEAST_S)
        number = self._time_line.number
        connection = await self._pool.acquire(timeout=max(seconds, LEAST_S) if wait_s is None else wait_s)
        try:
            self._time_line.check(number)
            connection.add_log_listener(end_if_unreplicated)
            with terminated_at(connection, until if lent_s is None else loop.time() + lent_s):
                yield connection
                check_replicated(connection)
        finally:
            with suppress(asyncpg.InterfaceError):  # a terminated connection has left the pool
                connection.remove_log_listener(end_if_unreplicated)
            task = loop.create_task(self._give_back(connection))
            self._given_back.add(task)
            task.add_done_callback(self._given_back.discard)

    async def _give_back(self, connection: Any) -> None:
        """Reset the connection for the next borrower. The last one has its outcome and does not wait for this."""
        with suppress(*LOST, asyncpg.PostgresError):
            await self._pool.release(connection, timeout=GIVE_BACK_S)

    def close(self) -> None:
        self._pool.terminate()
