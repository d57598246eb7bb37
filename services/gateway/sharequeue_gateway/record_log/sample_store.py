"""The table of samples, beside the record log: rows of a series and a time. One function per statement.

A series is the cluster (""), a group ("g/NAME") or a topic ("t/ID"). `counts` has, by the names below, what happened
since the row before, then what was there at the time.
"""

from collections.abc import Sequence
from typing import Final

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.store import Connection

IN, OUT, FAILED, DEAD, BACKLOG, HELD, DELAYED, OPEN, OLDEST = range(9)
"""OLDEST: the timestamp of the oldest record that waits for a worker; 0: none waits."""
KEPT_BEFORE_MS: Final = 7_200_000
"""The time before a span in which the last row before it is looked for: each series has a row an hour."""
MOST_CHANGED: Final = 1000
"""Rows that one statement merges or removes: three times as many as a round writes."""

Counts = list[int]


async def write(connection: Connection, at_ms: int, rows: Sequence[tuple[str, Counts]]) -> None:
    await connection.execute(
        """INSERT INTO log.samples (series, at_ms, counts)
           SELECT t.series, $1, t.counts::bigint[] FROM unnest($2::text[], $3::text[]) AS t(series, counts)
           ON CONFLICT DO NOTHING""",
        at_ms,
        [series for series, _ in rows],
        ["{" + ",".join(map(str, counts)) + "}" for _, counts in rows],
    )


async def steps(connection: Connection, series: str, first: int, end: int, step_ms: int) -> dict[int, Counts]:
    """By step, from `first` up to `end` (exclusive): what happened in it, and what was there at its last row.

    A step begins behind a multiple of `step_ms`. Step `first` - 1 stands for KEPT_BEFORE_MS before the others.
    """
    rows = await connection.fetch(
        """SELECT greatest((at_ms - 1) / $4, $2 - 1), sum(counts[1])::bigint, sum(counts[2])::bigint,
             sum(counts[3])::bigint, sum(counts[4])::bigint, max(at_ms || counts)
           FROM log.samples WHERE series = $1 AND at_ms > $2 * $4 - $5 AND at_ms <= $3 * $4 GROUP BY 1""",
        series,
        first,
        end,
        step_ms,
        KEPT_BEFORE_MS,
    )
    return {row[0]: [*list(row)[1:5], *row[5][1 + BACKLOG :]] for row in rows}


async def merge_some(connection: Connection, end_ms: int) -> int:
    """Add some rows of an hour to the one row that a series keeps of it, at its end; the newest rows first, so that
    the row has what was there at the end. What the rows say of the hour stays the same.

    Returns: how many rows were added; 0: each series has that row alone.
    """
    merged: int = await connection.fetchval(
        """WITH old AS (DELETE FROM log.samples WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM log.samples WHERE at_ms > $1::bigint - 3600000 AND at_ms < $1
             ORDER BY at_ms DESC LIMIT $2)) RETURNING *),
           hours AS (
             INSERT INTO log.samples AS kept SELECT series, $1, ARRAY[sum(counts[1]), sum(counts[2]), sum(counts[3]),
               sum(counts[4])]::bigint[] || (max(at_ms || counts))[6:] FROM old GROUP BY series
             ON CONFLICT (series, at_ms) DO UPDATE SET counts = ARRAY[
               kept.counts[1] + excluded.counts[1], kept.counts[2] + excluded.counts[2],
               kept.counts[3] + excluded.counts[3], kept.counts[4] + excluded.counts[4]] || kept.counts[5:])
           SELECT count(*) FROM old""",
        end_ms,
        MOST_CHANGED,
    )
    return merged


async def remove_some(connection: Connection, before_ms: int) -> None:
    """Remove some older rows, the oldest first."""
    await store.remove_some(connection, "samples", "at_ms < $2 ORDER BY at_ms", MOST_CHANGED, before_ms)
