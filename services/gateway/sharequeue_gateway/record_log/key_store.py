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
    def most_partitions(self) -> int:
        """The number of newest partitions that are never dropped: a clock that jumps ahead and back drops no key."""
        return self.kept + 8

    @property
    def period(self) -> str:
        """The SQL for the period in which the transaction began."""
        return f"floor(extract(epoch FROM now()) / {self.seconds})::int"


KEYS: Final = KeyTable("idempotency_keys", "created_hour", 3600, 25)
LASTING_KEYS: Final = KeyTable("lasting_idempotency_keys", "created_day", 86_400, 8)
OUTCOMES: Final = KeyTable("transaction_outcomes", "ended_hour", 3600, 25)
"""What became of transactions, kept as keys are."""


async def make_key_partitions(connection: Connection, table: KeyTable) -> None:
    """Make the partitions of this period and the next one."""
    period: int = await connection.fetchval(f"SELECT {table.period}")
    for wanted in (period, period + 1):
        with suppress(asyncpg.DuplicateTableError, asyncpg.UniqueViolationError):  # another gateway is making it now
            await connection.execute(
                f"CREATE TABLE IF NOT EXISTS log.{table.name}_{wanted} "
                f"PARTITION OF log.{table.name} FOR VALUES FROM ({wanted}) TO ({wanted + 1})"
            )


async def drop_key_partitions(connection: Connection, table: KeyTable) -> None:
    """Drop the partitions that are too old."""
    rows = await connection.fetch(
        f"""SELECT c.relname, {table.period} FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = $1::regclass""",
        f"log.{table.name}",
    )
    newest_first = sorted(((int(name.rpartition("_")[2]), period) for name, period in rows), reverse=True)
    for number, period in newest_first[table.most_partitions :]:
        if number < period - table.kept:
            await connection.execute(f"DROP TABLE IF EXISTS log.{table.name}_{number}")


def lacks_key_partition(fault: BaseException) -> bool:
    """Whether a key was refused because its period has no partition: PostgreSQL's clock has moved by more than one."""
    return isinstance(fault, asyncpg.CheckViolationError) and fault.table_name in (
        KEYS.name,
        LASTING_KEYS.name,
        OUTCOMES.name,
    )


async def find_key(
    connection: Connection, table: KeyTable, caller: str, path: str, topic_id: str, key: str
) -> tuple[bytes, bytes, list[int]] | None:
    """Lock the key for this transaction. Returns: its fingerprint, answer and base offsets, if it was used before."""
    name = hashlib.blake2b("\0".join((caller, path, topic_id, key)).encode(), digest_size=8).digest()
    await connection.execute("SELECT pg_advisory_xact_lock($1)", int.from_bytes(name, "big", signed=True))
    row = await connection.fetchrow(
        f"""SELECT fingerprint, answer, base_offsets FROM log.{table.name}
           WHERE topic_id = $1 AND key = $2 AND path = $3 AND caller = $4
             AND {table.column} > {table.period} - {table.kept} LIMIT 1""",
        topic_id,
        key,
        path,
        caller,
    )
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
