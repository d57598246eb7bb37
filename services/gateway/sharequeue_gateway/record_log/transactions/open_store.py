"""The SQL that looks at open transactions: the groups that one holds back, and the sweep of those out of time."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.store import Connection
from sharequeue_gateway.record_log.transactions.transaction_store import MS

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
    """Return where the transaction holds back the last stable offset of these groups."""
    rows = await connection.fetch(
        f"""SELECT r.group_id, r.topic_id, r.partition FROM {BLOCKED} AND r.group_id = ANY($2::text[])
            ORDER BY 1, 2, 3 LIMIT $3""",
        transaction_id,
        list(groups),
        most,
    )
    return [SharePartitionKey(row[0], str(row[1]), row[2]) for row in rows]


class OpenNow(NamedTuple):
    """The number of open transactions; the oldest of them, its age in ms, and to how many partitions it wrote."""

    transactions: int
    oldest: str | None = None
    transactional_id: str | None = None
    age_ms: int = 0
    partitions: int = 0


async def open_now(connection: Connection) -> OpenNow:
    """Look at what is open: a count over the index of open transactions, which are bounded, and one row."""
    row = await connection.fetchrow(
        f"""SELECT (SELECT count(*) FROM log.transactions), t.transaction_id, t.transactional_id,
              {MS.format("clock_timestamp()")} - {MS.format("t.began_at")},
              (SELECT count(*) FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id)
            FROM log.transactions t ORDER BY t.began_at LIMIT 1"""
    )
    return OpenNow(0) if row is None else OpenNow(*row)


class Swept(NamedTuple):
    """Transactions whose time had passed: how many were found, those that must be ended, and how many others there
    were. Those are gone."""

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
               RETURNING transaction_id""",
            due,
        )
    deleted = {row[0] for row in gone}
    return Swept(len(due), [transaction_id for transaction_id in due if transaction_id not in deleted], len(gone))
