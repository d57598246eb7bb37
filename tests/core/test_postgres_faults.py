"""The meaning of each failure of PostgreSQL, by its SQLSTATE."""

import asyncpg
import pytest

from sharequeue.service.postgres_faults import meaning_of

CASES = {
    "no disk space": (asyncpg.DiskFullError, (True, True, True)),
    "no memory": (asyncpg.OutOfMemoryError, (True, True, False)),
    "too many connections": (asyncpg.TooManyConnectionsError, (True, True, False)),
    "a file that cannot be read": (asyncpg.PostgresIOError, (True, True, True)),
    "a file that is gone": (asyncpg.UndefinedFileError, (True, True, True)),
    "read-only": (asyncpg.ReadOnlySQLTransactionError, (True, True, True)),
    "a deadlock": (asyncpg.DeadlockDetectedError, (True, True, False)),
    "a serialisation failure": (asyncpg.SerializationError, (True, True, False)),
    "a commit of which nothing is known": (asyncpg.StatementCompletionUnknownError, (True, False, False)),
    "a lock that was not to be had": (asyncpg.LockNotAvailableError, (True, True, False)),
    "a statement that took too long": (asyncpg.QueryCanceledError, (True, True, False)),
    "an administrator's shutdown": (asyncpg.AdminShutdownError, (True, False, False)),
    "a start": (asyncpg.CannotConnectNowError, (True, False, False)),
    "a lost connection": (asyncpg.ConnectionDoesNotExistError, (True, False, False)),
    "a wrong password": (asyncpg.InvalidPasswordError, (True, True, False)),
    "an internal error": (asyncpg.InternalServerError, (True, True, False)),
    "a value out of range": (asyncpg.NumericValueOutOfRangeError, (False, True, False)),
    "a broken constraint": (asyncpg.UniqueViolationError, (False, True, False)),
    "a table that is not there": (asyncpg.UndefinedTableError, (False, True, False)),
    "nobody at the port": (ConnectionRefusedError, (True, False, False)),
    "no answer": (TimeoutError, (True, False, False)),
    "the driver's own state": (asyncpg.InterfaceError, (True, False, False)),
    "a value that cannot be sent": (OverflowError, (False, True, False)),
}


@pytest.mark.parametrize(("fault", "expected"), CASES.values(), ids=CASES)
def test_each_fault_is_classified_as_passing_definite_or_unwritable(
    fault: type[Exception], expected: tuple[bool, bool, bool]
) -> None:
    meaning = meaning_of(fault("base/16384/1259: secret"))
    assert (meaning.passes, meaning.definite, meaning.unwritable) == expected
    assert "secret" not in meaning.sentence


def test_a_server_that_hangs_is_told_from_one_that_does_not_run() -> None:
    assert "does not answer" in meaning_of(TimeoutError()).sentence
    assert "refuses connections" in meaning_of(ConnectionRefusedError()).sentence
