"""Dead letters on PostgreSQL: the leader epochs of writers, and the keys that prevent duplicates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.types import OffsetRange, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.dead_letters.dead_letter_sources import Pointer
from sharequeue_gateway.record_log.locked_append import LockedAppend
from sharequeue_gateway.record_log.log import (
    CLOSED,
    DeadLetterKey,
    DeadLetterRow,
    LetterOutcome,
    Parked,
    ParkedDeadLetter,
    PartitionAppend,
)
from sharequeue_gateway.record_log.store import Connection, columns_of

FINISHED_AT_ONCE: Final = 5000
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


async def lead(connection: Connection, source: SharePartitionKey, leader_epoch: int) -> None:
    """Record the leader epoch of a writer: after this transaction, earlier leaders cannot write dead letters.

    Raises: NotLeaderOrFollower: a later leader has written dead letters of the share-partition.
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
    """Store the keys of dead letters. Returns: the new ones."""
    rows = await connection.fetch(
        """INSERT INTO log.dead_letter_keys
             (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[])
           ON CONFLICT DO NOTHING
           RETURNING group_id, topic_id, partition, state_epoch, record_offset, delivery_count""",
        *_key_columns(keys),
    )
    return {_key_of(row) for row in rows}


def _key_columns(keys: Sequence[DeadLetterKey]) -> list[list[Any]]:
    return columns_of([(*key.source, *key[1:]) for key in keys], 6)


def _key_of(row: Sequence[Any]) -> DeadLetterKey:
    group_id, topic_id, partition, *rest = row
    return DeadLetterKey(SharePartitionKey(group_id, str(topic_id), partition), *rest)


async def find_keys(connection: Connection, keys: Sequence[DeadLetterKey]) -> dict[DeadLetterKey, LetterOutcome]:
    """Find those of the keys that are stored, each with the end of its dead letter."""
    rows = await connection.fetch(
        """SELECT k.group_id, k.topic_id, k.partition, k.state_epoch, k.record_offset, k.delivery_count,
             (extract(epoch FROM k.closed_at) * 1000)::bigint, k.consumer_group,
             k.new_topic_id::text, k.new_partition, k.new_offset
           FROM log.dead_letter_keys k
           JOIN unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[])
             AS t(group_id, topic_id, partition, state_epoch, record_offset, delivery_count)
             USING (group_id, topic_id, partition, state_epoch, record_offset, delivery_count)""",
        *_key_columns(keys),
    )
    return {
        _key_of(row[:6]): LetterOutcome(row[6], row[7], None if row[8] is None else (row[8], row[9], row[10]))
        for row in rows
    }


async def _close(
    connection: Connection,
    keys: Sequence[DeadLetterKey],
    consumer_group: str | None,
    redriven_to: Sequence[tuple[str, int, int]] | None,
) -> None:
    """Dead letters are not open any more; parked ones are removed. The other arguments: as in LetterOutcome."""
    await connection.execute(
        """UPDATE log.dead_letter_keys k SET closed_at = now(), consumer_group = $7,
             new_topic_id = t.new_topic_id, new_partition = t.new_partition, new_offset = t.new_offset
           FROM unnest($1::text[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::int[],
                       $8::uuid[], $9::int[], $10::bigint[])
             AS t(group_id, topic_id, partition, state_epoch, record_offset, delivery_count,
                  new_topic_id, new_partition, new_offset)
           WHERE (k.group_id, k.topic_id, k.partition, k.state_epoch, k.record_offset, k.delivery_count)
             = (t.group_id, t.topic_id, t.partition, t.state_epoch, t.record_offset, t.delivery_count)""",
        *_key_columns(keys),
        consumer_group,
        *columns_of(redriven_to or [(None, None, None)] * len(keys), 3),
    )
    await dead_letter_sources.close(connection, keys)


async def note_written(
    connection: Connection,
    topic_id: str,
    partition: int,
    rows: Sequence[DeadLetterRow],
    first_offset: int,
    *,
    redriven: bool,
) -> None:
    """Dead letters whose keys are stored were appended in their order, the first one at `first_offset`: they are open.
    `redriven`: they are closed, and their records are there; the partitions of the letters are locked."""
    places = [(topic_id, partition, first_offset + index) for index in range(len(rows))]
    if redriven:
        await _close(connection, [row.key for row in rows], None, places)
    else:
        await dead_letter_sources.point(connection, rows, places)


def letters_of(keys: Iterable[DeadLetterKey]) -> set[TopicIdPartition]:
    """The partitions of closed dead letters that are in a topic: the key of a parked one names its record."""
    return {(key.source.topic_id, key.source.partition) for key in keys if not key.delivery_count}


class DeadLetterLog:
    """Dead letters. A repeated write adds no second copy. Each method may raise StorageError.

    `locked_append`: writes the records in the transaction that stores their keys.
    """

    def __init__(self, database: LogDatabase, locked_append: LockedAppend) -> None:
        self._database = database
        self._locked_append = locked_append

    async def append(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        """Append dead letters to their topic, or redriven ones to the topic of their record.

        Args:
            leader_epoch: of the writer, whose rows are all of one share-partition. It fences earlier leaders. None: the
                rows are redriven, and parked ones are removed.
            for_group: as in PartitionAppend.
        Returns: how many were new.
        Raises: NotLeaderOrFollower: a later leader has written dead letters, so none is appended;
        UnknownTopicOrPartition.
        """
        async with self._locked_append.together("dead letters cannot be written") as together:
            connection = together.connection
            if leader_epoch is not None:
                await lead(connection, rows[0].source, leader_epoch)
            new = await take_keys(connection, [row.key for row in rows])
            wanted = [row for row in rows if row.key in new]
            if not wanted:
                return 0
            timestamp_ms = max(row.timestamp_ms for row in wanted)
            append = PartitionAppend(topic_id, partition, [row.tail for row in wanted], timestamp_ms, for_group)
            if leader_epoch is None:
                await store.lock(connection, [(topic_id, partition), *letters_of(new)])
            first = (await together.insert([append]))[0][1].base_offset
            await note_written(connection, topic_id, partition, wanted, first, redriven=leader_epoch is None)
        return len(wanted)

    async def close(self, keys: Sequence[DeadLetterKey], consumer_group: str | None = None) -> int:
        """Close dead letters without sending them: they are dropped, or `consumer_group` has finished them.

        Returns: how many were open.
        """
        async with self._database.connection() as connection, connection.transaction():
            new = await take_keys(connection, keys)
            if new:
                await store.lock(connection, sorted(letters_of(new)))
                await _close(connection, [key for key in keys if key in new], consumer_group, None)
        return len(new)

    async def finish(self, group_id: str, letter_topic_id: str, consumer_group: str) -> int:
        """Close dead letters of a group that another group has durably finished in their topic, up to
        FINISHED_AT_ONCE. Returns: how many."""
        places = await self._database.query(
            dead_letter_sources.finished_by, group_id, letter_topic_id, consumer_group, FINISHED_AT_ONCE
        )
        keys = [
            DeadLetterKey(SharePartitionKey(group_id, letter_topic_id, partition), CLOSED, offset, 0)
            for partition, offset in places
        ]
        return await self.close(keys, consumer_group) if keys else 0

    async def outcomes(self, keys: Sequence[DeadLetterKey]) -> Mapping[DeadLetterKey, LetterOutcome]:
        """Return how those of the dead letters ended that are closed."""
        return await self._database.query(find_keys, keys)

    async def pointers(self, source: SharePartitionKey, offsets: Sequence[int]) -> list[Pointer]:
        """Return where the dead letters of some records of a share-partition are."""
        return await self._database.query(dead_letter_sources.pointers, source, offsets)

    async def forget(self, source: SharePartitionKey, state_epoch: int, ranges: Sequence[OffsetRange]) -> None:
        """The records of these ranges stay ARCHIVED: remove the keys of their dead letters, and of earlier epochs."""
        await self._database.query(
            store.execute,
            """DELETE FROM log.dead_letter_keys USING unnest($5::bigint[], $6::bigint[]) AS r(first_offset, last_offset)
               WHERE group_id = $1 AND topic_id = $2 AND partition = $3 AND state_epoch <= $4
                 AND record_offset BETWEEN r.first_offset AND r.last_offset""",
            *source,
            state_epoch,
            *columns_of(ranges, 2),
        )

    async def park(self, rows: Sequence[DeadLetterRow], leader_epoch: int) -> None:
        """Keep dead letters of one share-partition that their topic refuses, each once. Raises: NotLeaderOrFollower."""
        async with self._database.connection() as connection, connection.transaction():
            await lead(connection, rows[0].source, leader_epoch)
            await dead_letter_sources.point(connection, rows)

    async def parked_counts(self, group_id: str) -> Mapping[TopicIdPartition, Parked]:
        """Return how many dead letters of a group are parked, by the partition of their records."""
        return await self._database.query(dead_letter_sources.parked_counts, group_id)

    async def parked(self, group_id: str, limit: int, after: ParkedDeadLetter | None) -> Sequence[ParkedDeadLetter]:
        """The parked dead letters of a group, in order. `after`: begin behind this one."""
        behind = (_NO_UUID, -1, -1, -1) if after is None else (*after.source[1:], after.offset, after.delivery_count)
        rows = await self._database.query(
            store.fetch,
            """SELECT topic_id, partition, record_offset, delivery_count, record FROM log.dead_letter_sources
               WHERE group_id = $1 AND record IS NOT NULL AND (topic_id, partition, record_offset, delivery_count) > ($3::uuid, $4, $5, $6)
               ORDER BY topic_id, partition, record_offset, delivery_count LIMIT $2""",
            group_id,
            limit,
            *behind,
        )
        return [
            ParkedDeadLetter(SharePartitionKey(group_id, str(row[0]), row[1]), row[2], row[3], row[4]) for row in rows
        ]

    async def open_counts(self, group_id: str) -> Mapping[TopicIdPartition, int]:
        """Return how many dead letters of a group were neither redriven nor removed, by the partition of their
        records."""
        return await self._database.query(dead_letter_sources.open_counts, group_id)
