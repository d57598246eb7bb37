"""Watches whether a service's PostgreSQL answers and takes writes.

A failed write marks the database as unwritable at once; a test write finds out when it works again. The check has a
connection of its own, so it never waits for another statement. The test write is 16 KiB, because a tiny one can succeed
on a disk that is nearly full; it is rolled back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

from sharequeue.postgres_connection import UnfitStore
from sharequeue.protocol.errors import StorageError
from sharequeue.service.postgres_faults import FAULTS, Meaning, meaning_of, sqlstate_of, terminated_at
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

ANSWER_S: Final = 2.0
CONNECT_S: Final = 5.0
COUNTS_S: Final = 2.0
"""How long a refused write of the service counts, though the test write works: their connections may lead to two
servers."""
LOG_PAUSE_S: Final = 5.0
"""How often the same failure is logged."""
SOME_BYTES: Final = "(SELECT string_agg(sha512(n::text::bytea), '') FROM generate_series(1, 256) n)"
"""SQL: 16 KiB that cannot be compressed."""

SETTINGS: Final = """
SELECT current_setting('transaction_read_only') = 'on', concat_ws(', ', CASE current_setting('fsync') WHEN 'off' THEN 'fsync=off' END,
  CASE current_setting('full_page_writes') WHEN 'off' THEN 'full_page_writes=off' END)
"""


class PostgresHealth:
    """One service's view of its database.

    `connect`: makes a connection. `try_write`: a statement that writes as the service does and works with any data.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], try_write: str) -> None:
        self._connect = connect
        self._try_write = try_write
        self._connection: Any = None
        self._unwritable: str | None = None
        self._refused_s = 0.0
        """When a write was refused last."""
        self._unsafe = ""
        """Settings of the server with which a crash of its machine loses or damages what was answered with 200."""
        self._logged: dict[str, float] = {}

    def note(self, fault: BaseException) -> Meaning:
        """Record that a statement of the service failed. Returns: what that means.
        PostgreSQL's own text goes to the log."""
        meaning = meaning_of(fault)
        if meaning.unwritable:
            self._unwritable, self._refused_s = meaning.sentence, time.monotonic()
        level = logging.ERROR if meaning.unwritable or not meaning.passes else logging.WARNING
        kind, more = sqlstate_of(fault) or type(fault).__name__, fields(cause=repr(fault), sqlstate=sqlstate_of(fault))
        self.log_failure(kind, level, meaning.sentence, more)
        return meaning

    def log_failure(self, kind: str, level: int, sentence: str, more: Mapping[str, Any] | None = None) -> None:
        """Log a failure, unless another one of its kind was logged a moment ago."""
        now = time.monotonic()
        if now >= self._logged.get(kind, 0.0) + LOG_PAUSE_S:
            self._logged[kind] = now
            log.log(level, sentence, extra=more)

    def error(self, fault: BaseException, what: str, *, definite: bool | None = None) -> StorageError:
        """The error to answer where `what` could not be done. `definite`: overrides what the fault alone says."""
        meaning = self.note(fault)
        return StorageError(f"{what}: {meaning.sentence}", definite=meaning.definite if definite is None else definite)

    async def check(self) -> None:
        """Raises: StorageError: PostgreSQL does not answer, is read-only, or refused a write and still does."""
        try:
            async with asyncio.timeout(CONNECT_S):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
            await self._ask(self._connection)
        except FAULTS as fault:
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            raise StorageError(self.note(fault).sentence) from fault

    async def look(self) -> None:
        """Check once, so that the log has what `told` says. A fault is logged, and ends no start, unless no service may
        use this PostgreSQL. Raises: UnfitStore."""
        try:
            await self.check()
        except StorageError as error:
            if isinstance(error.__cause__, UnfitStore):
                raise error.__cause__ from None

    async def _ask(self, connection: Any) -> None:
        with terminated_at(connection, asyncio.get_running_loop().time() + ANSWER_S):
            read_only, unsafe = await connection.fetchrow(SETTINGS)
            self._see_unsafe(unsafe)
            if read_only:
                raise asyncpg.ReadOnlySQLTransactionError("transaction_read_only is on")
            if self._unwritable is None:
                return
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(self._try_write)
            await transaction.rollback()
            if time.monotonic() < self._refused_s + COUNTS_S:
                raise StorageError(self._unwritable)
            self._unwritable = None
            log.info("PostgreSQL takes writes again")

    def _see_unsafe(self, unsafe: str) -> None:
        changed, self._unsafe = unsafe != self._unsafe, unsafe
        if changed and unsafe:
            log.error(self.told()["durability"])

    def told(self) -> dict[str, str]:
        """Return what `/readyz` says about a database that answers and takes writes, but may lose them."""
        sentence = f"PostgreSQL runs with {self._unsafe}: a crash of its machine may lose records, or damage its data"
        return {"durability": sentence} if self._unsafe else {}

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
