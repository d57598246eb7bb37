"""The SQL of one transaction: an append joins it, it ends, and what became of it. One function per statement.

`log.transactions` and `log.transaction_partitions` hold what is open: the end of a transaction deletes its rows. Rows
of a partition change under the partition's advisory lock. A transaction's row is locked before partitions: `FOR SHARE`
by an append, `FOR UPDATE` by an end. So a question about a transaction is whether its row is there, under its lock, and
PostgreSQL reads a locked row again after it has waited.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.store import END, OWNED, Connection, columns_of, lock_keys
from sharequeue_gateway.record_log.transactions.transaction_rules import Reason, State, Transaction

ENDS_LARGE: Final = int.from_bytes(b"txn ends", "big", signed=True)
"""The advisory lock of ends of many partitions: one at a time, as each takes many of PostgreSQL's locks."""
COMMIT_MARKER: Final = 112
ABORT_MARKER: Final = 48
"""`attributes` of markers: 16 transactional and 32 control, as Kafka's bits; 64 is ours."""

MS: Final = "floor(extract(epoch FROM {}) * 1000)::bigint"
"""A timestamp in ms."""
ROW: Final = f"""transaction_id, transactional_id, producer_epoch, principal, {State.OPEN:d} AS state,
  {Reason.CLIENT:d} AS reason, {MS.format("began_at")} AS began_at_ms, timeout_ms, part_of"""
"""The columns that `transaction_of` takes."""
MINE: Final = OWNED.format(owner="$2")
"""Each function with an `owner` finds only the transactions that these patterns fit: see `transaction_rules.Owner`."""


def transaction_of(row: Any, **more: Any) -> Transaction:
    """A row whose columns have the names of a Transaction, as those of `ROW`. `more`: what it lacks."""
    named = {name: row[name] for name in Transaction._fields if name in row}
    return Transaction(**named | more | {"state": State(row["state"]), "reason": Reason(row["reason"])})


_MARKERS: Final = f"""
places AS MATERIALIZED (
  SELECT p.topic_id, p.partition, m.first_offset, {END} AS marker_offset
  FROM (SELECT topic_id, partition, min(first_offset) AS first_offset FROM mine GROUP BY 1, 2) m
  JOIN log.partitions p USING (topic_id, partition) WHERE NOT p.deleted),
markers AS (
  INSERT INTO log.record_batches (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count,
    append_id, records, transaction_id, attributes)
  SELECT topic_id, partition, marker_offset, marker_offset, $3::bigint, 0, $2::uuid, decode('0500000000', 'hex'), $1,
    CASE WHEN $4::boolean THEN {COMMIT_MARKER} ELSE {ABORT_MARKER} END
  FROM places ORDER BY topic_id, partition),
aborted AS (
  INSERT INTO log.aborted_transactions (topic_id, partition, transaction_id, first_offset, marker_offset)
  SELECT topic_id, partition, $1, first_offset, marker_offset FROM places WHERE NOT $4)"""
"""The middle of both statements: `mine` are rows of partitions, in which the transaction $1 ends."""
_WRITTEN: Final = "SELECT array_agg(topic_id), array_agg(partition), array_agg(marker_offset) FROM places"

WRITE_MARKERS: Final = f"""
WITH mine AS (
  DELETE FROM log.transaction_partitions WHERE transaction_id = ANY($5::text[])
    AND (topic_id, partition) >= ($6::uuid, $7::int) AND (topic_id, partition) <= ($8::uuid, $9::int)
  RETURNING topic_id, partition, first_offset),{_MARKERS}
{_WRITTEN}
"""
"""Markers of the partitions from one to another one, with the tables as END_TRANSACTION leaves them. The end of a
transaction with many partitions writes them in pieces. The transaction stays open until END_TRANSACTION."""

END_TRANSACTION: Final = f"""
WITH mine AS (
  DELETE FROM log.transaction_partitions WHERE transaction_id = ANY($8::text[])
  RETURNING topic_id, partition, first_offset),
ended AS (
  DELETE FROM log.transactions WHERE transaction_id = ANY($8::text[])
  RETURNING transaction_id, transactional_id, producer_epoch, principal, began_at),{_MARKERS},
outcome AS (
  INSERT INTO log.transaction_outcomes (transaction_id, transactional_id, producer_epoch, principal,
    committed, reason, partitions, began_at, ended_at, settled)
  SELECT e.transaction_id, e.transactional_id, e.producer_epoch, e.principal, $4, $5::smallint,
    $10::int + (SELECT count(*) FROM places), e.began_at, $7::timestamptz,
    CASE WHEN e.transaction_id = $1 THEN $9::bytea END FROM ended e),
noted AS (
  UPDATE log.transactional_producers w
  SET committed_note = CASE WHEN $4 THEN coalesce($6::text, w.committed_note) ELSE w.committed_note END,
    keep_until = greatest(w.keep_until, now() + interval '7 days')
  FROM ended e WHERE w.transactional_id = e.transactional_id)
{_WRITTEN}
"""
"""One statement under the locks of the transaction and of its partitions. It deletes what says that it is open, and
inserts the markers at the ends. Deleted partitions get none. $8 are the ids of the transaction and of the parts that
are committed with it: a partition gets one marker for all of them. $10 partitions have theirs by WRITE_MARKERS. The
producer's row comes last: its holders wait for nothing. The note counts though a newer producer has raised the epoch:
its first transaction begins after this end."""


async def row_of(
    connection: Connection, transaction_id: str, owner: str = ANY_OWNER, lock: str = ""
) -> Transaction | None:
    """The row of a transaction. `lock`: `FOR UPDATE`, for example."""
    row = await connection.fetchrow(
        f"SELECT {ROW} FROM log.transactions t WHERE transaction_id = $1 AND {MINE} {lock}", transaction_id, owner
    )
    return None if row is None else transaction_of(row)


# Append


async def share(connection: Connection, transaction_id: str, owner: str = ANY_OWNER) -> tuple[Transaction | None, bool]:
    """Lock the row `FOR SHARE` until the end of the database transaction: it waits for an end that is under way.
    Returns: the transaction, and whether its time has passed.

    The clock is read in a second statement: PostgreSQL may compute an answer's columns before it waits for the lock.
    """
    found = await row_of(connection, transaction_id, owner, "FOR SHARE")
    if found is None:
        return None, False
    past: bool = await connection.fetchval(
        "SELECT clock_timestamp() >= deadline FROM log.transactions WHERE transaction_id = $1", transaction_id
    )
    return found, past


async def register(
    connection: Connection, transaction_id: str, places: Sequence[TopicIdPartition], first_offsets: Sequence[int]
) -> int:
    """The transaction writes to these partitions, whose locks are held. Returns: how many it has now."""
    await connection.execute(
        """INSERT INTO log.transaction_partitions (transaction_id, topic_id, partition, first_offset)
           SELECT $1, t.* FROM unnest($2::uuid[], $3::int[], $4::bigint[]) AS t ON CONFLICT DO NOTHING""",
        transaction_id,
        *columns_of(places, 2),
        first_offsets,
    )
    count: int = await connection.fetchval(
        "SELECT count(*) FROM log.transaction_partitions WHERE transaction_id = $1", transaction_id
    )
    return count


# End


async def lock_parts(connection: Connection, transaction_id: str, parts: Sequence[str]) -> list[str]:
    """Lock the rows of parts of a transaction, sorted, after its own row. Returns: those that are open."""
    rows = await connection.fetch(
        """SELECT transaction_id FROM log.transactions
           WHERE part_of = $1 AND transaction_id = ANY($2::text[]) ORDER BY 1 FOR UPDATE""",
        transaction_id,
        list(parts),
    )
    return [row[0] for row in rows]


async def open_parts(connection: Connection, transaction_id: str) -> list[str]:
    """The open parts of a transaction."""
    rows = await connection.fetch("SELECT transaction_id FROM log.transactions WHERE part_of = $1", transaction_id)
    return [row[0] for row in rows]


class Last(NamedTuple):
    """A transaction at its end: the time, also in ms; whether its own time has passed; whether it has parts; the
    partitions that it wrote to, or those parts that are committed with it, sorted."""

    now: datetime
    now_ms: int
    past: bool
    has_parts: bool
    places: list[TopicIdPartition]


async def look_to_end(
    connection: Connection, transaction_id: str, parts: Sequence[str] = (), most: int | None = None
) -> Last:
    """Look at a transaction whose row is locked, with those of the parts: no partition can be added to them any more.

    `most`: of the partitions to answer; None: all.
    """
    row = await connection.fetchrow(
        f"""SELECT n.now, {MS.format("n.now")}, n.now >= t.deadline,
             EXISTS (SELECT FROM log.transactions p WHERE p.part_of = $1), w.topic_ids, w.partitions
           FROM (SELECT clock_timestamp() AS now) n CROSS JOIN log.transactions t CROSS JOIN (
             SELECT array_agg(topic_id) AS topic_ids, array_agg(partition) AS partitions FROM (
               SELECT DISTINCT topic_id, partition FROM log.transaction_partitions
               WHERE transaction_id = ANY($2::text[]) ORDER BY 1, 2 LIMIT $3) sorted) w
           WHERE t.transaction_id = $1""",
        transaction_id,
        [transaction_id, *parts],
        most,
    )
    now, now_ms, past, has_parts, topic_ids, partitions = row
    return Last(now, now_ms, past, has_parts, _places(topic_ids, partitions))


def _places(topic_ids: Sequence[Any] | None, partitions: Sequence[int] | None) -> list[TopicIdPartition]:
    """Partitions as two arrays, which take a fraction of the time of as many rows. None: there are none."""
    return list(zip(map(str, topic_ids or ()), partitions or (), strict=True))


async def lock_places(connection: Connection, places: Sequence[TopicIdPartition], *, large: bool) -> None:
    """As `store.lock`. `large`: after the lock of large ends."""
    if large:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", ENDS_LARGE)
    await connection.execute(
        "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS t(key)",
        lock_keys(places),
    )


class Verdict(NamedTuple):
    """The end of a transaction.

    `transaction_ids`: its own, and those of the parts that are committed with it. `timestamp_ms`: of the markers.
    `settled`: as in Transaction.
    """

    transaction_id: str
    transaction_ids: Sequence[str]
    state: State
    reason: Reason
    now: datetime
    timestamp_ms: int
    note: str | None = None
    settled: bytes | None = None


Markers = list[tuple[TopicIdPartition, int]]
"""The offset of the marker of each partition."""


async def write_markers(connection: Connection, verdict: Verdict, places: Sequence[TopicIdPartition]) -> Markers:
    """See WRITE_MARKERS. `places`: some of those that `look_to_end` answered, one behind the other."""
    row = await connection.fetchrow(
        WRITE_MARKERS,
        verdict.transaction_id,
        uuid.uuid4(),
        verdict.timestamp_ms,
        verdict.state == State.COMMITTED,
        verdict.transaction_ids,
        *places[0],
        *places[-1],
    )
    return list(zip(_places(row[0], row[1]), row[2] or (), strict=True))


async def end_with_records(connection: Connection, verdict: Verdict, have_markers: int = 0) -> Markers:
    """See END_TRANSACTION. `have_markers`: how many partitions have theirs by WRITE_MARKERS. Returns: the others."""
    row = await connection.fetchrow(
        END_TRANSACTION,
        verdict.transaction_id,
        uuid.uuid4(),
        verdict.timestamp_ms,
        verdict.state == State.COMMITTED,
        verdict.reason,
        verdict.note,
        verdict.now,
        verdict.transaction_ids,
        verdict.settled,
        have_markers,
    )
    return list(zip(_places(row[0], row[1]), row[2] or (), strict=True))


async def outcome(connection: Connection, transaction_id: str, owner: str = ANY_OWNER) -> Transaction | None:
    """Return what became of a transaction. Look for its row first."""
    row = await connection.fetchrow(
        f"""SELECT transactional_id, producer_epoch, principal, reason, partitions, settled,
              CASE WHEN committed THEN {State.COMMITTED:d} ELSE {State.ABORTED:d} END AS state,
              {MS.format("began_at")} AS began_at_ms, {MS.format("ended_at")} AS ended_at_ms
            FROM log.transaction_outcomes t WHERE transaction_id = $1 AND {MINE}""",
        transaction_id,
        owner,
    )
    return None if row is None else transaction_of(row, transaction_id=transaction_id)


async def places_of(connection: Connection, transaction_id: str) -> list[tuple[str, int, int]]:
    """Topic id, partition and first offset of each partition that an open transaction wrote to."""
    rows = await connection.fetch(
        """SELECT topic_id, partition, first_offset FROM log.transaction_partitions
           WHERE transaction_id = $1 ORDER BY 1, 2""",
        transaction_id,
    )
    return [(str(row[0]), row[1], row[2]) for row in rows]


async def find(connection: Connection, transaction_id: str, owner: str = ANY_OWNER) -> Transaction | None:
    """Return what is known of a transaction. Its row first, then the outcomes: in this order nothing is missed."""
    found = await row_of(connection, transaction_id, owner)
    return await outcome(connection, transaction_id, owner) if found is None else found
