"""The SQL of `log.dead_letter_sources`: records that a dead letter without a copy points to. Cleaning keeps them.

A row is written in the transaction that writes its dead letter, so before the group's floor passes the record. It goes
when the dead letter is redriven, or when the record leaves the log. A row whose dead letter was deleted counts no more:
the log start of the dead-letter topic says so. A parked dead letter has no place in a topic: PARKED is its offset.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sharequeue_gateway.record_log.log import DeadLetterKey, DeadLetterRow
from sharequeue_gateway.record_log.store import Connection

PARKED: Final = -1


async def point(connection: Connection, rows: Sequence[DeadLetterRow], letters: Sequence[tuple[str, int, int]]) -> None:
    """Note the records of dead letters that have no copy. `letters`: topic id, partition and offset of each."""
    bare = [(row, letter) for row, letter in zip(rows, letters, strict=True) if not row.copied]
    if not bare:
        return
    await connection.execute(
        """INSERT INTO log.dead_letter_sources
             (topic_id, partition, record_offset, group_id, delivery_count, letter_topic_id, letter_partition, letter_offset)
           SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::text[], $5::int[], $6::uuid[], $7::int[], $8::bigint[])
           ON CONFLICT DO NOTHING""",
        [row.source.topic_id for row, _ in bare],
        [row.source.partition for row, _ in bare],
        [row.offset for row, _ in bare],
        [row.source.group_id for row, _ in bare],
        [row.delivery_count for row, _ in bare],
        *([letter[index] for _, letter in bare] for index in range(3)),
    )


async def redriven(connection: Connection, keys: Sequence[DeadLetterKey]) -> None:
    """Dead letters were redriven. `keys`: the place of each in its topic."""
    await connection.execute(
        """DELETE FROM log.dead_letter_sources s USING unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[])
             AS t(group_id, topic_id, partition, letter_offset)
           WHERE s.letter_topic_id = t.topic_id AND s.letter_partition = t.partition
             AND s.letter_offset = t.letter_offset AND s.group_id = t.group_id""",
        [key.source.group_id for key in keys],
        [key.source.topic_id for key in keys],
        [key.source.partition for key in keys],
        [key.offset for key in keys],
    )


async def unparked(connection: Connection, keys: Sequence[DeadLetterKey]) -> None:
    """Parked dead letters were redriven."""
    await connection.execute(
        """DELETE FROM log.dead_letter_sources s
           USING unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::int[])
             AS t(group_id, topic_id, partition, record_offset, delivery_count)
           WHERE s.topic_id = t.topic_id AND s.partition = t.partition AND s.record_offset = t.record_offset
             AND s.group_id = t.group_id AND s.delivery_count = t.delivery_count AND s.letter_offset = $6""",
        [key.source.group_id for key in keys],
        [key.source.topic_id for key in keys],
        [key.source.partition for key in keys],
        [key.offset for key in keys],
        [key.delivery_count for key in keys],
        PARKED,
    )


async def lowest(connection: Connection, topic_id: str, log_starts: Mapping[int, int]) -> dict[int, int]:
    """The first record of each partition that an open dead letter without a copy points to, where there is one.

    Args:
        log_starts: by partition.
    """
    rows: Sequence[Any] = await connection.fetch(
        """SELECT t.partition, (
             SELECT s.record_offset FROM log.dead_letter_sources s
             WHERE s.topic_id = $1 AND s.partition = t.partition AND s.record_offset >= t.log_start
               AND (s.letter_offset = $4 OR EXISTS (
                 SELECT FROM log.partitions l WHERE l.topic_id = s.letter_topic_id AND l.partition = s.letter_partition
                   AND NOT l.deleted AND l.log_start_offset <= s.letter_offset))
             ORDER BY s.record_offset LIMIT 1)
           FROM unnest($2::int[], $3::bigint[]) AS t(partition, log_start)""",
        topic_id,
        list(log_starts),
        list(log_starts.values()),
        PARKED,
    )
    return {row[0]: row[1] for row in rows if row[1] is not None}


async def leave(connection: Connection, topic_id: str, log_starts: Mapping[int, int]) -> None:
    """The log starts of these partitions have moved up: what lies below them is pointed to no more."""
    await connection.execute(
        """DELETE FROM log.dead_letter_sources s USING unnest($2::int[], $3::bigint[]) AS t(partition, log_start)
           WHERE s.topic_id = $1 AND s.partition = t.partition AND s.record_offset < t.log_start""",
        topic_id,
        list(log_starts),
        list(log_starts.values()),
    )
