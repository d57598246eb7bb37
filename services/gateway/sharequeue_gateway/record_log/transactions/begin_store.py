"""The SQL that begins transactions and keeps transactional ids: the epoch, the owner and the last note of each.

A new producer raises the epoch under the lock of the row, so the earlier ones are refused from then on.
"""

from typing import Final

from sharequeue_gateway.record_log.key_store import KNOWN_S
from sharequeue_gateway.record_log.store import Connection, remove_some
from sharequeue_gateway.record_log.transactions.transaction_rules import Transaction
from sharequeue_gateway.record_log.transactions.transaction_store import MS, ROW, transaction_of

FIRST_EPOCH: Final = "greatest(floor(extract(epoch FROM now() - timestamptz '2025-01-01Z')), 0)::int"
"""The epoch of the first producer of a transactional id: seconds. Each further producer has one more. A row is
forgotten when the seconds have passed its epoch, so an epoch is not given again:
not to the first producer after that either."""


_WITHIN_ITS_PART: Final = """AND (
  (SELECT count(*) FROM (SELECT FROM log.transactions LIMIT {each}) few) < {each}
  OR (SELECT count(*) FILTER (WHERE principal = {principal}) < {each}
        OR (count(*) FILTER (WHERE principal <> {principal}) = 0 AND count(*) < {most} - greatest({most} / 10, 1))
      FROM (SELECT principal FROM log.transactions LIMIT {most}) few))"""
"""Whether a principal may have one more. While fewer are open than each may have, nobody's are counted. One that
has its part and is alone leaves a tenth, so that another one finds room: from then on, it gets no more itself."""


async def raise_epoch(connection: Connection, transactional_id: str, principal: str) -> int:
    """A new producer begins: refuse the earlier ones from now on. Its id is kept for as long as outcomes are.

    Returns: its epoch.
    """
    epoch: int = await connection.fetchval(
        f"""INSERT INTO log.transactional_producers AS w (transactional_id, producer_epoch, principal, keep_until)
           VALUES ($1, {FIRST_EPOCH}, $2, now() + make_interval(secs => $3))
           ON CONFLICT (transactional_id) DO UPDATE SET producer_epoch = w.producer_epoch + 1,
             principal = excluded.principal, keep_until = greatest(w.keep_until, excluded.keep_until)
           RETURNING producer_epoch""",
        transactional_id,
        principal,
        KNOWN_S,
    )
    return epoch


async def lock_producer(connection: Connection, transactional_id: str, principal: str) -> tuple[int | None, str | None]:
    """Lock the row of a transactional id. Its holder must not wait for any other lock.

    Returns: its epoch and the last committed note; None: there is no such row, or no note.
    """
    row = await connection.fetchrow(
        """UPDATE log.transactional_producers SET keep_until = greatest(keep_until, now() + make_interval(secs => $2)),
             principal = $3
           WHERE transactional_id = $1 RETURNING producer_epoch, committed_note""",
        transactional_id,
        KNOWN_S,
        principal,
    )
    return (None, None) if row is None else (row[0], row[1])


async def open_of(connection: Connection, transactional_id: str) -> list[tuple[Transaction, bool]]:
    """The open transactions of a transactional id, each with whether its time has passed."""
    rows = await connection.fetch(
        f"""SELECT {ROW}, clock_timestamp() >= deadline FROM log.transactions
            WHERE transactional_id = $1""",
        transactional_id,
    )
    return [(transaction_of(row), row[9]) for row in rows]


async def forget_producers(connection: Connection, at_once: int) -> int:
    """Delete old rows of transactional ids. Returns: how many."""
    old = f"keep_until < now() AND producer_epoch < {FIRST_EPOCH}"
    return await remove_some(connection, "transactional_producers", old, at_once)


async def begin(
    connection: Connection,
    transaction_id: str,
    transactional_id: str | None,
    producer_epoch: int,
    principal: str,
    timeout_ms: int,
    most_open: int,
    *,
    most_each: int | None = None,
    durable: bool = True,
    part_of: str | None = None,
) -> int | None:
    """Begin a transaction.

    `most_each`: the most of this principal that are open while others' are; None: it has no bound of its own.
    `part_of`: a transaction whose row is locked, and whose deadline the new one has.

    `durable`: wait until the disk has it. Otherwise a crash of PostgreSQL within the next moment forgets it, as if it
    had been aborted; its commit is durable all the same.
    Returns: its deadline, in ms; None: `most_open` are open.
    """
    soon = "" if durable else "AND set_config('synchronous_commit', 'off', true) IS NOT NULL"
    bounded = "" if most_each is None else _WITHIN_ITS_PART.format(principal="$4", most="$6", each="$8")
    deadline = "(SELECT deadline FROM log.transactions WHERE transaction_id = $7)"
    if part_of is None:
        deadline = "clock_timestamp() + make_interval(secs => $5::int / 1000.0::float8)"
    deadline_ms: int | None = await connection.fetchval(
        f"""INSERT INTO log.transactions
              (transaction_id, transactional_id, producer_epoch, principal, timeout_ms, part_of, deadline)
            SELECT $1, $2, $3, $4, $5, $7::text, {deadline}
            WHERE (SELECT count(*) FROM (SELECT FROM log.transactions LIMIT $6) few) < $6 {bounded} {soon}
            RETURNING {MS.format("deadline")}""",
        transaction_id,
        transactional_id,
        producer_epoch,
        principal,
        timeout_ms,
        most_open,
        part_of,
        *(() if most_each is None else (most_each,)),
    )
    return deadline_ms


async def open_of_principal(connection: Connection, principal: str) -> int:
    """Return how many transactions of a principal are open."""
    count: int = await connection.fetchval("SELECT count(*) FROM log.transactions WHERE principal = $1", principal)
    return count
