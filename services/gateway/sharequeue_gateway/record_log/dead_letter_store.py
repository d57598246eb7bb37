"""The SQL of dead letters, one function per statement: who writes them, the keys that keep them single, those parked."""

from collections.abc import Sequence
from typing import Any, Final

from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.types import OffsetRange, SharePartitionKey
from sharequeue_gateway.record_log.log import DeadLetterKey, DeadLetterRow, Parked, ParkedDeadLetter
from sharequeue_gateway.record_log.store import Connection

_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


async def lead(connection: Connection, source: SharePartitionKey, leader_epoch: int) -> None:
    """Keep earlier leaders from writing dead letters of a share-partition from this transaction on.

    Raises: NotLeaderOrFollower: a later leader has written some.
    """
    highest = await connection.fetchval(
        """INSERT INTO log.dead_letter_writers AS w (group_id, topic_id, partition, leader_epoch)
           VALUES ($1, $2, $3, $4)
           ON CONFLICT (group_id, topic_id, partition)
             DO UPDATE SET leader_epoch = greatest(w.leader_epoch, excluded.leader_epoch)
           RETURNING leader_epoch""",
        *source,
        leader_epoch,
    )
    if highest != leader_epoch:
        raise NotLeaderOrFollower("another gateway writes the dead letters of this share-partition")


async def take_keys(connection: Connection, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
    """Keep the keys of dead letters. Returns: those that were not there before."""
    rows = await connection.fetch(
        """INSERT INTO log.dead_letter_keys
             (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[])
           ON CONFLICT DO NOTHING
           RETURNING group_id, topic_id, partition, state_epoch, record_offset, delivery_count""",
        *_key_columns(keys),
    )
    return {
        DeadLetterKey(SharePartitionKey(group_id, str(topic_id), partition), *rest)
        for group_id, topic_id, partition, *rest in rows
    }


async def known_keys(connection: Connection, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
    """Those of the keys that are kept."""
    rows = await connection.fetch(
        """SELECT k.group_id, k.topic_id, k.partition, k.state_epoch, k.record_offset, k.delivery_count
           FROM log.dead_letter_keys k JOIN unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[])
             AS t(group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
             USING (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)""",
        *_key_columns(keys),
    )
    return {
        DeadLetterKey(SharePartitionKey(group_id, str(topic_id), partition), *rest)
        for group_id, topic_id, partition, *rest in rows
    }


def _key_columns(keys: Sequence[DeadLetterKey]) -> list[list[Any]]:
    return [
        [key.source.group_id for key in keys],
        [key.source.topic_id for key in keys],
        [key.source.partition for key in keys],
        [key.state_epoch for key in keys],
        [key.offset for key in keys],
        [key.delivery_count for key in keys],
    ]


async def forget_keys(
    connection: Connection, source: SharePartitionKey, state_epoch: int, ranges: Sequence[OffsetRange]
) -> None:
    """Remove the keys of ranges, those of earlier state epochs too."""
    await connection.execute(
        """DELETE FROM log.dead_letter_keys USING unnest($5::bigint[], $6::bigint[]) AS r(first_offset, last_offset)
           WHERE group_id = $1 AND topic_id = $2 AND partition = $3 AND state_epoch <= $4
             AND record_offset BETWEEN r.first_offset AND r.last_offset""",
        *source,
        state_epoch,
        [first_offset for first_offset, _ in ranges],
        [last_offset for _, last_offset in ranges],
    )


async def park(connection: Connection, rows: Sequence[DeadLetterRow], leader_epoch: int) -> None:
    """Keep dead letters of one share-partition, each once. Raises: as `lead`."""
    async with connection.transaction():
        await lead(connection, rows[0].source, leader_epoch)
        await connection.executemany(
            """INSERT INTO log.parked_dead_letters
                 (group_id, topic_id, partition, record_offset, delivery_count, cause, record)
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING""",
            [(*row.source, row.offset, row.delivery_count, row.cause, row.tail) for row in rows],
        )


async def parked_counts(connection: Connection, group_id: str) -> dict[tuple[str, int], Parked]:
    rows = await connection.fetch(
        """SELECT topic_id, partition, count(*),
                  (SELECT cause FROM log.parked_dead_letters
                   WHERE (group_id, topic_id, partition) = ($1, p.topic_id, p.partition)
                   ORDER BY parked_at DESC, record_offset DESC LIMIT 1)
           FROM log.parked_dead_letters p WHERE group_id = $1 GROUP BY topic_id, partition""",
        group_id,
    )
    return {(str(row[0]), row[1]): Parked(row[2], row[3]) for row in rows}


async def parked(
    connection: Connection, group_id: str, limit: int, after: ParkedDeadLetter | None
) -> list[ParkedDeadLetter]:
    behind = (_NO_UUID, -1, -1, -1) if after is None else (*after.source[1:], after.offset, after.delivery_count)
    rows = await connection.fetch(
        """SELECT topic_id, partition, record_offset, delivery_count, record FROM log.parked_dead_letters
           WHERE group_id = $1 AND (topic_id, partition, record_offset, delivery_count) > ($3::uuid, $4, $5, $6)
           ORDER BY topic_id, partition, record_offset, delivery_count LIMIT $2""",
        group_id,
        limit,
        *behind,
    )
    return [ParkedDeadLetter(SharePartitionKey(group_id, str(row[0]), row[1]), row[2], row[3], row[4]) for row in rows]


async def unpark(connection: Connection, keys: Sequence[DeadLetterKey]) -> None:
    """Forget parked dead letters."""
    await connection.execute(
        """DELETE FROM log.parked_dead_letters p
           USING unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[])
             AS t(group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
           WHERE (p.group_id, p.topic_id, p.partition, p.record_offset, p.delivery_count)
             = (t.group_id, t.topic_id, t.partition, t.record_offset, t.delivery_count)""",
        *_key_columns(keys),
    )
