"""Opens each connection to PostgreSQL, and sets on it what the services rely on. A role, a database or a server may
have other defaults.

A startup parameter would do this, but PgBouncer refuses those that it does not know, or drops them. So each connection
gets its settings by one statement after the login. A pooler that lends one server connection for a whole session
passes them on. A pooler that lends another server connection to each transaction does not, and loses prepared
statements: a service refuses it. Behind any pooler the settings that no wrong answer may come of must be defaults
already, and a connection without them is refused.
"""

import functools
import ssl
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

Learn = Callable[[Any], Awaitable[None]]


class UnfitStore(ConnectionError):
    """A store answers, but no service may use it as it is; the text says why, and what to do."""


NEEDED: Final[Mapping[str, str]] = {
    "synchronous_commit": "on",  # 200 means that the disk has it; only remote_apply is stronger
    "default_transaction_isolation": "read committed",  # a statement reads a row again after it has waited for it
    "standard_conforming_strings": "on",
}
"""With another value, an answer is wrong or a call is refused by chance."""
RELIED_ON: Final[Mapping[str, str]] = {
    **NEEDED,
    "lock_timeout": "0",  # statement_timeout ends a wait for a lock
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    # no timeout ends a transaction whose client is silent between two messages of one statement
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "jit": "off",
}
_SET: Final = """
SELECT s.name, s.reset_val, pg_backend_pid(), current_user, pg_postmaster_start_time(),
  set_config(s.name, CASE s.setting WHEN 'remote_apply' THEN s.setting ELSE wanted.value END, false)
FROM unnest($1::text[], $2::text[]) AS wanted(name, value) JOIN pg_settings s USING (name)
"""
"""A version of PostgreSQL without a setting needs no value of it."""
USELESS: Final = ("25006", "57P")
"""The beginnings of SQLSTATEs that a new connection may not get: this one leads to a server that was made a standby, or
that stops."""
ANSWER_S: Final = 2.0
YOUNG_S: Final = 1.0
"""A connection that is useless so soon is kept: another one would be, too."""

_BY_TRANSACTION: Final = (
    "a pooler in front of PostgreSQL lends a server connection for one transaction only: have it lend one for a whole"
    " session (pool_mode = session in PgBouncer), or name PostgreSQL itself in the URL"
)
_NOT_ITS_CERTIFICATE: Final = (
    "PostgreSQL shows a certificate that is not accepted ({why}): renew it, or mend the host or sslrootcert in"
    " DATABASE_URL"
)
_lent: Final[weakref.WeakValueDictionary[tuple[Any, int], Any]] = weakref.WeakValueDictionary()
"""The connection of this process that a pooler lends a server process: (start of its server, process id)."""


def _whole(method: Any) -> Any:
    """A method of asyncpg that ends its connection if what it raises does not tell what became of the statement."""

    @functools.wraps(method)
    async def whole(self: "_Connection", *arguments: Any, **named: Any) -> Any:
        try:
            return await method(self, *arguments, **named)
        except (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError) as fault:
            raise UnfitStore(_BY_TRANSACTION) from fault
        except asyncpg.PostgresError as fault:
            if str(fault.sqlstate).startswith(USELESS):
                self.useless = time.monotonic() > self.made_at + YOUNG_S
            raise
        except (asyncpg.InterfaceError, OSError, ValueError, OverflowError):  # the last two: nothing was sent
            raise
        except Exception as fault:
            # a fault of asyncpg itself, as when a connection is terminated between two messages of a statement
            self.terminate()
            raise asyncpg.InternalClientError(f"asyncpg failed: {fault!r}") from fault
        finally:
            if self.useless and not self.is_closed() and not self.is_in_transaction():  # its transaction is rolled back
                self.terminate()

    return whole


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg ships no types
    """Raises FAULTS only, or ValueError and OverflowError for a value that cannot be sent; closes itself when it is of
    no use any more."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.made_at = time.monotonic()
        self.useless = False

    execute = _whole(asyncpg.Connection.execute)
    executemany = _whole(asyncpg.Connection.executemany)
    fetch = _whole(asyncpg.Connection.fetch)
    fetchrow = _whole(asyncpg.Connection.fetchrow)
    fetchval = _whole(asyncpg.Connection.fetchval)


async def _open(settings: Mapping[str, str], *arguments: Any, **named: Any) -> Any:
    """As `asyncpg.connect`, with settings. Raises: FAULTS, or ValueError for a URL that cannot be used."""
    try:
        connection = await asyncpg.connect(*arguments, **{**named, "connection_class": _Connection})
    except ssl.SSLCertVerificationError as fault:
        raise UnfitStore(_NOT_ITS_CERTIFICATE.format(why=fault.verify_message)) from fault
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError):
        raise
    except Exception as fault:
        raise asyncpg.InternalClientError(f"asyncpg failed: {fault!r}") from fault
    try:
        await _prepare(settings, connection, named["timeout"])
    except BaseException:
        connection.terminate()
        raise
    return connection


async def connect(
    url: str, name: str, settings: Mapping[str, str], *, timeout: float = 60, command_timeout: float | None = None
) -> Any:
    """Open a connection.

    Args:
        name: shown in PostgreSQL's list of connections.
        settings: of the caller's own, besides RELIED_ON.
    Raises: FAULTS; UnfitStore is one of them.
    """
    return await _open(
        settings, url, timeout=timeout, command_timeout=command_timeout, server_settings={"application_name": name}
    )


async def open_pool(
    url: str,
    name: str,
    settings: Mapping[str, str],
    learn: Learn,
    *,
    connections: int,
    timeout: float,
    command_timeout: float,
) -> Any:
    """Open a pool, of which each connection is as of `connect`. Raises: FAULTS.

    `learn`: called with each connection before anything else uses it.
    """
    return await asyncpg.create_pool(
        url,
        min_size=1,
        max_size=connections,
        timeout=timeout,
        command_timeout=command_timeout,
        server_settings={"application_name": name},
        connect=functools.partial(_open, settings),
        connection_class=_Connection,
        init=learn,
        reset=_nothing_to_reset,
    )


async def _prepare(settings: Mapping[str, str], connection: Any, timeout: float) -> None:
    """Set what a new connection needs. Raises: UnfitStore."""
    wanted = {**RELIED_ON, **settings}
    rows = await connection.fetch(_SET, list(wanted), list(wanted.values()), timeout=timeout)
    if rows[0][2] == connection.get_server_pid():
        return  # a pooler would have answered the login with a number of its own
    server_process = rows[0][4], rows[0][2]
    other = _lent.get(server_process)
    if other is not None and await _lives(other):
        raise UnfitStore(_BY_TRANSACTION)
    _lent[server_process] = connection
    weak = [row for row in rows if row[0] in NEEDED and row[1] not in (NEEDED[row[0]], "remote_apply")]
    if weak:
        remedy = "; ".join(f"ALTER ROLE {row[3]} SET {row[0]} = '{NEEDED[row[0]]}'" for row in weak)
        raise UnfitStore(
            "a pooler is in front of PostgreSQL, and may not pass on what this service sets on a connection:"
            f" run {remedy}, and have the pooler connect again"
        )


async def _lives(connection: Any) -> bool:
    """Return whether a connection is in use or answers. One whose other end is gone is closed."""
    try:
        if not connection.is_closed():
            await connection.fetchval("SELECT 1", timeout=ANSWER_S)
    except asyncpg.InterfaceError:  # another task uses it
        return not connection.is_closed()
    except (asyncpg.PostgresError, OSError):
        connection.terminate()
    return not connection.is_closed()


async def _nothing_to_reset(connection: Any) -> None:
    """No statement here changes its session: settings and advisory locks end with their transaction. So a connection is
    given back without a round trip. A transaction that is still open is rolled back before this."""
