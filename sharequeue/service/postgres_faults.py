"""The meaning of each failure of PostgreSQL, for all services: one table, by SQLSTATE.

Callers receive the sentence of the table. PostgreSQL's own text names files, tables and values, so only the log has it.
Source: PostgreSQL, appendix A, error codes.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import asyncpg

from sharequeue.postgres_connection import UnfitStore

LOST: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # asyncpg raises it when the server closes a connection that is just being taken into use
)
"""The connection was lost or not made. A statement that was sent over it may have been executed."""
FAULTS: Final = (*LOST, asyncpg.PostgresError)
"""Everything that a statement may raise. TimeoutError is an OSError."""


class Meaning(NamedTuple):
    """The conclusion from a failure.

    `sentence`: what is wrong and what to do.
    `passes`: the same statement may succeed later; otherwise the statement itself is at fault.
    `definite`: the statement certainly did nothing.
    `unwritable`: no statement can write until an operator acts.
    """

    sentence: str
    passes: bool = True
    definite: bool = True
    unwritable: bool = False


_AWAY: Final = Meaning("PostgreSQL cannot be reached, or closed the connection", definite=False)
_SILENT: Final = Meaning("PostgreSQL does not answer", definite=False)
_CLOSED: Final = Meaning("PostgreSQL refuses connections: it does not run at that address", definite=False)
_STOPS: Final = Meaning("PostgreSQL is starting or stopping", definite=False)
_FILES: Final = Meaning("PostgreSQL cannot use its files: look into its log", unwritable=True)
_BUSY: Final = Meaning("PostgreSQL was busy with others: try again")
_LOGIN: Final = Meaning("PostgreSQL refuses the database or its user: check DATABASE_URL, and the rights there")
_OWN: Final = Meaning("PostgreSQL refuses the statement; the log of this service says why", passes=False)

MEANINGS: Final[Mapping[str, Meaning]] = {
    "08": _AWAY,
    "25006": Meaning("PostgreSQL takes no writes: it is read-only, or a standby", unwritable=True),
    "28": _LOGIN,
    "3D000": _LOGIN,
    "40": _BUSY,
    "40003": _AWAY,
    "42501": _LOGIN,
    "53": Meaning("PostgreSQL has no resources left: look into its log"),
    "53100": Meaning("PostgreSQL has no disk space left: free or add some", unwritable=True),
    "53200": Meaning("PostgreSQL has no memory left"),
    "53300": Meaning("PostgreSQL takes no more connections: raise its max_connections"),
    "55000": _LOGIN,
    "55006": _BUSY,
    "55P03": _BUSY,
    "57014": Meaning("PostgreSQL took too long, and the statement was cancelled"),
    "57": _STOPS,
    "58": _FILES,
    "F0": _FILES,
    "XX": Meaning("PostgreSQL failed: look into its log"),
}
"""By SQLSTATE or by its beginning; the longest match decides. Without a match the statement is at fault."""


def meaning_of(fault: BaseException) -> Meaning:
    """Return what one of FAULTS means, or an exception of the driver for a value that it cannot encode."""
    if isinstance(fault, UnfitStore):
        return Meaning(str(fault))
    sqlstate = sqlstate_of(fault)
    if isinstance(fault, asyncpg.PostgresError) and sqlstate is not None:
        for length in (5, 3, 2):
            found = MEANINGS.get(sqlstate[:length])
            if found is not None:
                return found
        return _OWN
    if isinstance(fault, TimeoutError):
        return _SILENT
    if isinstance(fault, ConnectionRefusedError):
        return _CLOSED
    return _AWAY if isinstance(fault, LOST) and not isinstance(fault, ValueError) else _OWN


@contextmanager
def terminated_at(connection: Any, end_s: float) -> Iterator[None]:
    """Terminate a connection at a time of the event loop. Raises: TimeoutError: a statement was under way then."""
    late = False

    def terminate() -> None:
        nonlocal late
        late = True
        connection.terminate()

    end = asyncio.get_running_loop().call_at(end_s, terminate)
    try:
        yield
    except LOST as fault:
        if late:
            raise TimeoutError("terminated at the deadline") from fault
        raise
    finally:
        end.cancel()


def end_if_unreplicated(connection: Any, message: Any) -> None:
    """A listener for the log messages of a connection: end it if a commit did not wait for its standby.

    PostgreSQL answers such a commit as done, and only warns. asyncpg calls this before the statement returns.
    """
    if getattr(message, "server_source_function", None) == "SyncRepWaitForLSN":
        connection.terminate()


def check_replicated(connection: Any) -> None:
    """Call this after a commit. Raises: ConnectionDoesNotExistError: `end_if_unreplicated` ended the connection."""
    if connection.is_closed():
        raise asyncpg.ConnectionDoesNotExistError("the commit may not have reached the standby")


def sqlstate_of(fault: BaseException) -> str | None:
    """The SQLSTATE of a fault, five characters, given by PostgreSQL or by its driver."""
    sqlstate = getattr(fault, "sqlstate", None)
    return sqlstate if isinstance(sqlstate, str) else None
