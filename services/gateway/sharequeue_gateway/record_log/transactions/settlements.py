"""The settlements of transactions: rows that their commits write, and that the leaders of the share-partitions apply.

    commit of T ──▶ a row for each share-partition, in the one database transaction that decides T
    leader      ──▶ asks what became of T ──▶ writes the state ──durable──▶ removes the row

The row, and not what happens to be pending, says what was settled. A leader asks with one statement, so it sees T open,
or T's row here, or neither: then T was aborted, or was committed without these records.
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec

from sharequeue.protocol.types import SettledBatch, SharePartitionKey
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.key_store import KEEP, NewKey
from sharequeue_gateway.record_log.store import (
    COLUMNS,
    MAY_APPEND,
    Connection,
    Row,
    columns_of,
)
from sharequeue_gateway.record_log.transactions.transaction_rules import COMMIT

encoded: Final = msgspec.json.Encoder().encode
settled_of: Final = msgspec.json.Decoder(list[SettledBatch]).decode
"""Decodes the batches of a settlement. Raises: MsgspecError: they are damaged."""


class Settlement(NamedTuple):
    """The ranges that a transaction settles in one share-partition.

    `state_epoch`, `leader_epoch`: those under which the records became pending. `batches`: for the leader alone, a
    list of SettledBatch as JSON.
    """

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    batches: bytes


class Settling(NamedTuple):
    """The acknowledgements of a commit. `digest`: of what the client sent; a repeat has the same."""

    digest: bytes
    settlements: Sequence[Settlement]


class Pending(NamedTuple):
    """A share-partition in which records are pending on a transaction."""

    transaction_id: str
    key: SharePartitionKey


class Decided(NamedTuple):
    """The outcome of a transaction, as a share-partition sees it. `settlement`: None if nothing of it was settled."""

    open: bool
    settlement: Settlement | None


class Unapplied(NamedTuple):
    """A row that nobody has removed yet. `age_s`: by PostgreSQL's clock."""

    transaction_id: str
    settlement: Settlement
    settled_at: datetime
    age_s: float


DECIDED: Final = """
SELECT EXISTS (SELECT FROM log.transactions t WHERE t.transaction_id = a.transaction_id),
  s.state_epoch, s.leader_epoch, s.batches
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::int[]) WITH ORDINALITY
  AS a(transaction_id, group_id, topic_id, partition, place)
LEFT JOIN log.settlements s USING (transaction_id, group_id, topic_id, partition) ORDER BY a.place
"""


def _columns(rows: Sequence[Pending]) -> list[list[Any]]:
    return columns_of([(row.transaction_id, *row.key) for row in rows], 4)


async def decided(connection: Connection, pending: Sequence[Pending]) -> list[Decided]:
    """Read the outcomes of transactions, in order, all from one snapshot."""
    rows = await connection.fetch(DECIDED, *_columns(pending))
    return [
        Decided(row[0], None if row[1] is None else Settlement(asked.key, row[1], row[2], row[3]))
        for asked, row in zip(pending, rows, strict=True)
    ]


async def remove(connection: Connection, rows: Sequence[Pending]) -> None:
    """Remove the rows of these, whose state is durable.

    It does not wait for the disk: if PostgreSQL crashes now, the rows are back, and they change nothing.
    """
    await connection.execute(
        """DELETE FROM log.settlements s USING unnest($1::text[], $2::text[], $3::uuid[], $4::int[])
             AS a(transaction_id, group_id, topic_id, partition)
           WHERE s.transaction_id = a.transaction_id AND s.group_id = a.group_id AND s.topic_id = a.topic_id
             AND s.partition = a.partition AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL""",
        *_columns(rows),
    )


async def unapplied(connection: Connection, older_than_s: float, after: datetime | None, most: int) -> list[Unapplied]:
    """Rows that are older, the oldest first. `after`: only those behind this time."""
    rows = await connection.fetch(
        """SELECT transaction_id, group_id, topic_id, partition, state_epoch, leader_epoch, batches, settled_at,
             extract(epoch FROM clock_timestamp() - settled_at)::float8
           FROM log.settlements
           WHERE settled_at < (SELECT clock_timestamp()) - make_interval(secs => $1) AND settled_at > $2
           ORDER BY settled_at LIMIT $3""",
        older_than_s,
        datetime.fromtimestamp(0, UTC) if after is None else after,
        most,
    )
    return [
        Unapplied(row[0], Settlement(SharePartitionKey(row[1], str(row[2]), row[3]), *row[4:7]), row[7], row[8])
        for row in rows
    ]


async def of_transaction(connection: Connection, transaction_id: str) -> list[SharePartitionKey]:
    """The share-partitions in which a committed transaction is not applied yet."""
    rows = await connection.fetch(
        "SELECT group_id, topic_id, partition FROM log.settlements WHERE transaction_id = $1 ORDER BY 1, 2, 3",
        transaction_id,
    )
    return [SharePartitionKey(row[0], str(row[1]), row[2]) for row in rows]


ADD: Final = """
INSERT INTO log.settlements (transaction_id, group_id, topic_id, partition, state_epoch, leader_epoch, batches)
SELECT $1, t.* FROM {source} unnest($2::text[], $3::uuid[], $4::int[], $5::bigint[], $6::bigint[], $7::bytea[]) AS t
"""


async def add(connection: Connection, transaction_id: str, settlements: Sequence[Settlement]) -> None:
    """Add the rows of a transaction, within the database transaction that commits it."""
    await connection.execute(ADD.format(source=""), transaction_id, *_values(settlements))


def _values(settlements: Sequence[Settlement]) -> list[list[Any]]:
    return columns_of([(*each.key, *each[1:]) for each in settlements], 6)


COMMIT_AT_ONCE: Final = f"""
WITH mine AS MATERIALIZED (
  SELECT FROM log.transactions
  WHERE transaction_id = $1 AND deadline > clock_timestamp() FOR UPDATE SKIP LOCKED),
allowed AS MATERIALIZED (
  SELECT FROM mine
  WHERE NOT log.has_written($1) AND {MAY_APPEND.format(lock_key="$19", topic_id="$10", partition="$11", base_offset="$12")}
    AND ($21::text IS NULL OR log.new_keys(
      ARRAY[$16::uuid], ARRAY[$20::bigint], ARRAY[$10::uuid], ARRAY[$21], ARRAY[$22], ARRAY[$23]) <> '{{}}')),
ended AS (
  DELETE FROM log.transactions USING allowed WHERE transaction_id = $1
  RETURNING producer_epoch, principal, began_at, clock_timestamp() AS now),
outcome AS (
  INSERT INTO log.transaction_outcomes (transaction_id, producer_epoch, principal, committed, reason, partitions,
    began_at, ended_at, settled)
  SELECT $1, producer_epoch, principal, true, $8::smallint, 0, began_at, now, $9::bytea FROM ended),
settled AS ({ADD.format(source="ended,")}),
written AS (
  INSERT INTO log.record_batches ({COLUMNS}) SELECT $10, $11, $12, $13, $14, $15, $16, $17, $18 FROM ended),
kept AS ({KEEP} $26::bigint, $10, $21, $22, $23, $24, $25, ARRAY[$12::bigint] FROM ended WHERE $21 IS NOT NULL)
SELECT true FROM ended
"""
"""All of an append to one partition that commits a transaction which wrote nothing itself. It waits for no lock, and
does nothing if something is in the way: another statement, a used key, or an end of the partition that is not known
here."""


async def commit_at_once(
    connection: Connection,
    transaction_id: str,
    settling: Settling,
    row: Row,
    key: NewKey,
) -> bool:
    """Commit a transaction with what it settles and with an append.

    Returns: whether it has; if not, something is in the way, and nothing has happened.
    """
    kept = await store.kept_forms([row[2]])
    try:
        ended = await connection.fetchval(
            COMMIT_AT_ONCE,
            transaction_id,
            *_values(settling.settlements),
            COMMIT.reason,
            settling.digest,
            *itertools.chain.from_iterable(store.columns([row], kept)),
            store.lock_key(*row[:2]),
            *key,
        )
    except asyncpg.UniqueViolationError:  # another append to the partition has committed since the statement began
        return False
    return ended is not None
