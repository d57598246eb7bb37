"""The SQL of `log.dead_letter_sources`: a row for each dead letter, with its place and that of its record.

`open`: the dead letter is not closed: it was not redriven, dropped, or finished by the group that consumes its topic.
The row of one that is closed says how. A row also prevents a second dead letter of the same delivery: writers of a
share-partition come one after another (`dead_letter_log.lead`), and look for rows first.

A row is written in the transaction that writes its dead letter, so before the group's floor passes the record. It goes
when the dead letter leaves its topic; of a deleted topic, the purge removes it later. Rows of a partition of a
dead-letter topic change under its lock. A parked dead letter has no place in a topic: PARKED is its offset. Its row has
its record, and goes when it is closed.

`keeps`: the dead letter is open and has no copy, so cleaning keeps the record, until it leaves the log otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.log import DeadLetterKey, DeadLetterRow, LetterOutcome, Parked
from sharequeue_gateway.record_log.store import Connection, columns_of

PARKED: Final = -1


async def point(
    connection: Connection, rows: Sequence[DeadLetterRow], letters: Sequence[tuple[str, int, int]] = ()
) -> None:
    """Dead letters of one share-partition are written, and open. `letters`: topic id, partition and offset of each;
    none: they are parked."""
    parked = [(*row.source[1:], PARKED, row.cause, row.tail) for row in rows]
    await connection.execute(
        """INSERT INTO log.dead_letter_sources
             (group_id, topic_id, partition, state_epoch, record_offset, delivery_count, keeps,
              letter_topic_id, letter_partition, letter_offset, cause, record)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[], $7::boolean[],
                                $8::uuid[], $9::int[], $10::bigint[], $11::text[], $12::bytea[])
           ON CONFLICT DO NOTHING""",
        *columns_of(
            [(*row.source, row.state_epoch, row.offset, row.delivery_count, not row.copied) for row in rows], 7
        ),
        *columns_of([(*letter, None, None) for letter in letters] or parked, 5),
    )


async def written_of(connection: Connection, source: SharePartitionKey, offsets: Sequence[int]) -> set[DeadLetterKey]:
    """The dead letters of records of a share-partition that are written or parked."""
    rows = await connection.fetch(
        """SELECT state_epoch, record_offset, delivery_count FROM log.dead_letter_sources
           WHERE group_id = $1 AND topic_id = $2 AND partition = $3 AND record_offset = ANY($4::bigint[])""",
        *source,
        offsets,
    )
    return {DeadLetterKey(source, *row) for row in rows}


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


_ASKED: Final = """
SELECT {columns} FROM unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[]) WITH ORDINALITY
  AS t(group_id, topic_id, partition, record_offset, n)
CROSS JOIN LATERAL (SELECT ctid AS row_place, * FROM log.dead_letter_sources s WHERE {which} LIMIT 1) s
"""
_IN_TOPIC: Final = """s.letter_topic_id = t.topic_id AND s.letter_partition = t.partition
  AND s.letter_offset = t.record_offset AND s.group_id = t.group_id"""
_PARKED: Final = """s.group_id = t.group_id AND s.topic_id = t.topic_id AND s.partition = t.partition
  AND s.record_offset = t.record_offset AND s.delivery_count = ($5::int[])[t.n] AND s.record IS NOT NULL"""
"""A dead letter by its place in its topic, and a parked one by its record. Each is a look into an index."""


async def _find(
    connection: Connection, keys: Sequence[DeadLetterKey], which: str, columns: str = "n", *more: Any
) -> list[tuple[DeadLetterKey, Any]]:
    """Find the rows of dead letters. Returns: each key that has one, with the `columns`; the first is its number."""
    places = columns_of([(*key.source, key.offset) for key in keys], 4)
    rows = await connection.fetch(_ASKED.format(columns=columns, which=which), *places, *more)
    return [(keys[row[0] - 1], row) for row in rows]


async def open_of(connection: Connection, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
    """Return those of the dead letters that are open. `keys`: as in `close`."""
    found = await _find(connection, [key for key in keys if not key.delivery_count], f"{_IN_TOPIC} AND s.open")
    if parked := [key for key in keys if key.delivery_count]:
        found += await _find(connection, parked, _PARKED, "n", [key.delivery_count for key in parked])
    return {key for key, _ in found}


async def outcomes(connection: Connection, keys: Sequence[DeadLetterKey]) -> dict[DeadLetterKey, LetterOutcome | None]:
    """Find how dead letters in a topic ended; None: it is open."""
    columns = """n, s.open, (extract(epoch FROM s.closed_at) * 1000)::bigint, s.consumer_group, s.new_topic_id::text,
      s.new_partition, s.new_offset"""
    return {
        key: None if row[1] else LetterOutcome(row[2], row[3], None if row[4] is None else (row[4], row[5], row[6]))
        for key, row in await _find(connection, keys, _IN_TOPIC, columns)
    }


async def close(
    connection: Connection,
    keys: Sequence[DeadLetterKey],
    consumer_group: str | None = None,
    redriven_to: Sequence[tuple[str, int, int]] = (),
) -> None:
    """Dead letters are closed. `keys`: the place of each in its topic, or of the record of a parked one, whose row
    goes. Their partitions are locked, so no row moves. The other arguments: as in LetterOutcome; `redriven_to`: of each
    key, or empty."""
    ends: Sequence[tuple[Any, Any, Any]] = redriven_to or [(None, None, None)] * len(keys)
    closed = [(*key.source, key.offset, *end) for key, end in zip(keys, ends, strict=True) if not key.delivery_count]
    await connection.execute(
        """UPDATE log.dead_letter_sources s SET open = false, keeps = false, closed_at = now(), consumer_group = $8,
             new_topic_id = t.new_topic_id, new_partition = t.new_partition, new_offset = t.new_offset
           FROM unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::uuid[], $6::int[], $7::bigint[])
             AS t(group_id, topic_id, partition, letter_offset, new_topic_id, new_partition, new_offset)
           WHERE s.open AND s.letter_topic_id = t.topic_id AND s.letter_partition = t.partition
             AND s.letter_offset = t.letter_offset AND s.group_id = t.group_id""",
        *columns_of(closed, 7),
        consumer_group,
    )
    if parked := [key for key in keys if key.delivery_count]:
        await connection.execute(
            f"""DELETE FROM log.dead_letter_sources
                WHERE ctid = ANY(ARRAY({_ASKED.format(columns="s.row_place", which=_PARKED)}))""",
            *columns_of([(*key.source, key.offset, key.delivery_count) for key in parked], 5),
        )


async def finished_by(
    connection: Connection, group_id: str, letter_topic_id: str, consumer_group: str, most: int
) -> list[tuple[int, int]]:
    """Partition and offset of open dead letters of a group that lie below the floor of another group."""
    rows = await connection.fetch(
        """SELECT r.partition, s.letter_offset FROM log.readers r CROSS JOIN LATERAL (
             SELECT letter_offset FROM log.dead_letter_sources
             WHERE letter_topic_id = $1 AND letter_partition = r.partition AND group_id = $3
               AND letter_offset >= 0 AND letter_offset < r.floor AND open
             ORDER BY letter_offset LIMIT $4) s
           WHERE r.topic_id = $1 AND r.group_id = $2 ORDER BY 1, 2 LIMIT $4""",
        letter_topic_id,
        consumer_group,
        group_id,
        most,
    )
    return [(row[0], row[1]) for row in rows]


async def lowest(connection: Connection, topic_id: str, log_starts: Mapping[int, int]) -> dict[int, int]:
    """The first record of each partition that an open dead letter without a copy points to, where there is one.

    Args:
        log_starts: by partition.
    """
    rows: Sequence[Any] = await connection.fetch(
        """SELECT t.partition, (
             SELECT s.record_offset FROM log.dead_letter_sources s
             WHERE s.topic_id = $1 AND s.partition = t.partition AND s.record_offset >= t.log_start AND s.keeps
             ORDER BY s.record_offset LIMIT 1)
           FROM unnest($2::int[], $3::bigint[]) AS t(partition, log_start)""",
        topic_id,
        list(log_starts),
        list(log_starts.values()),
    )
    return {row[0]: row[1] for row in rows if row[1] is not None}


async def leave(connection: Connection, topic_id: str, log_starts: Mapping[int, int]) -> None:
    """The log starts of these partitions have moved up: dead letters below them are gone, and what lies below them is
    kept no more."""
    await connection.execute(
        """UPDATE log.dead_letter_sources s SET keeps = false
           FROM unnest($2::int[], $3::bigint[]) AS t(partition, log_start)
           WHERE s.topic_id = $1 AND s.partition = t.partition AND s.record_offset < t.log_start AND s.keeps""",
        topic_id,
        list(log_starts),
        list(log_starts.values()),
    )
    await remove(
        connection, topic_id, {partition: [(0, start - 1)] for partition, start in log_starts.items() if start}
    )


async def remove(connection: Connection, letter_topic_id: str, ranges: Mapping[int, Sequence[tuple[int, int]]]) -> None:
    """Dead letters have left their topic. `ranges`: by partition, first and last offsets. They are looked up one by
    one: joined with the table, they are compared with each of its rows."""
    for partition, of_partition in ranges.items():
        await connection.execute(
            """DELETE FROM log.dead_letter_sources
               WHERE letter_topic_id = $1 AND letter_partition = $2 AND letter_offset = ANY(ARRAY(
                 SELECT s.letter_offset FROM unnest($3::bigint[], $4::bigint[]) AS t(first_offset, last_offset)
                 CROSS JOIN LATERAL (
                   SELECT letter_offset FROM log.dead_letter_sources
                   WHERE letter_topic_id = $1 AND letter_partition = $2
                     AND letter_offset >= t.first_offset AND letter_offset <= t.last_offset
                   ORDER BY letter_offset OFFSET 0) s))""",
            letter_topic_id,
            partition,
            *columns_of(of_partition, 2),
        )


async def parked_counts(connection: Connection, group_id: str) -> dict[TopicIdPartition, Parked]:
    """The parked dead letters of a group, by the partition of their records. The last is that of the last record."""
    rows = await connection.fetch(
        """SELECT topic_id, partition, count(*), (
             SELECT l.cause FROM log.dead_letter_sources l
             WHERE l.group_id = $1 AND l.topic_id = s.topic_id AND l.partition = s.partition AND l.record IS NOT NULL
             ORDER BY l.record_offset DESC, l.delivery_count DESC LIMIT 1)
           FROM log.dead_letter_sources s WHERE group_id = $1 AND record IS NOT NULL GROUP BY topic_id, partition""",
        group_id,
    )
    return {(str(row[0]), row[1]): Parked(row[2], row[3]) for row in rows}


async def open_counts(connection: Connection, group_id: str) -> dict[TopicIdPartition, int]:
    """The open dead letters of a group, by the partition of their records."""
    rows = await connection.fetch(
        """SELECT topic_id, partition, count(*) FROM log.dead_letter_sources WHERE group_id = $1 AND open
           GROUP BY topic_id, partition""",
        group_id,
    )
    return {(str(row[0]), row[1]): row[2] for row in rows}
