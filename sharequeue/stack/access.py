"""Keys and rights in the database itself, without a gateway: the first key of a deployment, and the way back in when
the last one is lost. Running services learn of a change as of any other."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

from sharequeue import access_store
from sharequeue.protocol.access.keys import Key
from sharequeue.protocol.messages.access import CreateKeyRequest, KeyDescription
from sharequeue.stack.checks import StoreError, faults_of, once
from sharequeue_http.forms.api import Api

OPTION: Final = "--database-url"


async def act(url: str, api: Api, path: Mapping[str, str], request: Any) -> Any:
    """Do in the database what a call of keys or rights does. Returns: its answer. Raises: StoreError; ApiError."""
    return await _in_transaction(url, lambda connection: access_store.act(connection, api, path, request))


async def store_key(url: str, key: Key, request: CreateKeyRequest) -> KeyDescription:
    """Store a key that was made elsewhere, if it is not there yet. Raises: StoreError; ApiError."""
    stored: KeyDescription = await _in_transaction(
        url, lambda connection: access_store.store_key(connection, key, request)
    )
    return stored


async def _in_transaction(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    with faults_of(url, OPTION):
        async with once(url) as connection:
            try:
                async with connection.transaction():
                    return await work(connection)
            except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
                detail = "the database has no tables for keys and rights: run `sharequeue migrate` first"
                raise StoreError(detail) from None
