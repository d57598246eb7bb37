"""The database of the record log: connections of a pool, connections outside of it, and the meaning of their faults."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from sharequeue import postgres_connection
from sharequeue.protocol.errors import StorageError
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue.service.time_line import TimeLine
from sharequeue_gateway.record_log import time_lines
from sharequeue_gateway.record_log.connections import Connections
from sharequeue_gateway.record_log.record_batch import CorruptBatch
from sharequeue_gateway.record_log.store import Asked, Found, Given

STATEMENT_TIMEOUT_S: Final = 15
CONNECT_TIMEOUT_S: Final = 5
SETTINGS: Final = {"statement_timeout": f"{STATEMENT_TIMEOUT_S}s", "idle_in_transaction_session_timeout": "10s"}
APPEND_SETTINGS: Final = {**SETTINGS, "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""Each statement of an append is planned once: for arrays, PostgreSQL would plan each time, which takes longer than the
append. The plan must suit tables that grow."""
BY_OTHERS: Final = "another gateway found that"
TRY_WRITE: Final = f"""
INSERT INTO log.record_batches
  (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records)
VALUES (gen_random_uuid(), 0, 0, 0, 0, 0, gen_random_uuid(), {SOME_BYTES})
"""
CLUSTER_ID: Final = """
SELECT left(encode(sha256(convert_to(concat_ws(' ', cluster_id, (pg_control_system()).system_identifier,
  (SELECT oid FROM pg_database WHERE datname = current_database())), 'UTF8')), 'hex'), 16) FROM log.cluster
"""


TopicsExist = Callable[[Collection[str]], Awaitable[bool]]


async def _assumed(_: Collection[str]) -> bool:
    return True


class LogDatabase:
    """The connections to PostgreSQL. Make it with `open`, end it with `close`."""

    connections: Connections

    def __init__(
        self,
        url: str,
        known_ends: Callable[[], time_lines.Ends],
        topics_exist: TopicsExist,
    ) -> None:
        self._url = url
        self.time_line: Final = TimeLine(self._begin)
        self.known_ends: Final = known_ends
        self.topics_exist: Final = topics_exist
        self._skips: int | None = None
        self.health = PostgresHealth(partial(self.connect, "health"), TRY_WRITE)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        known_ends: Callable[[], time_lines.Ends] = dict,
        topics_exist: TopicsExist = _assumed,
        connections: int = 8,
    ) -> "LogDatabase":
        """Connect.

        Args:
            known_ends: the log ends that this gateway has seen: see `time_lines`.
            topics_exist: asks whether topics still exist, after a further start of PostgreSQL.
        Raises: the driver's errors, if the database cannot be reached.
        """
        database = cls(url, known_ends, topics_exist)
        pool = await postgres_connection.open_pool(
            url,
            "sharequeue-gateway-log",
            SETTINGS,
            database.time_line.learn,
            connections=connections,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
        )
        database.connections = Connections(pool, database.time_line)
        await database.health.look()
        return database

    async def _begin(self, connection: Any, history: str) -> str | None:
        before = self._skips
        self._skips, sign = await time_lines.begin(connection, history, self.known_ends())
        return BY_OTHERS if sign is None and before not in (None, self._skips) else sign

    @property
    def ever_skipped(self) -> bool:
        """Return whether the log has offsets that were skipped because it went back."""
        return bool(self._skips)

    async def look_back(self) -> None:
        """Drop all memory if another gateway found that the log went back, and this one has met no start since."""
        found = await self.query(time_lines.skips)
        if found != self._skips:
            self._skips = found
            self.time_line.found_older(BY_OTHERS)

    async def skip(self, known: time_lines.Ends, sign: str) -> None:
        """The log went back, and no connection was lost: a pooler may have hidden that."""
        self._skips = await self.query(time_lines.skip, known)
        self.time_line.found_older(sign)

    async def close(self) -> None:
        self.connections.close()
        await self.health.close()

    async def connect(self, name: str, settings: Mapping[str, str] = SETTINGS) -> Any:
        """Open a connection outside of the pool. `name`: shown in PostgreSQL's list of connections."""
        name = f"sharequeue-gateway-{name}"
        connection = await postgres_connection.connect(self._url, name, settings, timeout=CONNECT_TIMEOUT_S)
        return await self.time_line.set_up(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection of the pool for one use. Raises: StorageError for every fault of the database."""
        try:
            async with self.connections.lend(STATEMENT_TIMEOUT_S, wait_s=CONNECT_TIMEOUT_S) as connection:
                yield connection
        except FAULTS as fault:
            raise self.health.error(fault, "the record log cannot be used") from fault
        except CorruptBatch as fault:
            self.health.log_failure("corrupt batch", logging.ERROR, str(fault))
            raise StorageError(f"the record log cannot be read: {fault}") from fault

    @asynccontextmanager
    async def transaction(self, seconds: float, failed: str) -> AsyncIterator[Any]:
        """A connection in a transaction, for `seconds` at most. Raises: StorageError, which begins with `failed`."""
        try:
            async with self.connections.lend(seconds) as connection, connection.transaction():
                yield connection
        except FAULTS as fault:
            raise self.health.error(fault, failed) from fault

    async def query(self, function: Asked[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Call a function with a connection and arguments. Raises: StorageError."""
        async with self.connection() as connection:
            return await function(connection, *given, **named)

    async def cluster_id(self) -> str:
        """The id that `migrate` made, with the identity of this database: a copy of it elsewhere has another one."""
        async with self.connection() as connection:
            return str(await connection.fetchval(CLUSTER_ID))

    async def now_ms(self) -> float:
        """Milliseconds since the epoch by PostgreSQL's clock."""
        async with self.connection() as connection:
            return float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"))
