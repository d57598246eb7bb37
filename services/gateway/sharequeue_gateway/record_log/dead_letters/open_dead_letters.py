"""The SQL of the counts of open dead letters, parked ones included: they are counted, not searched.

A count changes in the transaction that writes, closes, removes or parks the dead letters, so a crash leaves no wrong
one. Counts come last, in the order of their keys.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.store import Connection, columns_of


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
