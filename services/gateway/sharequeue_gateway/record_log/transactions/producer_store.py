"""The SQL of transactional ids: the epoch and the owner of each, and the note of its last commit.

A new producer raises the epoch under the lock of the row, so the earlier ones are refused from then on.
"""

from typing import Final, NamedTuple

from sharequeue_gateway.record_log.key_store import KeyTable
from sharequeue_gateway.record_log.store import Connection
from sharequeue_gateway.record_log.transactions.transaction_rows import ROW, transaction_of
from sharequeue_gateway.record_log.transactions.transaction_rules import Transaction

FIRST_EPOCH: Final = "greatest(floor(extract(epoch FROM now() - timestamptz '2025-01-01Z')), 0)::int"
"""The epoch of the first producer of a transactional id: seconds. Each further producer has one more. A row is
forgotten when the seconds have passed its epoch, so an epoch is not given again:
not to the first producer after that either."""


class Producer(NamedTuple):
    """The row of a transactional id."""

    producer_epoch: int
    principal: str
    committed_note: str | None


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
        f"""SELECT {ROW}, clock_timestamp() >= deadline FROM log.transactions
            WHERE transactional_id = $1 AND state = 0""",
        transactional_id,
    )
    return [(transaction_of(row), row[10]) for row in rows]


async def forget_producers(connection: Connection, at_once: int) -> int:
    """Delete old rows of transactional ids. Returns: how many."""
    status: str = await connection.execute(
        f"""DELETE FROM log.transactional_producers WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM log.transactional_producers
             WHERE keep_until < now() AND producer_epoch < {FIRST_EPOCH} LIMIT $1 FOR UPDATE SKIP LOCKED))""",
        at_once,
    )
    return int(status.rpartition(" ")[2])
