"""The SQL of `log.dead_letter_sources`: where the dead letters of a record are.

A row is written in the transaction that writes its dead letter, so before the group's floor passes the record. It goes
when the dead letter leaves its topic. A parked dead letter has no place in a topic: PARKED is its offset.

`keeps`: the dead letter has no copy, so cleaning keeps the record. That ends when the dead letter is closed, and the
row goes when the record leaves the log. A row whose dead letter was deleted keeps nothing: the log start of the
dead-letter topic says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.log import DeadLetterKey, DeadLetterRow
from sharequeue_gateway.record_log.store import Connection, columns_of

PARKED: Final = -1


async def point(connection: Connection, rows: Sequence[DeadLetterRow], letters: Sequence[tuple[str, int, int]]) -> None:
    """Note where dead letters are. `letters`: topic id, partition and offset of each."""
    await connection.execute(
        """INSERT INTO log.dead_letter_sources
             (group_id, topic_id, partition, record_offset, delivery_count, keeps,
              letter_topic_id, letter_partition, letter_offset)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::int[], $6::boolean[],
                                $7::uuid[], $8::int[], $9::bigint[])
           ON CONFLICT DO NOTHING""",
        *columns_of([(*row.source, row.offset, row.delivery_count, not row.copied) for row in rows], 6),
        *columns_of(letters, 3),
    )


class Pointer(NamedTuple):
    """A dead letter of a record. `letter_offset`: PARKED if it is in no topic."""

    record_offset: int
    delivery_count: int
    letter_topic_id: str
    letter_partition: int
    letter_offset: int


async def pointers(connection: Connection, source: SharePartitionKey, offsets: Sequence[int]) -> list[Pointer]:
    """The dead letters of records of a share-partition, in the order of the records and of their places."""
    rows: Sequence[Any] = await connection.fetch(
        """SELECT record_offset, delivery_count, letter_topic_id::text, letter_partition, letter_offset
           FROM log.dead_letter_sources
           WHERE group_id = $1 AND topic_id = $2 AND partition = $3 AND record_offset = ANY($4::bigint[])
           ORDER BY 1, 3, 4, 5""",
        *source,
        offsets,
    )
    return [Pointer(*row) for row in rows]


async def closed(connection: Connection, keys: Sequence[DeadLetterKey]) -> None:
    """Dead letters are closed: they keep no record. `keys`: the place of each in its topic."""
    await connection.execute(
        """UPDATE log.dead_letter_sources s SET keeps = false
           FROM unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[])
             AS t(group_id, topic_id, partition, letter_offset)
           WHERE s.keeps AND s.letter_topic_id = t.topic_id AND s.letter_partition = t.partition
             AND s.letter_offset = t.letter_offset AND s.group_id = t.group_id""",
        *columns_of([(*key.source, key.offset) for key in keys], 4),
    )


async def unparked(connection: Connection, keys: Sequence[DeadLetterKey]) -> None:
    """Parked dead letters are closed."""
    await connection.execute(
        """DELETE FROM log.dead_letter_sources s
           USING unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::int[])
             AS t(group_id, topic_id, partition, record_offset, delivery_count)
           WHERE s.topic_id = t.topic_id AND s.partition = t.partition AND s.record_offset = t.record_offset
             AND s.group_id = t.group_id AND s.delivery_count = t.delivery_count AND s.letter_offset = $6""",
        *columns_of([(*key.source, key.offset, key.delivery_count) for key in keys], 5),
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
             WHERE s.topic_id = $1 AND s.partition = t.partition AND s.record_offset >= t.log_start AND s.keeps
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
    """The log starts of these partitions have moved up: dead letters below them are gone, and what lies below them is
    kept no more."""
    for below in (
        "s.topic_id = $1 AND s.partition = t.partition AND s.record_offset < t.log_start AND s.keeps",
        "s.letter_topic_id = $1 AND s.letter_partition = t.partition AND s.letter_offset < t.log_start"
        f" AND s.letter_offset > {PARKED}",
    ):
        await connection.execute(
            f"""DELETE FROM log.dead_letter_sources s USING unnest($2::int[], $3::bigint[]) AS t(partition, log_start)
                WHERE {below}""",
            topic_id,
            list(log_starts),
            list(log_starts.values()),
        )
