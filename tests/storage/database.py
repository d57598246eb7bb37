"""A connection to a test's database, to look behind the stores' backs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg


@asynccontextmanager
async def session(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()
