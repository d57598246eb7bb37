"""The table of samples, beside the record log: rows of a series and a time. One function per statement.

A series is the cluster (""), a group ("g/NAME") or a topic ("t/ID"); with "h/" in front, its hours. `counts` has, by
the names below, what happened since the row before, then what was there at the time. The purge removes rows that
expire.
"""

from collections.abc import Sequence
from typing import Final

from sharequeue_gateway.record_log.store import HOUR_MS, Connection

IN, OUT, FAILED, DEAD, BACKLOG, HELD, DELAYED, OPEN, OLDEST = range(9)
"""OLDEST: the timestamp of the oldest record that waits for a worker; 0: none waits."""
FINE_MS: Final = 24 * HOUR_MS
"""Older samples are hours."""
HOURS_MS: Final = 8 * FINE_MS
KEPT_BEFORE_MS: Final = 2 * HOUR_MS
"""The time before a span in which the last row before it is looked for: each series has a row an hour."""

Counts = list[int]


def hours_of(series: str) -> str:
    return f"h/{series}"


async def write(connection: Connection, at_ms: int, rows: Sequence[tuple[str, Counts]]) -> None:
    """Write the rows of a time, and add each to the row of its hour. Written again, they change nothing."""
    await connection.execute(
        """WITH written AS (
             INSERT INTO log.samples SELECT t.series, $1, t.counts::bigint[], $4
             FROM unnest($2::text[], $3::text[]) AS t(series, counts) ON CONFLICT DO NOTHING RETURNING series, counts)
           INSERT INTO log.samples AS hour SELECT 'h/' || series, $5, counts, $6 FROM written ORDER BY series
           ON CONFLICT (series, at_ms) DO UPDATE SET counts = ARRAY[
             hour.counts[1] + excluded.counts[1], hour.counts[2] + excluded.counts[2],
             hour.counts[3] + excluded.counts[3], hour.counts[4] + excluded.counts[4]] || excluded.counts[5:]""",
        at_ms,
        [series for series, _ in rows],
        ["{" + ",".join(map(str, counts)) + "}" for _, counts in rows],
        at_ms + FINE_MS + KEPT_BEFORE_MS,
        hour_ms := -(-at_ms // HOUR_MS) * HOUR_MS,
        hour_ms + HOURS_MS,
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
