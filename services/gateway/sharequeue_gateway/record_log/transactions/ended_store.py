"""The SQL that lists transactions that have ended, for as long as their outcomes are kept.

One statement looks at a bounded number of outcomes of one state, by an index from the last end backwards. If a filter
leaves few of them, the page is short, and the next page goes on behind the last one that was looked at.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sharequeue_gateway.record_log.store import Connection
from sharequeue_gateway.record_log.transactions.transaction_rules import Reason
from sharequeue_gateway.record_log.transactions.transaction_store import MS

LOOKED_AT: Final = 10_000
"""The most outcomes that one page looks at."""


class EndedListed(NamedTuple):
    """A transaction that has ended, in a list. `partitions`: those that it wrote to."""

    transaction_id: str
    transactional_id: str | None
    producer_epoch: int
    reason: Reason
    began_at_ms: int
    ended_at_ms: int
    partitions: int


class EndedPage(NamedTuple):
    """`place`: the end and the id behind which the next page begins; None: this is the last page."""

    transactions: Sequence[EndedListed]
    place: tuple[datetime, str] | None


async def list_ended(
    connection: Connection,
    committed: bool,
    transactional_id: str | None,
    prefix: str | None,
    older_than_ms: int,
    after: tuple[datetime, str] | None,
    most: int,
) -> EndedPage:
    """A page of the committed or of the aborted transactions that wrote records, the last one first.

    Args:
        older_than_ms: only those that ended longer ago.
        after: the `place` of the page before.
        most: how many the page may have.
    """
    ended_at, last_id = (None, None) if after is None else after
    rows = await connection.fetch(
        f"""WITH looked AS MATERIALIZED (
              SELECT transaction_id, transactional_id, producer_epoch, reason, began_at, ended_at, partitions
              FROM log.transaction_outcomes
              WHERE committed = $1
                AND ended_at <= (SELECT clock_timestamp() - make_interval(secs => $2::float8 / 1000))
                AND (ended_at, transaction_id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
              ORDER BY ended_at DESC, transaction_id DESC LIMIT $5)
            SELECT * FROM (
              SELECT transaction_id, transactional_id, producer_epoch, reason, {MS.format("began_at")},
                {MS.format("ended_at")}, partitions, ended_at,
                row_number() OVER (ORDER BY ended_at DESC, transaction_id DESC) AS number,
                ($6::text IS NULL OR coalesce(transactional_id = $6, false))
                  AND ($7::text IS NULL OR coalesce(starts_with(transactional_id, $7), false)) AS wanted
              FROM looked) numbered
            WHERE wanted OR number = $5 ORDER BY number LIMIT $8""",
        committed,
        older_than_ms,
        ended_at,
        last_id,
        most + 1 if transactional_id is None and prefix is None else LOOKED_AT,
        transactional_id,
        prefix,
        most + 1,
    )
    wanted = [row for row in rows if row[9]][:most]
    further = len(rows) > most
    place = None
    if further:
        place = wanted[-1][7], wanted[-1][0]
    elif rows and rows[-1][8] == LOOKED_AT:
        place = rows[-1][7], rows[-1][0]
    return EndedPage([EndedListed(row[0], row[1], row[2], Reason(row[3]), *row[4:7]) for row in wanted], place)
