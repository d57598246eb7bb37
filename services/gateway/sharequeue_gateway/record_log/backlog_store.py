"""The SQL of the backlog metrics: how much of the log the groups have not finished, and how old the oldest of it is."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue_gateway.record_log.store import END, Connection

AGED_AT_ONCE: Final = 1000
"""The most share-partitions whose oldest record is looked up in a round, the largest backlogs first."""


def _backlogs(of_groups: str) -> str:
    return f"""
    WITH read AS MATERIALIZED (
      SELECT p.topic_id, p.partition, p.log_start_offset, {END} AS log_end_offset FROM log.partitions p
      WHERE NOT p.deleted
        AND (p.topic_id, p.partition) IN (SELECT r.topic_id, r.partition FROM log.readers r WHERE {of_groups})),
    backlogs AS MATERIALIZED (
      SELECT r.group_id, r.topic_id, r.partition, greatest(r.floor, read.log_start_offset) AS first_offset,
        greatest(read.log_end_offset - greatest(r.floor, read.log_start_offset), 0) AS records, r.ready, r.delayed
      FROM log.readers r JOIN read USING (topic_id, partition) WHERE {of_groups})"""


_LETTERS: Final = """
    WITH letters AS (
      SELECT group_id, topic_id, count(*) AS records FROM log.dead_letter_sources WHERE open GROUP BY group_id, topic_id)"""
_OF_ALL: Final = _backlogs("true")
_OF_SOME: Final = _backlogs("r.group_id = ANY($2)")


class Backlog(NamedTuple):
    """The records from a group's floors to the ends of a topic's partitions, or its open dead letters from a topic."""

    group_id: str
    topic_id: str
    records: int


Oldest = dict[tuple[str, str, bool], int]
"""The timestamp of the oldest record in ms since 1970, by group, topic id and whether it is delayed."""


class Backlogs(NamedTuple):
    """The largest ones, and the sum and number of all."""

    largest: list[Backlog]
    records: int
    pairs: int


class GroupBacklog(NamedTuple):
    """The records above the floors of a group, its open dead letters, and the timestamp of the oldest ready record."""

    records: int
    open_dead_letters: int
    oldest_ready_ms: int | None


async def backlogs(connection: Connection, most_pairs: int) -> Backlogs:
    """The backlogs of all groups, the largest first."""
    return await _largest(connection, _OF_ALL, "backlogs", most_pairs)


async def open_letters(connection: Connection, most_pairs: int) -> Backlogs:
    """The open dead letters of all groups by the topic of their records, the most first."""
    return await _largest(connection, _LETTERS, "letters", most_pairs)


async def _largest(connection: Connection, with_: str, source: str, most_pairs: int) -> Backlogs:
    rows = await connection.fetch(
        f"""{with_}
            SELECT group_id, topic_id, sum(records)::bigint, (sum(sum(records)) OVER ())::bigint, count(*) OVER ()
            FROM {source} GROUP BY group_id, topic_id ORDER BY 3 DESC LIMIT $1""",
        most_pairs,
    )
    largest = [Backlog(row[0], str(row[1]), row[2]) for row in rows]
    return Backlogs(largest, rows[0][3], rows[0][4]) if rows else Backlogs([], 0, 0)


async def of_groups(connection: Connection, group_ids: Sequence[str]) -> dict[str, GroupBacklog]:
    """The backlogs of some groups, in all of their topics."""
    oldest_ms: dict[str, int] = {}
    for (group_id, _, delayed), timestamp_ms in (await oldest(connection, group_ids)).items():
        if not delayed:
            oldest_ms[group_id] = min(oldest_ms.get(group_id, timestamp_ms), timestamp_ms)
    rows = await connection.fetch(
        f"""{_OF_SOME}
            SELECT g.group_id, (SELECT coalesce(sum(records), 0)::bigint FROM backlogs b WHERE b.group_id = g.group_id),
              (SELECT count(*) FROM log.dead_letter_sources d WHERE d.group_id = g.group_id AND d.open)
            FROM unnest($2::text[]) AS g(group_id) LIMIT $1""",
        len(group_ids),
        group_ids,
    )
    return {row[0]: GroupBacklog(row[1], row[2], oldest_ms.get(row[0])) for row in rows}


async def oldest(connection: Connection, group_ids: Sequence[str] | None = None) -> Oldest:
    """The oldest records of the largest backlogs. Those that are not delayed wait for a worker: nobody holds them.
    `group_ids`: None: of all groups."""
    rows = await connection.fetch(
        f"""{_OF_ALL if group_ids is None else _OF_SOME},
            largest AS MATERIALIZED (
              SELECT * FROM backlogs WHERE records > 0 ORDER BY records DESC LIMIT $1)
            SELECT l.group_id, l.topic_id, f.is_delayed, min(b.max_timestamp_ms) FROM largest l
            CROSS JOIN LATERAL (VALUES (false, greatest(l.first_offset, l.ready)), (true, l.delayed))
              f(is_delayed, first_offset)
            CROSS JOIN LATERAL (
              SELECT b.max_timestamp_ms FROM log.record_batches b
              WHERE b.topic_id = l.topic_id AND b.partition = l.partition AND b.last_offset >= f.first_offset
                AND b.base_offset >= coalesce(
                  (SELECT max(base_offset) FROM log.record_batches
                   WHERE topic_id = l.topic_id AND partition = l.partition AND base_offset <= f.first_offset), 0)
              ORDER BY b.base_offset LIMIT 1) b
            GROUP BY l.group_id, l.topic_id, f.is_delayed""",
        AGED_AT_ONCE,
        *(() if group_ids is None else (group_ids,)),
    )
    return {(row[0], str(row[1]), row[2]): row[3] for row in rows}


async def log_bytes(connection: Connection) -> int:
    """The bytes that the record batches take on disk, with their index."""
    found: int = await connection.fetchval("SELECT pg_total_relation_size('log.record_batches')")
    return found
