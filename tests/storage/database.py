"""A connection to a test's database, beside those of the stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from sharequeue.service.failed_looks import FAILED_LOOKS, Loop


@asynccontextmanager
async def session(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def waiting_for_a_lock(connection: Any, application_name: str) -> list[int]:
    """The process ids of backends that wait for a lock, once there are some."""
    while True:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        rows = await connection.fetch(
            """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
               AND wait_event_type = 'Lock' AND application_name = $1""",
            application_name,
        )
        if rows:
            return [row[0] for row in rows]
        await asyncio.sleep(0.01)


def failed_looks(loop: Loop) -> float:
    """How many rounds of a loop have failed in this process."""
    value: float = FAILED_LOOKS().labels(loop)._value.get()
    return value
