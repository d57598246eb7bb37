"""The SQL of idempotency keys, and of the tables that keep their rows for a number of hours or days.

Such a table has a partition for each period by PostgreSQL's clock, and a partition is dropped as a whole: no row is
deleted. Outcomes of transactions are kept in the same way.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

import asyncpg

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.compression import Compression
from sharequeue_gateway.record_log.store import COLUMNS, FEW, MAY_APPEND, Connection


class KeyTable(NamedTuple):
    """A table of idempotency keys. It has a partition for each period (half a day or a day) by PostgreSQL's clock.

    A partition is dropped as a whole, `kept` periods later. The clocks of gateways may differ, so they are not used.
    """

    name: str
    column: str
    seconds: int
    kept: int

    @property
    def ahead(self) -> int:
        """Return how many periods the partitions are made ahead: a day, so that a long stop of the makers is not
        noticed."""
        return max(1, 86_400 // self.seconds)

    @property
    def most_partitions(self) -> int:
        """The number of newest partitions that are never dropped: a clock that jumps ahead and back drops no key. Eight
        of them, or all that may be made at once, may be those of the jump."""
        return self.kept + self.ahead + min(8, self.ahead + 1)

    @property
    def period(self) -> str:
        """The SQL for the period in which the transaction began."""
        return f"floor(extract(epoch FROM now()) / {self.seconds})::int"

    @property
    def first(self) -> str:
        """The SQL for the oldest period whose keys are known."""
        return f"{self.period} - {self.kept - 1}"


KEYS: Final = KeyTable("idempotency_keys", "created_half_day", 43_200, 3)
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


def look_up(table: KeyTable) -> str:
    """The statement that finds a key, in the partitions that may have it: the caller's own before one without a caller,
    from a time when no key was asked for. A caller without an access key finds those of all: the first try of a
    producer may have been at a gateway that asks for one."""
    return f"""SELECT fingerprint, answer, base_offsets FROM log.{table.name}
      WHERE topic_id = $1 AND key = $2 AND path = $3 AND (caller IN ('', $4) OR $4 = '')
        AND {table.column} >= {table.first} AND {table.column} <= {table.period} + 1
      ORDER BY caller = $4 DESC LIMIT 1"""


def lock_of(path: str, topic_id: str, key: str) -> int:
    """The advisory lock of a key. All callers have the same one: a producer may have repeated a request with its key,
    while the first try without one is under way."""
    name = hashlib.blake2b("\0".join((path, topic_id, key)).encode(), digest_size=8).digest()
    return int.from_bytes(name, "big", signed=True)


class NewKey(NamedTuple):
    """A key of KEYS that is stored with a batch; all None: the batch has no key. `lock`: see `lock_of`."""

    lock: int | None = None
    key: str | None = None
    path: str | None = None
    caller: str | None = None
    fingerprint: bytes | None = None
    answer: bytes | None = None


NO_KEY: Final = NewKey()
_TYPES: Final = (*store.TYPES, "bigint", "text", "text", "text", "bytea", "bytea")


NEW_KEYS: Final = f"log.new_keys({{}}, {KEYS.first}, {KEYS.period} + 1)"
KEEP: Final = f"""
  INSERT INTO log.{KEYS.name} ({KEYS.column}, topic_id, key, path, caller, fingerprint, answer, base_offsets)
  SELECT {KEYS.period}, """

APPEND_ONE_WITH_KEY: Final = f"""
WITH fresh AS MATERIALIZED (
  SELECT {NEW_KEYS.format("ARRAY[$7::uuid], ARRAY[$11::bigint], ARRAY[$1::uuid], ARRAY[$12], ARRAY[$13], ARRAY[$14]")}
    <> '{{}}' AS fresh),
written AS (
  INSERT INTO log.record_batches ({COLUMNS})
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 FROM fresh
  WHERE fresh AND {MAY_APPEND.format(lock_key="$10", topic_id="$1", partition="$2", base_offset="$3")}
  RETURNING append_id),
kept AS ({KEEP} $1, $12, $13, $14, $15, $16, ARRAY[$3::bigint] FROM written)
SELECT append_id, true FROM written UNION ALL SELECT $7, false FROM fresh WHERE NOT fresh
"""
"""`append_with_keys` for a single batch, which most commits have."""


@lru_cache(FEW + 1)
def append_with_keys(count: int) -> str:
    """As `store.append_several`, for batches with keys.

    Each batch has its NewKey behind its columns. `used` has the batches whose key is locked or used by others. Neither
    they nor the batches behind them in their partition are inserted: there is no hole.
    """
    if count == 1:
        return APPEND_ONE_WITH_KEY
    keys = ", ".join(f"array_agg({name})" for name in ("append_id", "key_lock", "topic_id", "key", "path", "caller"))
    return f"""
WITH input ({COLUMNS}, lock_key, key_lock, key, path, caller, fingerprint, answer) AS MATERIALIZED ({store.input_of(count, _TYPES)}),
fresh AS MATERIALIZED (SELECT {NEW_KEYS.format(keys)} AS append_ids FROM input WHERE key_lock IS NOT NULL),
used AS MATERIALIZED (
  SELECT i.append_id, i.topic_id, i.partition, i.base_offset FROM input i
  WHERE i.key_lock IS NOT NULL AND i.append_id <> ALL((SELECT append_ids FROM fresh)::uuid[])),
{store.ALLOWED},
written AS (
  INSERT INTO log.record_batches ({COLUMNS})
  SELECT {COLUMNS} FROM input i JOIN allowed USING (topic_id, partition) WHERE NOT EXISTS (
    SELECT FROM used u
    WHERE u.topic_id = i.topic_id AND u.partition = i.partition AND u.base_offset <= i.base_offset)
  ORDER BY topic_id, partition, base_offset
  RETURNING append_id),
kept AS ({KEEP} topic_id, key, path, caller, fingerprint, answer, ARRAY[base_offset]
  FROM input JOIN written USING (append_id) WHERE key_lock IS NOT NULL)
SELECT append_id, true FROM written UNION ALL SELECT append_id, false FROM used
"""


async def append(
    connection: Connection,
    batches: store.Rows,
    keys: Mapping[str, NewKey],
    compression: Compression,
    timeout_s: float | None = None,
) -> tuple[set[str], set[str]]:
    """As `store.append`, and keep keys, by the append ids of their batches. Such a batch is inserted only if its key is
    new.

    Returns: the append ids of the inserted batches, and of those whose key is locked or used by others.
    Raises: TimeoutError: the insert may have happened.
    """
    kept = await store.kept_forms([batch for _, _, batch, _ in batches])
    of_keys = zip(*[keys.get(append_id, NO_KEY) for _, _, _, append_id in batches], strict=True)
    few = len(batches) <= FEW
    values = store.parameters(batches, kept, *map(list, of_keys), few=few)
    rows = await connection.fetch(append_with_keys(len(batches) if few else 0), *values, timeout=timeout_s)
    inserted = {append_id.hex for append_id, is_inserted in rows if is_inserted}
    store.count(compression, batches, kept, inserted)
    return inserted, {append_id.hex for append_id, is_inserted in rows if not is_inserted}
