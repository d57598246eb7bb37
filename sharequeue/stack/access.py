"""Keys and rights in the database itself, without a gateway: the first key of a deployment, and the way back in when
the last one is lost. Running services learn of a change as of any other."""

from typing import Any

import asyncpg

from sharequeue.stack.checks import StoreError, faults_of, once


async def in_database(url: str, function: Any, *arguments: Any) -> Any:
    """Run a function of `sharequeue.access_store` in a transaction. Raises: StoreError; ApiError."""
    with faults_of(url, "--database-url"):
        async with once(url) as connection:
            try:
                async with connection.transaction():
                    return await function(connection, *arguments)
            except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
                detail = "the database has no tables for keys and rights: run `sharequeue migrate` first"
                raise StoreError(detail) from None
