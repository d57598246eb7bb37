"""Reads and changes keys and rights, at the owner of the cluster's shard. Each answer is durable."""

from typing import Any

from sharequeue.access_store import Connection
from sharequeue_coordinator.database import Database, Fence
from sharequeue_coordinator.metadata.metadata import Metadata


class AccessAdmin:
    """Runs the functions of `sharequeue.access_store`."""

    def __init__(self, database: Database, metadata: Metadata) -> None:
        self._query = database.query
        self._metadata = metadata

    async def change(self, function: Any, *arguments: Any) -> Any:
        """Change something in a transaction of this instance's fence.

        Raises: what the function does; StorageError: its outcome may be unknown.
        """
        changed = await self._query(_fenced, await self._metadata.lead(), function, *arguments)
        self._metadata.look()
        return changed

    async def read(self, function: Any, *arguments: Any) -> Any:
        await self._metadata.lead()
        return await self._query(function, *arguments)


async def _fenced(connection: Connection, fence: Fence, function: Any, *arguments: Any) -> Any:
    async with connection.transaction():
        await connection.execute("SELECT groups.held($1, $2)", *fence)
        return await function(connection, *arguments)
