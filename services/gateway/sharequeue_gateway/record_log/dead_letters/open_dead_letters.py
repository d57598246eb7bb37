"""The SQL of open dead letters: those that were neither closed (redriven, dropped, finished) nor removed from their
topic.
They are counted, not searched.

    log.open_dead_letters          ranges of a dead-letter topic, each written for one share-partition
    log.open_dead_letter_counts    how many each share-partition has, parked ones included

Both change in the transaction that writes, closes, removes or parks the dead letters, so a crash leaves no wrong
count. A range changes only under the lock of its partition of the dead-letter topic.
Counts come last, in the order of their keys.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import OffsetRange, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.dead_letters.open_ranges import OpenRange, without
from sharequeue_gateway.record_log.store import Connection, columns_of

RANGES_AT_ONCE: Final = 1000


class OpenCount(NamedTuple):
    """The open dead letters of a group that came from a topic."""

    group_id: str
    topic_id: str
    records: int


class OpenCounts(NamedTuple):
    """The largest counts, and the sum and number of all."""

    largest: list[OpenCount]
    records: int
    pairs: int


async def write(
    connection: Connection, source: SharePartitionKey, place: TopicIdPartition, first_offset: int, last_offset: int
) -> None:
    """Dead letters of a share-partition were appended at `place`. A range that ends in front of them is made longer."""
    await connection.execute(
        """WITH longer AS (
             UPDATE log.open_dead_letters SET last_offset = $7
             WHERE letter_topic_id = $4 AND letter_partition = $5 AND last_offset = $6 - 1
               AND (group_id, topic_id, partition) = ($1, $2, $3)
               AND first_offset = (
                 SELECT first_offset FROM log.open_dead_letters WHERE letter_topic_id = $4 AND letter_partition = $5
                 ORDER BY first_offset DESC LIMIT 1)
             RETURNING 1)
           INSERT INTO log.open_dead_letters
             (letter_topic_id, letter_partition, first_offset, last_offset, group_id, topic_id, partition)
           SELECT $4, $5, $6, $7, $1, $2, $3 WHERE NOT EXISTS (SELECT FROM longer)""",
        *source,
        *place,
        first_offset,
        last_offset,
    )
    await add(connection, source, last_offset - first_offset + 1)


async def add(connection: Connection, source: SharePartitionKey, records: int) -> None:
    """More dead letters of a share-partition are open."""
    await connection.execute(
        """INSERT INTO log.open_dead_letter_counts AS c (group_id, topic_id, partition, records) VALUES ($1, $2, $3, $4)
           ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET records = c.records + excluded.records""",
        *source,
        records,
    )


async def subtract(connection: Connection, fewer: Mapping[SharePartitionKey, int]) -> None:
    """Fewer dead letters of these share-partitions are open. Call it once in a transaction, and last."""
    keys = sorted(fewer)
    if not keys:
        return
    columns = columns_of(keys, 3)
    await connection.execute(
        """SELECT FROM log.open_dead_letter_counts JOIN unnest($1::text[], $2::uuid[], $3::int[])
             AS t(group_id, topic_id, partition) USING (group_id, topic_id, partition)
           ORDER BY group_id COLLATE "C", topic_id, partition FOR UPDATE OF open_dead_letter_counts""",
        *columns,
    )
    await connection.execute(
        """UPDATE log.open_dead_letter_counts c SET records = greatest(c.records - t.fewer, 0)
           FROM unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[]) AS t(group_id, topic_id, partition, fewer)
           WHERE c.group_id = t.group_id AND c.topic_id = t.topic_id AND c.partition = t.partition""",
        *columns,
        [fewer[key] for key in keys],
    )


async def close(
    connection: Connection, place: TopicIdPartition, closed: Sequence[OffsetRange], group_id: str | None = None
) -> Counter[SharePartitionKey]:
    """Dead letters at `place` were closed by `group_id`, or removed by compaction. Call it under the lock of `place`.

    Args:
        closed: offsets, ascending and disjoint. What is not open there stays as it is.
    Returns: how many are closed, by the share-partition that they were written for: to `subtract`.
    """
    rows = await connection.fetch(
        """SELECT DISTINCT o.first_offset, o.last_offset, o.group_id, o.topic_id, o.partition
           FROM unnest($3::bigint[], $4::bigint[]) AS t(first_offset, last_offset)
           CROSS JOIN LATERAL (
             SELECT * FROM log.open_dead_letters o
             WHERE o.letter_topic_id = $1 AND o.letter_partition = $2 AND o.first_offset <= t.last_offset
               AND o.first_offset >= coalesce((
                 SELECT max(b.first_offset) FROM log.open_dead_letters b
                 WHERE b.letter_topic_id = $1 AND b.letter_partition = $2 AND b.first_offset <= t.first_offset),
                 t.first_offset)
               AND o.last_offset >= t.first_offset) o
           WHERE $5::text IS NULL OR o.group_id = $5""",
        *place,
        *columns_of(closed, 2),
        group_id,
    )
    if not rows:
        return Counter()
    found = [OpenRange(row[0], row[1], SharePartitionKey(row[2], str(row[3]), row[4])) for row in rows]
    fewer: Counter[SharePartitionKey] = Counter()
    left: list[OpenRange] = []
    for opened in found:
        rest = without(opened, closed)
        fewer[opened.source] += opened.records - sum(each.records for each in rest)
        left += rest
    await connection.execute(
        """DELETE FROM log.open_dead_letters
           WHERE letter_topic_id = $1 AND letter_partition = $2 AND first_offset = ANY($3::bigint[])""",
        *place,
        [opened.first_offset for opened in found],
    )
    await connection.execute(
        """INSERT INTO log.open_dead_letters
             (letter_topic_id, letter_partition, first_offset, last_offset, group_id, topic_id, partition)
           SELECT $1, $2, * FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::uuid[], $7::int[])""",
        *place,
        *columns_of([(each.first_offset, each.last_offset, *each.source) for each in left], 5),
    )
    return fewer


async def finished_by(
    connection: Connection, group_id: str, letter_topic_id: str, consumer_group: str
) -> list[tuple[int, int, int]]:
    """Open dead letters of a group that lie below the floor of another group: the first RANGES_AT_ONCE ranges, each
    with its partition and its first and last offset."""
    rows = await connection.fetch(
        """SELECT o.letter_partition, o.first_offset, least(o.last_offset, r.floor - 1)
           FROM log.readers r JOIN log.open_dead_letters o
             ON o.letter_topic_id = r.topic_id AND o.letter_partition = r.partition AND o.first_offset < r.floor
           WHERE r.topic_id = $1 AND r.group_id = $2 AND o.group_id = $3 ORDER BY 1, 2 LIMIT $4""",
        letter_topic_id,
        consumer_group,
        group_id,
        RANGES_AT_ONCE,
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def leave(connection: Connection, letter_topic_id: str, log_starts: Mapping[int, int]) -> None:
    """The log starts of these partitions of a topic have moved up: the dead letters below them are open no more."""
    rows = await connection.fetch(
        """WITH gone AS (
             DELETE FROM log.open_dead_letters o USING unnest($2::int[], $3::bigint[]) AS t(partition, log_start)
             WHERE o.letter_topic_id = $1 AND o.letter_partition = t.partition AND o.first_offset < t.log_start
             RETURNING o.*, t.log_start),
           kept AS (
             INSERT INTO log.open_dead_letters
               (letter_topic_id, letter_partition, first_offset, last_offset, group_id, topic_id, partition)
             SELECT letter_topic_id, letter_partition, log_start, last_offset, group_id, topic_id, partition FROM gone
             WHERE last_offset >= log_start)
           SELECT group_id, topic_id, partition, sum(least(last_offset + 1, log_start) - first_offset)::bigint FROM gone
           GROUP BY 1, 2, 3""",
        letter_topic_id,
        list(log_starts),
        list(log_starts.values()),
    )
    await subtract(connection, _by_source(rows))


async def remove_of_topic(connection: Connection, letter_topic_id: str, partitions: range) -> None:
    """A dead-letter topic is deleted: its dead letters are open no more."""
    rows = await connection.fetch(
        """WITH gone AS (
             DELETE FROM log.open_dead_letters
             WHERE letter_topic_id = $1 AND letter_partition >= $2 AND letter_partition < $3 RETURNING *)
           SELECT group_id, topic_id, partition, sum(last_offset + 1 - first_offset)::bigint FROM gone GROUP BY 1, 2, 3""",
        letter_topic_id,
        partitions.start,
        partitions.stop,
    )
    await subtract(connection, _by_source(rows))


def _by_source(rows: Sequence[Any]) -> dict[SharePartitionKey, int]:
    return {SharePartitionKey(row[0], str(row[1]), row[2]): row[3] for row in rows}


async def counts_of(connection: Connection, group_id: str) -> dict[TopicIdPartition, int]:
    """The open dead letters of a group, by the partition of their records."""
    rows = await connection.fetch(
        "SELECT topic_id, partition, records FROM log.open_dead_letter_counts WHERE group_id = $1 AND records > 0",
        group_id,
    )
    return {(str(row[0]), row[1]): row[2] for row in rows}


async def counts(connection: Connection, most_pairs: int) -> OpenCounts:
    """The open dead letters of all groups by topic, the most first."""
    rows = await connection.fetch(
        """SELECT group_id, topic_id, sum(records)::bigint, (sum(sum(records)) OVER ())::bigint, count(*) OVER ()
           FROM log.open_dead_letter_counts WHERE records > 0 GROUP BY group_id, topic_id ORDER BY 3 DESC LIMIT $1""",
        most_pairs,
    )
    largest = [OpenCount(row[0], str(row[1]), row[2]) for row in rows]
    return OpenCounts(largest, rows[0][3], rows[0][4]) if rows else OpenCounts([], 0, 0)
