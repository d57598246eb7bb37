"""Connections of a pool, lent until a deadline. One that hangs is terminated: nothing is awaited of it, no rollback either."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

from sharequeue.service.postgres_faults import LOST

LEAST_S: Final = 0.1
"""The least time that a late caller gets."""
GIVE_BACK_S: Final = 5.0


class Connections:
    """`pool`: of asyncpg."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._given_back: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lend(
        self, seconds: float, wait_s: float | None = None, lent_s: float | None = None
    ) -> AsyncIterator[Any]:
        """A connection for so long; then it is terminated, and who awaits it has lost it. Raises: LOST.

        `wait_s`: how much of that time may go by until one is free; all of it when absent.
        `lent_s`: for how long it is lent from when it is there, instead of what is left of that time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + max(seconds, LEAST_S)
        connection = await self._pool.acquire(timeout=max(seconds, LEAST_S) if wait_s is None else wait_s)
        end = loop.call_at(until if lent_s is None else loop.time() + lent_s, connection.terminate)
        try:
            yield connection
        finally:
            end.cancel()
            task = loop.create_task(self._give_back(connection))
            self._given_back.add(task)
            task.add_done_callback(self._given_back.discard)

    async def _give_back(self, connection: Any) -> None:
        """Nobody waits for the connection to be made ready for others; what it was lent for has its outcome."""
        with suppress(*LOST, asyncpg.PostgresError):
            await self._pool.release(connection, timeout=GIVE_BACK_S)

    def close(self) -> None:
        self._pool.terminate()
