"""The SQL of idempotency keys, and of the tables that keep their rows for a number of hours or days.

Such a table has a partition for each period by PostgreSQL's clock, and a partition is dropped as a whole: no row is
deleted. Outcomes of transactions are kept in the same way.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import asyncpg

from sharequeue_gateway.record_log.store import Connection


class KeyTable(NamedTuple):
    """A table of idempotency keys. It has a partition for each period (an hour or a day) by PostgreSQL's clock.

    A partition is dropped as a whole, `kept` periods later. The clocks of gateways may differ, so they are not used.
    """

    name: str
    column: str
    seconds: int
    kept: int

    @property
    def ahead(self) -> int:
        """How many periods the partitions are made ahead: a day, so that a long stop of the makers is not noticed."""
        return max(1, 86_400 // self.seconds)

    @property
    def most_partitions(self) -> int:
        """The number of newest partitions that are never dropped: a clock that jumps ahead and back drops no key."""
        return self.kept + self.ahead + 8

    @property
    def period(self) -> str:
        """The SQL for the period in which the transaction began."""
        return f"floor(extract(epoch FROM now()) / {self.seconds})::int"


KEYS: Final = KeyTable("idempotency_keys", "created_hour", 3600, 25)
LASTING_KEYS: Final = KeyTable("lasting_idempotency_keys", "created_day", 86_400, 8)
OUTCOMES: Final = KeyTable("transaction_outcomes", "ended_hour", 3600, 25)
"""What became of transactions, kept as keys are."""
BRIEFLY: Final = "SET LOCAL lock_timeout = '200ms';"
"""Before a statement that changes a table: while it waits, all others about this table wait behind it."""
MADE_BY_ANOTHER: Final = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,  # its row type
    asyncpg.UniqueViolationError,
    asyncpg.LockNotAvailableError,
)
"""Another gateway makes the partition now."""


async def make_key_partitions(connection: Connection, table: KeyTable) -> None:
    """Make the partitions of this period and the next one; if they are there, one more of the day ahead.

    A partition is made alone and then attached, which waits for no reader or writer of the table, nor they for it.
    """
    rows = await _partitions(connection, table)
    period, made = rows[0][0], {number for _, number in rows}
    missing = [number for number in range(period, period + table.ahead + 1) if number not in made]
    for number in [number for number in missing if number <= period + 1] or missing[:1]:
        name = f"log.{table.name}_{number}"
        with suppress(*MADE_BY_ANOTHER):
            async with connection.transaction():
                await connection.execute(
                    f"{BRIEFLY}CREATE TABLE {name} (LIKE log.{table.name} INCLUDING ALL);"
                    f"ALTER TABLE log.{table.name} ATTACH PARTITION {name} FOR VALUES FROM ({number}) TO ({number + 1})"
                )


async def drop_key_partitions(connection: Connection, table: KeyTable) -> bool:
    """Drop the partitions that are too old. Returns: whether all are gone: a drop does not wait for a reader."""
    rows = await _partitions(connection, table)
    newest_first = sorted(((number, period) for period, number in rows if number is not None), reverse=True)
    for number, period in newest_first[table.most_partitions :]:
        if number < period - table.kept:
            try:
                async with connection.transaction():
                    await connection.execute(f"{BRIEFLY}DROP TABLE IF EXISTS log.{table.name}_{number}")
            except asyncpg.LockNotAvailableError:
                return False
    return True


async def _partitions(connection: Connection, table: KeyTable) -> list[tuple[int, int | None]]:
    """For each partition of a table the present period and its own; at least one row."""
    rows = await connection.fetch(
        f"""SELECT {table.period}, substring(c.relname FROM '[0-9]+$')::int
            FROM (VALUES ($1::regclass)) t(parent) LEFT JOIN pg_inherits i ON i.inhparent = t.parent
              LEFT JOIN pg_class c ON c.oid = i.inhrelid""",
        f"log.{table.name}",
    )
    return [(row[0], row[1]) for row in rows]


def lacks_key_partition(fault: BaseException) -> bool:
    """Whether a key was refused because its period has no partition: PostgreSQL's clock has moved by more than one."""
    return isinstance(fault, asyncpg.CheckViolationError) and fault.table_name in (
        KEYS.name,
        LASTING_KEYS.name,
        OUTCOMES.name,
    )


def look_up(table: KeyTable) -> str:
    """The statement that finds a key, in the partitions that may have it."""
    return f"""SELECT fingerprint, answer, base_offsets FROM log.{table.name}
      WHERE topic_id = $1 AND key = $2 AND path = $3 AND caller = $4
        AND {table.column} > {table.period} - {table.kept} AND {table.column} <= {table.period} + 1 LIMIT 1"""


async def find_key(
    connection: Connection, table: KeyTable, caller: str, path: str, topic_id: str, key: str
) -> tuple[bytes, bytes, list[int]] | None:
    """Lock the key for this transaction. Returns: its fingerprint, answer and base offsets, if it was used before."""
    name = hashlib.blake2b("\0".join((caller, path, topic_id, key)).encode(), digest_size=8).digest()
    await connection.execute("SELECT pg_advisory_xact_lock($1)", int.from_bytes(name, "big", signed=True))
    row = await connection.fetchrow(look_up(table), topic_id, key, path, caller)
    return None if row is None else (row[0], row[1], list(row[2]))


async def keep_key(
    connection: Connection,
    table: KeyTable,
    caller: str,
    path: str,
    topic_id: str,
    key: str,
    fingerprint: bytes,
    answer: bytes,
    base_offsets: Sequence[int],
) -> None:
    await connection.execute(
        f"""INSERT INTO log.{table.name}
             ({table.column}, topic_id, key, path, caller, fingerprint, answer, base_offsets)
           VALUES ({table.period}, $1, $2, $3, $4, $5, $6, $7)""",
        topic_id,
        key,
        path,
        caller,
        fingerprint,
        answer,
        list(base_offsets),
    )
