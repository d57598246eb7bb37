"""The SQL that lists transactions: open ones, and those that have ended, for as long as their outcomes are kept.

For ended ones, one statement looks at a bounded number of outcomes of one state, by an index from the last end
backwards. If a filter leaves few of them, the page is short, and the next page goes on behind the last one that was
looked at.
"""

from datetime import UTC, datetime
from typing import Final

from sharequeue.protocol.messages.transactions import (
    EndedTransactionListing,
    ListTransactionsQuery,
    TransactionListing,
)
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.store import OWNED, Connection
from sharequeue_gateway.record_log.transactions.transaction_rules import Reason
from sharequeue_gateway.record_log.transactions.transaction_store import MS

LOOKED_AT: Final = 10_000
"""The most outcomes that one page looks at."""

_ENDED: Final = ("transaction_id", "transactional_id", "producer_epoch", "began_at_ms", "ended_at_ms", "partitions")
Place = tuple[datetime, str]
"""When the last transaction of a page began, or if it has ended, when it ended; and its id."""


async def list_open(
    connection: Connection, query: ListTransactionsQuery, after: Place | None, owner: str = ANY_OWNER
) -> tuple[list[TransactionListing], Place | None]:
    """A page of the open transactions, the oldest first. The open ones are bounded.

    `after`: the place of the page before. `owner`: patterns of the transactions to list. Returns: the page, and its
    place if there are more.
    """
    began_at, last_id = (datetime.fromtimestamp(0, UTC), "") if after is None else after
    rows = await connection.fetch(
        f"""SELECT transaction_id, transactional_id, producer_epoch, began_at, {MS.format("began_at")} AS began_at_ms,
              {MS.format("n.now")} - {MS.format("began_at")} AS age_ms, timeout_ms,
              (SELECT count(*) FROM log.transaction_partitions r WHERE r.transaction_id = t.transaction_id) AS partitions
            FROM log.transactions t CROSS JOIN (SELECT clock_timestamp() AS now) n
            WHERE began_at >= $1 AND (began_at, transaction_id) > ($1, $2)
              AND ($3::text IS NULL OR transactional_id = $3)
              AND ($6::text IS NULL OR starts_with(transactional_id, $6))
              AND {MS.format("n.now")} - {MS.format("began_at")} >= $4 AND {OWNED.format(owner="$7")}
            ORDER BY began_at, transaction_id LIMIT $5""",
        began_at,
        last_id,
        query.transactional_id,
        query.older_than_ms,
        query.page_size + 1,
        query.transactional_id_prefix,
        owner,
    )
    page = rows[: query.page_size]
    listed = [TransactionListing(**{name: row[name] for name in TransactionListing.__struct_fields__}) for row in page]
    return listed, (page[-1][3], page[-1][0]) if len(rows) > len(page) else None


async def list_ended(
    connection: Connection, query: ListTransactionsQuery, after: Place | None, owner: str = ANY_OWNER
) -> tuple[list[EndedTransactionListing], Place | None]:
    """A page of the committed or of the aborted transactions, the last one first. As `list_open`."""
    ended_at, last_id = (None, None) if after is None else after
    most, transactional_id, prefix = query.page_size, query.transactional_id, query.transactional_id_prefix
    rows = await connection.fetch(
        f"""WITH looked AS MATERIALIZED (
              SELECT transaction_id, transactional_id, principal, producer_epoch, reason, began_at, ended_at, partitions
              FROM log.transaction_outcomes
              WHERE committed = $1
                AND ended_at <= (SELECT clock_timestamp() - make_interval(secs => $2::float8 / 1000))
                AND (ended_at, transaction_id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
              ORDER BY ended_at DESC, transaction_id DESC LIMIT $5)
            SELECT * FROM (
              SELECT transaction_id, transactional_id, producer_epoch, reason, {MS.format("began_at")} AS began_at_ms,
                {MS.format("ended_at")} AS ended_at_ms, partitions, ended_at,
                row_number() OVER (ORDER BY ended_at DESC, transaction_id DESC) AS number,
                ($6::text IS NULL OR coalesce(transactional_id = $6, false))
                  AND ($7::text IS NULL OR coalesce(starts_with(transactional_id, $7), false))
                  AND {OWNED.format(owner="$9")} AS wanted
              FROM looked t) numbered
            WHERE wanted OR number = $5 ORDER BY number LIMIT $8""",
        query.state == "committed",
        query.older_than_ms,
        ended_at,
        last_id,
        most + 1 if transactional_id is None and prefix is None and owner == ANY_OWNER else LOOKED_AT,
        transactional_id,
        prefix,
        most + 1,
        owner,
    )
    wanted = [row for row in rows if row[9]][:most]
    place = None
    if len(rows) > most:
        place = wanted[-1][7], wanted[-1][0]
    elif rows and rows[-1][8] == LOOKED_AT:
        place = rows[-1][7], rows[-1][0]
    listed = [
        EndedTransactionListing(
            **{name: row[name] for name in _ENDED}, state=query.state, reason=Reason(row[3]).name.lower()
        )
        for row in wanted
    ]
    return listed, place
