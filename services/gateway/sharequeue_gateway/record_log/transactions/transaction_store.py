"""The SQL of transactions, one function per statement.

`log.transactions` and `log.transaction_partitions` hold what is open: the end of a transaction that wrote deletes its
rows. Rows of a partition change under the partition's advisory lock. A transaction's row is locked before partitions:
`FOR SHARE` by an append, `FOR UPDATE` by an end. So a question about a transaction is whether its row is there, under
its lock, and PostgreSQL reads a locked row again after it has waited.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.key_store import KeyTable
from sharequeue_gateway.record_log.store import END, Connection, lock_key
from sharequeue_gateway.record_log.transactions.transaction_rules import Reason, State, Transaction

ENDS_LARGE: Final = int.from_bytes(b"txn ends", "big", signed=True)
"""The advisory lock of ends of many partitions: one at a time, as each takes many of PostgreSQL's locks."""
KNOWN_EMPTY_S: Final = 60
"""How long an ended transaction that wrote nothing is known."""
COMMIT_MARKER: Final = 112
ABORT_MARKER: Final = 48
"""`attributes` of markers: 16 transactional and 32 control, as Kafka's bits; 64 is ours."""

FIRST_EPOCH: Final = "greatest(floor(extract(epoch FROM now() - timestamptz '2025-01-01Z')), 0)::int"
"""The epoch of the first producer of a transactional id: seconds. Each further producer has one more. A row is forgotten
when the seconds have passed its epoch, so an epoch is not given again: not to the first producer after that either."""

_MS: Final = "floor(extract(epoch FROM {}) * 1000)::bigint"
_ROW: Final = f"""transaction_id, transactional_id, producer_epoch, principal, state, reason,
  {_MS.format("began_at")}, timeout_ms, {_MS.format("ended_at")}, part_of"""

END_TRANSACTION: Final = f"""
WITH mine AS (
  DELETE FROM log.transaction_partitions WHERE transaction_id = ANY($8::text[])
  RETURNING topic_id, partition, first_offset),
ended AS (
  DELETE FROM log.transactions WHERE transaction_id = ANY($8::text[])
  RETURNING transaction_id, transactional_id, producer_epoch, principal, began_at),
places AS MATERIALIZED (
  SELECT p.topic_id, p.partition, m.first_offset, p.log_start_offset, {END} AS marker_offset
  FROM (SELECT topic_id, partition, min(first_offset) AS first_offset FROM mine GROUP BY 1, 2) m
  JOIN log.partitions p USING (topic_id, partition) WHERE NOT p.deleted),
markers AS (
  INSERT INTO log.record_batches (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count,
    append_id, records, transaction_id, attributes)
  SELECT topic_id, partition, marker_offset, marker_offset, $3::bigint, 0, $2::uuid, '\\x0500000000'::bytea, $1,
    CASE WHEN $4::boolean THEN {COMMIT_MARKER} ELSE {ABORT_MARKER} END
  FROM places ORDER BY topic_id, partition),
aborted AS (
  INSERT INTO log.aborted_transactions (topic_id, partition, transaction_id, first_offset, marker_offset)
  SELECT topic_id, partition, $1, first_offset, marker_offset FROM places WHERE NOT $4),
outcome AS (
  INSERT INTO log.transaction_outcomes (ended_hour, transaction_id, transactional_id, producer_epoch, principal,
    committed, reason, partitions, began_at, ended_at, settled)
  SELECT {{period}}, e.transaction_id, e.transactional_id, e.producer_epoch, e.principal, $4, $5::smallint,
    (SELECT count(*) FROM places), e.began_at, $7::timestamptz,
    CASE WHEN e.transaction_id = $1 THEN $9::bytea END FROM ended e),
noted AS (
  UPDATE log.transactional_producers w
  SET committed_note = CASE WHEN $4 THEN coalesce($6::text, w.committed_note) ELSE w.committed_note END,
    keep_until = greatest(w.keep_until, now() + interval '7 days')
  FROM ended e WHERE w.transactional_id = e.transactional_id)
SELECT topic_id, partition, marker_offset FROM places
"""
"""One statement under the locks of the transaction and of its partitions. It deletes what says that it is open, and
inserts the markers at the ends. Deleted partitions get none. $8 are the ids of the transaction and of the parts that are
committed with it: a partition gets one marker for all of them. The producer's row comes last: its holders wait for
nothing. The note counts though a newer producer has raised the epoch: its first transaction begins after this end."""


def transaction_of(row: Any) -> Transaction:
    """A row of `_ROW`."""
    return Transaction(
        transaction_id=row[0],
        transactional_id=row[1],
        producer_epoch=row[2],
        principal=row[3],
        state=State(row[4]),
        reason=Reason(row[5]),
        began_at_ms=row[6],
        timeout_ms=row[7],
        ended_at_ms=row[8],
        part_of=row[9],
    )


# Begin


async def begin(
    connection: Connection,
    transaction_id: str,
    transactional_id: str | None,
    producer_epoch: int,
    principal: str,
    timeout_ms: int,
    most_open: int,
) -> tuple[int, int] | None:
    """Returns: when it began and its deadline, in ms; None: `most_open` are open."""
    row = await connection.fetchrow(
        f"""INSERT INTO log.transactions
              (transaction_id, transactional_id, producer_epoch, principal, timeout_ms, deadline)
            SELECT $1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $5::int / 1000.0::float8)
            WHERE (SELECT count(*) FROM (SELECT FROM log.transactions WHERE state = 0 LIMIT $6) few) < $6
            RETURNING {_MS.format("began_at")}, {_MS.format("deadline")}""",
        transaction_id,
        transactional_id,
        producer_epoch,
        principal,
        timeout_ms,
        most_open,
    )
    return None if row is None else (row[0], row[1])


async def begin_part(
    connection: Connection, transaction_id: str, whole: Transaction, most_open: int
) -> tuple[int, int] | None:
    """Begin a part of a transaction whose row is locked. Its time passes with that of the whole. Returns: as `begin`."""
    row = await connection.fetchrow(
        f"""INSERT INTO log.transactions (transaction_id, principal, timeout_ms, deadline, part_of)
            SELECT $1, principal, timeout_ms, deadline, transaction_id FROM log.transactions
            WHERE transaction_id = $2 AND (SELECT count(*) FROM (
              SELECT FROM log.transactions WHERE state = 0 LIMIT $3) few) < $3
            RETURNING {_MS.format("began_at")}, {_MS.format("deadline")}""",
        transaction_id,
        whole.transaction_id,
        most_open,
    )
    return None if row is None else (row[0], row[1])


async def lock_whole(connection: Connection, transaction_id: str) -> tuple[Transaction | None, bool]:
    """Lock the row of a transaction `FOR SHARE`, to begin a part of it. Returns: it, and whether its time has passed.

    The clock is read in a second statement, as in `share`.
    """
    row = await connection.fetchrow(
        f"SELECT {_ROW} FROM log.transactions WHERE transaction_id = $1 FOR SHARE", transaction_id
    )
    if row is None:
        return await outcome(connection, transaction_id), False
    past = await connection.fetchval(
        "SELECT clock_timestamp() >= deadline FROM log.transactions WHERE transaction_id = $1", transaction_id
    )
    return transaction_of(row), past


async def raise_epoch(connection: Connection, outcomes: KeyTable, transactional_id: str, principal: str) -> int | None:
    """A new producer begins: refuse the earlier ones from now on. Its id is kept for as long as outcomes are.

    Returns: its epoch; None: the id is another's.
    """
    epoch: int | None = await connection.fetchval(
        f"""INSERT INTO log.transactional_producers AS w (transactional_id, producer_epoch, principal, keep_until)
           VALUES ($1, {FIRST_EPOCH}, $2, now() + make_interval(secs => $3))
           ON CONFLICT (transactional_id) DO UPDATE SET producer_epoch = w.producer_epoch + 1,
             keep_until = greatest(w.keep_until, excluded.keep_until)
           WHERE w.principal = excluded.principal RETURNING producer_epoch""",
        transactional_id,
        principal,
        outcomes.seconds * outcomes.kept,
    )
    return epoch


class Producer(NamedTuple):
    """The row of a transactional id."""

    producer_epoch: int
    principal: str
    committed_note: str | None


async def lock_producer(connection: Connection, outcomes: KeyTable, transactional_id: str) -> Producer | None:
    """Lock the row of a transactional id. Its holder must not wait for any other lock."""
    row = await connection.fetchrow(
        """UPDATE log.transactional_producers SET keep_until = greatest(keep_until, now() + make_interval(secs => $2))
           WHERE transactional_id = $1 RETURNING producer_epoch, principal, committed_note""",
        transactional_id,
        outcomes.seconds * outcomes.kept,
    )
    return None if row is None else Producer(*row)


async def open_of(connection: Connection, transactional_id: str) -> list[tuple[Transaction, bool]]:
    """The open transactions of a transactional id, each with whether its time has passed."""
    rows = await connection.fetch(
        f"""SELECT {_ROW}, clock_timestamp() >= deadline FROM log.transactions
            WHERE transactional_id = $1 AND state = 0""",
        transactional_id,
    )
    return [(transaction_of(row), row[10]) for row in rows]


# Append


class Shared(NamedTuple):
    """A transaction's row as an append finds it. `past`: it is open, and its time has passed."""

    principal: str
    open: bool
    past: bool


async def share(connection: Connection, transaction_id: str) -> Shared | None:
    """Lock the row `FOR SHARE` until the end of the database transaction: it waits for an end that is under way.

    The clock is read in a second statement: PostgreSQL may compute an answer's columns before it waits for the lock.
    """
    row = await connection.fetchrow(
        "SELECT principal, state FROM log.transactions WHERE transaction_id = $1 FOR SHARE", transaction_id
    )
    if row is None:
        return None
    past = await connection.fetchval(
        "SELECT clock_timestamp() >= deadline FROM log.transactions WHERE transaction_id = $1", transaction_id
    )
    is_open = row[1] == State.OPEN
    return Shared(row[0], is_open and not past, is_open and past)


async def register(
    connection: Connection, transaction_id: str, places: Sequence[TopicIdPartition], first_offsets: Sequence[int]
) -> int:
    """The transaction writes to these partitions, whose locks are held. Returns: how many it has now."""
    await connection.execute(
        """INSERT INTO log.transaction_partitions (transaction_id, topic_id, partition, first_offset)
           SELECT $1, t.* FROM unnest($2::uuid[], $3::int[], $4::bigint[]) AS t ON CONFLICT DO NOTHING""",
        transaction_id,
        [topic_id for topic_id, _ in places],
        [partition for _, partition in places],
        first_offsets,
    )
    count: int = await connection.fetchval(
        "SELECT count(*) FROM log.transaction_partitions WHERE transaction_id = $1", transaction_id
    )
    return count


# End


async def lock_to_end(connection: Connection, transaction_id: str, skip_locked: bool) -> Transaction | None:
    """Lock the row of a transaction `FOR UPDATE`. `skip_locked`: None if another holds it."""
    row = await connection.fetchrow(
        f"""SELECT {_ROW} FROM log.transactions WHERE transaction_id = $1
            FOR UPDATE {"SKIP LOCKED" if skip_locked else ""}""",
        transaction_id,
    )
    return None if row is None else transaction_of(row)


async def lock_parts(connection: Connection, transaction_id: str, parts: Sequence[str]) -> list[str]:
    """Lock the rows of parts of a transaction, sorted, after its own row. Returns: those that are open."""
    rows = await connection.fetch(
        """SELECT transaction_id FROM log.transactions
           WHERE part_of = $1 AND state = 0 AND transaction_id = ANY($2::text[]) ORDER BY 1 FOR UPDATE""",
        transaction_id,
        list(parts),
    )
    return [row[0] for row in rows]


async def open_parts(connection: Connection, transaction_id: str) -> list[str]:
    """The open parts of a transaction."""
    rows = await connection.fetch(
        "SELECT transaction_id FROM log.transactions WHERE part_of = $1 AND state = 0", transaction_id
    )
    return [row[0] for row in rows]


class Last(NamedTuple):
    """A transaction at its end: the time, also in ms; whether its own time has passed; whether it has parts; the
    partitions that it wrote to, or those parts that are committed with it."""

    now: datetime
    now_ms: int
    past: bool
    has_parts: bool
    places: list[TopicIdPartition]


async def look_to_end(connection: Connection, transaction_id: str, parts: Sequence[str] = ()) -> Last:
    """Look at a transaction whose row is locked, with those of the parts: no partition can be added to them any more."""
    rows = await connection.fetch(
        f"""SELECT n.now, {_MS.format("n.now")}, n.now >= t.deadline,
             EXISTS (SELECT FROM log.transactions p WHERE p.part_of = $1), r.topic_id, r.partition
           FROM (SELECT clock_timestamp() AS now) n CROSS JOIN log.transactions t
           LEFT JOIN log.transaction_partitions r ON r.transaction_id = ANY($2::text[]) WHERE t.transaction_id = $1""",
        transaction_id,
        [transaction_id, *parts],
    )
    now, now_ms, past, has_parts, *_ = rows[0]
    return Last(now, now_ms, past, has_parts, sorted({(str(row[4]), row[5]) for row in rows if row[4] is not None}))


async def end_empty(
    connection: Connection,
    transaction_id: str,
    state: State,
    reason: Reason,
    now: datetime,
    note: str | None,
    parts: Sequence[str] = (),
) -> None:
    """End a transaction that wrote nothing, with parts that wrote nothing. Its row stays for a while, so that a repeat
    is answered the same.

    The note of a commit is kept with its producer.
    """
    await connection.execute(
        """WITH ended AS (
             UPDATE log.transactions SET state = $2, reason = $3, ended_at = $4,
               deadline = $4::timestamptz + make_interval(secs => $5) WHERE transaction_id = ANY($1::text[])
             RETURNING transactional_id)
           UPDATE log.transactional_producers w
           SET committed_note = $6, keep_until = greatest(w.keep_until, now() + interval '7 days')
           FROM ended e WHERE w.transactional_id = e.transactional_id AND $6::text IS NOT NULL""",
        [transaction_id, *parts],
        state,
        reason,
        now,
        KNOWN_EMPTY_S,
        note if state == State.COMMITTED else None,
    )


async def lock_places(connection: Connection, places: Sequence[TopicIdPartition], *, large: bool) -> None:
    """As `store.lock`. `large`: after the lock of large ends."""
    if large:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", ENDS_LARGE)
    await connection.execute(
        "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS t(key)",
        sorted(lock_key(*place) for place in places),
    )


async def end_with_records(
    connection: Connection,
    outcomes: KeyTable,
    transaction_id: str,
    state: State,
    reason: Reason,
    now: datetime,
    timestamp_ms: int,
    note: str | None,
    parts: Sequence[str] = (),
    settled: bytes | None = None,
) -> dict[TopicIdPartition, int]:
    """See END_TRANSACTION. `settled`: as in Transaction. Returns: the marker's offset in each partition."""
    rows = await connection.fetch(
        END_TRANSACTION.format(period=outcomes.period),
        transaction_id,
        uuid.uuid4(),
        timestamp_ms,
        state == State.COMMITTED,
        reason,
        note,
        now,
        [transaction_id, *parts],
        settled,
    )
    return {(str(row[0]), row[1]): row[2] for row in rows}


async def outcome(connection: Connection, transaction_id: str) -> Transaction | None:
    """What became of a transaction that wrote. To miss nothing, look for its row first."""
    row = await connection.fetchrow(
        f"""SELECT transactional_id, producer_epoch, principal, committed, reason, {_MS.format("began_at")},
              {_MS.format("ended_at")}, partitions, settled
            FROM log.transaction_outcomes WHERE transaction_id = $1""",
        transaction_id,
    )
    if row is None:
        return None
    return Transaction(
        transaction_id=transaction_id,
        transactional_id=row[0],
        producer_epoch=row[1],
        principal=row[2],
        state=State.COMMITTED if row[3] else State.ABORTED,
        reason=Reason(row[4]),
        began_at_ms=row[5],
        ended_at_ms=row[6],
        partitions=row[7],
        settled=row[8],
    )


async def places_of(connection: Connection, transaction_id: str) -> list[tuple[str, int, int]]:
    """Topic id, partition and first offset of each partition that an open transaction wrote to."""
    rows = await connection.fetch(
        """SELECT topic_id, partition, first_offset FROM log.transaction_partitions
           WHERE transaction_id = $1 ORDER BY 1, 2""",
        transaction_id,
    )
    return [(str(row[0]), row[1], row[2]) for row in rows]


BLOCKED: Final = """log.transaction_partitions t JOIN log.readers r ON r.topic_id = t.topic_id AND r.partition = t.partition
  WHERE t.transaction_id = $1 AND NOT EXISTS (
    SELECT FROM log.transaction_partitions o
    WHERE o.topic_id = t.topic_id AND o.partition = t.partition AND o.first_offset < t.first_offset)"""
"""The readers `r` of partitions where a transaction is the oldest open one."""
MOST_READERS: Final = 100_000
"""The most readers that one description looks at."""


async def groups_behind(connection: Connection, transaction_id: str, most: int) -> list[str]:
    """Groups that read a partition where the transaction holds back the last stable offset, of any level."""
    rows = await connection.fetch(
        f"SELECT DISTINCT group_id FROM (SELECT r.group_id FROM {BLOCKED} LIMIT {MOST_READERS}) few ORDER BY 1 LIMIT $2",
        transaction_id,
        most,
    )
    return [row[0] for row in rows]


async def share_partitions_behind(
    connection: Connection, transaction_id: str, groups: Sequence[str], most: int
) -> list[SharePartitionKey]:
    """Where the transaction holds back the last stable offset of these groups."""
    rows = await connection.fetch(
        f"""SELECT r.group_id, r.topic_id, r.partition FROM {BLOCKED} AND r.group_id = ANY($2::text[])
            ORDER BY 1, 2, 3 LIMIT $3""",
        transaction_id,
        list(groups),
        most,
    )
    return [SharePartitionKey(row[0], str(row[1]), row[2]) for row in rows]


async def find(connection: Connection, transaction_id: str) -> Transaction | None:
    """What is known of a transaction. Its row first, then the outcomes: in this order nothing is missed."""
    row = await connection.fetchrow(f"SELECT {_ROW} FROM log.transactions WHERE transaction_id = $1", transaction_id)
    return await outcome(connection, transaction_id) if row is None else transaction_of(row)


class OpenTransaction(NamedTuple):
    """An open transaction in a list. `partitions`: to how many it wrote."""

    transaction_id: str
    transactional_id: str | None
    producer_epoch: int
    began_at: datetime
    began_at_ms: int
    age_ms: int
    timeout_ms: int
    partitions: int


async def list_open(
    connection: Connection,
    transactional_id: str | None,
    prefix: str | None,
    older_than_ms: int,
    after: tuple[datetime, str] | None,
    most: int,
) -> list[OpenTransaction]:
    """Open transactions, the oldest first. `after`: begin and id of the one before. The open ones are bounded."""
    began_at, last_id = (datetime.fromtimestamp(0, UTC), "") if after is None else after
    rows = await connection.fetch(
        f"""SELECT transaction_id, transactional_id, producer_epoch, began_at, {_MS.format("began_at")},
              {_MS.format("n.now")} - {_MS.format("began_at")} AS age_ms, timeout_ms,
              (SELECT count(*) FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id)
            FROM log.transactions t CROSS JOIN (SELECT clock_timestamp() AS now) n
            WHERE state = 0 AND began_at >= $1 AND (began_at, transaction_id) > ($1, $2)
              AND ($3::text IS NULL OR transactional_id = $3)
              AND ($6::text IS NULL OR starts_with(transactional_id, $6))
              AND {_MS.format("n.now")} - {_MS.format("began_at")} >= $4
            ORDER BY began_at, transaction_id LIMIT $5""",
        began_at,
        last_id,
        transactional_id,
        older_than_ms,
        most,
        prefix,
    )
    return [OpenTransaction(*row) for row in rows]


# Sweep


class Swept(NamedTuple):
    """Transactions whose time had passed: how many were found, those that must be ended, and how many of the others
    were open. Those are gone."""

    found: int
    due: list[str]
    timed_out: int


async def sweep(connection: Connection, at_once: int) -> Swept:
    """Take transactions whose time has passed; delete the rows of those that have no partition.

    Two statements, and the second one looks with a snapshot of its own: a partition that an append registered before
    the first one had the lock would be missed by a single statement, and would never be open nor ended.
    The time stands in a query of its own: of a function that changes, PostgreSQL makes no condition of an index.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """SELECT transaction_id FROM log.transactions WHERE deadline <= (SELECT clock_timestamp())
               ORDER BY deadline LIMIT $1 FOR UPDATE SKIP LOCKED""",
            at_once,
        )
        due = [row[0] for row in rows]
        if not due:
            return Swept(0, [], 0)
        gone = await connection.fetch(
            """DELETE FROM log.transactions t WHERE transaction_id = ANY($1::text[]) AND NOT EXISTS (
                 SELECT FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id)
               RETURNING transaction_id, state""",
            due,
        )
    deleted = {row[0] for row in gone}
    return Swept(
        len(due),
        [transaction_id for transaction_id in due if transaction_id not in deleted],
        sum(row[1] == State.OPEN for row in gone),
    )


class OpenNow(NamedTuple):
    """How many transactions are open; the oldest of them, its age in ms, and to how many partitions it wrote."""

    transactions: int
    oldest: str | None = None
    transactional_id: str | None = None
    age_ms: int = 0
    partitions: int = 0


async def open_now(connection: Connection) -> OpenNow:
    """Look at what is open: a count over the index of open transactions, which are bounded, and one row."""
    row = await connection.fetchrow(
        f"""SELECT (SELECT count(*) FROM log.transactions WHERE state = 0), t.transaction_id, t.transactional_id,
              {_MS.format("clock_timestamp()")} - {_MS.format("t.began_at")},
              (SELECT count(*) FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id)
            FROM log.transactions t WHERE t.state = 0 ORDER BY t.began_at LIMIT 1"""
    )
    return OpenNow(0) if row is None else OpenNow(*row)


async def forget_producers(connection: Connection, at_once: int) -> int:
    """Delete old rows of transactional ids. Returns: how many."""
    status: str = await connection.execute(
        f"""DELETE FROM log.transactional_producers WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM log.transactional_producers
             WHERE keep_until < now() AND producer_epoch < {FIRST_EPOCH} LIMIT $1 FOR UPDATE SKIP LOCKED))""",
        at_once,
    )
    return int(status.rpartition(" ")[2])
