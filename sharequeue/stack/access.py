"""Keys and rights in the database itself, without a gateway: the first key of a deployment, and the way back in when
the last one is lost. Running services learn of a change as of any other."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

from sharequeue import access_store
from sharequeue.protocol.access.keys import Key
from sharequeue.protocol.messages.access import CreateKeyRequest, KeyDescription
from sharequeue.stack.checks import ANSWER_SECONDS, StoreError, place_of, reason_of
from sharequeue_http.forms.api import Api

OPTION: Final = "--database-url"


async def act(url: str, api: Api, path: Mapping[str, str], request: Any) -> Any:
    """Do in the database what a call of keys or rights does. Returns: its answer. Raises: StoreError; ApiError."""
    found = next(each for each in access_store.ACTS if each.api is api)
    return await _in_transaction(url, lambda connection: found.run(connection, path, request))


async def store_key(url: str, key: Key, request: CreateKeyRequest) -> KeyDescription:
    """Store a key that was made elsewhere, if it is not there yet. Raises: StoreError; ApiError."""
    stored: KeyDescription = await _in_transaction(
        url, lambda connection: access_store.store_key(connection, key, request)
    )
    return stored


async def _in_transaction(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    try:
        connection = await asyncpg.connect(url, timeout=ANSWER_SECONDS)
        try:
            async with connection.transaction():
                return await work(connection)
        finally:
            await connection.close(timeout=ANSWER_SECONDS)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        raise StoreError("the database has no tables for keys and rights: run `sharequeue migrate` first") from None
    except TimeoutError:
        raise StoreError(f"{place_of(url, 5432, 'PostgreSQL', OPTION)}: no answer within {ANSWER_SECONDS} s") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as fault:
        raise StoreError(f"{place_of(url, 5432, 'PostgreSQL', OPTION)}: {reason_of(fault)}") from None
