"""Decides whether PostgreSQL is still the one that a service remembers.

A fail-over, a restore or a crash may put an older state in the place of the one that a service has read. Each of them
starts a server. So each connection learns, before anything else uses it, which start of which server it reached:

    connect ─▶ learn ─┬─ the known start ─────────────────────────▶ use
                      └─ another one ─▶ `look` ─▶ `forget` all ─▶ use

Other connections wait for that. A statement that rests on memory from before is refused (`check`). Memory is
dropped after every start, because no number tells for sure that nothing is lost: others may have written since.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
from prometheus_client import Counter

from sharequeue.service.postgres_faults import end_if_unreplicated
from sharequeue_http.distribution import OfEachService
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

TOLD_S: Final = 3600.0
"""How long `/readyz` tells that the store went back."""
SERVER: Final = """
SELECT extract(epoch FROM pg_postmaster_start_time())::text, c.system_identifier::text || '/' ||
  CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
FROM pg_control_system() c
"""
STARTS: Final = OfEachService(
    Counter,
    "sharequeue_postgres_starts",
    "Starts of PostgreSQL that this service met; each time it dropped all it remembered.",
)
WENT_BACK: Final = OfEachService(
    Counter,
    "sharequeue_postgres_went_back",
    "Times that PostgreSQL had lost data which this service had seen, or had failed over and may have lost some.",
)


class TimeLine:
    """The server of one database, as one process knows it. `number`: how many further starts it has met.

    `look`: called with a connection and the history at each start, the first one too, before anything else uses it. It
    returns what shows that the store went back, if it finds anything.
    """

    def __init__(self, look: Callable[[Any, str], Awaitable[str | None]] | None = None) -> None:
        self.number = 0
        self.started = ""
        """When the server was started; empty before a connection has learned it, as for `_history`."""
        self._history = ""
        """The server's system identifier and time line, which a fail-over and a restore to a point in time change."""
        self._learning = asyncio.Lock()
        self._look = look
        self._forget: list[Callable[[], None]] = []
        self._told: tuple[float, str] | None = None

    def forget(self, drop: Callable[[], None]) -> None:
        """Call `drop` at each further start: it drops memory, and writes none of it."""
        self._forget.append(drop)

    async def set_up(self, connection: Any) -> Any:
        """`learn`, or end the connection, as well as after a commit that did not wait for its standby.

        Returns: the connection.
        """
        try:
            connection.add_log_listener(end_if_unreplicated)
            await self.learn(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def learn(self, connection: Any) -> None:
        """Learn which server a new connection reached.

        Raises: ReadOnlySQLTransactionError: it is a standby, which may become anything.
        """
        started, history = await connection.fetchrow(SERVER)
        if history is None:
            raise asyncpg.ReadOnlySQLTransactionError("the server is a standby")
        async with self._learning:
            if (started, history) == (self.started, self._history):
                return
            before = self._history
            sign = None if self._look is None else await self._look(connection, history)
            if sign is None and before not in ("", history):
                sign = f"it failed over or was restored: {before} became {history}"
            self.started, self._history = started, history
            if before:
                self._drop()
                STARTS().inc()
                log.warning("PostgreSQL was started again: all that was remembered is dropped")
            if sign is not None:
                self.went_back(sign)

    def went_back(self, sign: str) -> None:
        """Tell that the store may have lost what was answered before."""
        WENT_BACK().inc()
        self._told = (time.monotonic() + TOLD_S, f"went back, and what it lost is gone: {sign}")
        log.error("PostgreSQL went back: what it lost is gone", extra=fields(cause=sign))

    def found_older(self, sign: str) -> None:
        """A number in the store is below one that this process has seen: drop all memory, without a new connection."""
        self._drop()
        self.went_back(sign)

    def _drop(self) -> None:
        self.number += 1
        for drop in self._forget:
            drop()

    @property
    def told(self) -> str | None:
        """Return what `/readyz` tells."""
        return self._told[1] if self._told is not None and time.monotonic() < self._told[0] else None

    def check(self, number: int) -> None:
        """Refuse a statement that was decided at `number`. Raises: ConnectionDoesNotExistError."""
        if number != self.number:
            raise asyncpg.ConnectionDoesNotExistError("PostgreSQL was started again since the statement was decided")
