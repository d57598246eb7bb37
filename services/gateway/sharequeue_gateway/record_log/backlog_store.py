"""The SQL of the backlog metrics: how much of the log the groups have not finished, and how old the oldest of it is."""

from typing import Final, NamedTuple

from sharequeue_gateway.record_log.store import END, Connection

AGED_AT_ONCE: Final = 1000
"""The most share-partitions whose oldest record is looked up in a round, the largest backlogs first."""

BACKLOGS: Final = f"""
    WITH read AS MATERIALIZED (
      SELECT p.topic_id, p.partition, p.log_start_offset, {END} AS log_end_offset FROM log.partitions p
      WHERE NOT p.deleted
        AND EXISTS (SELECT FROM log.readers r WHERE r.topic_id = p.topic_id AND r.partition = p.partition)),
    backlogs AS MATERIALIZED (
      SELECT r.group_id, r.topic_id, r.partition, greatest(r.floor, read.log_start_offset) AS first_offset,
        greatest(read.log_end_offset - greatest(r.floor, read.log_start_offset), 0) AS records, r.ready, r.delayed
      FROM log.readers r JOIN read USING (topic_id, partition))"""


class Backlog(NamedTuple):
    """The records from a group's floors to the ends of a topic's partitions."""

    group_id: str
    topic_id: str
    records: int


Oldest = dict[tuple[str, str, bool], int]
"""The timestamp of the oldest record in ms since 1970, by group, topic id and whether it is delayed."""


class Backlogs(NamedTuple):
    """The largest backlogs, and the sum and number of all."""

    largest: list[Backlog]
    records: int
    pairs: int


async def backlogs(connection: Connection, most_pairs: int) -> Backlogs:
    """The backlogs of all groups, the largest first."""
    rows = await connection.fetch(
        f"""{BACKLOGS}
            SELECT group_id, topic_id, sum(records)::bigint, (sum(sum(records)) OVER ())::bigint, count(*) OVER ()
            FROM backlogs GROUP BY group_id, topic_id ORDER BY 3 DESC LIMIT $1""",
        most_pairs,
    )
    largest = [Backlog(row[0], str(row[1]), row[2]) for row in rows]
    return Backlogs(largest, rows[0][3], rows[0][4]) if rows else Backlogs([], 0, 0)


async def oldest(connection: Connection) -> Oldest:
    """The oldest records of the largest backlogs. Those that are not delayed wait for a worker: nobody holds them."""
    rows = await connection.fetch(
        f"""{BACKLOGS},
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
    )
    return {(row[0], str(row[1]), row[2]): row[3] for row in rows}


async def log_bytes(connection: Connection) -> int:
    """The bytes that the record batches take on disk, with their index."""
    found: int = await connection.fetchval("SELECT pg_total_relation_size('log.record_batches')")
    return found
