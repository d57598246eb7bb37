"""Dead letters on PostgreSQL: the leader epochs of writers, and what is written, redriven and closed once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
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
from sharequeue_gateway.record_log.store import Connection

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


async def wanted_of(connection: Connection, rows: Sequence[DeadLetterRow], *, redriven: bool) -> list[DeadLetterRow]:
    """Return those of the dead letters that are not written yet; `redriven`: those that are open."""
    if redriven:
        still_open = await dead_letter_sources.open_of(connection, [row.key for row in rows])
        return [row for row in rows if row.key in still_open]
    written = await dead_letter_sources.written_of(connection, rows[0].source, [row.offset for row in rows])
    return [row for row in rows if row.key not in written]


async def note_written(
    connection: Connection,
    topic_id: str,
    partition: int,
    rows: Sequence[DeadLetterRow],
    first_offset: int,
    *,
    redriven: bool,
) -> None:
    """Dead letters were appended in their order, the first one at `first_offset`: they are open. `redriven`: they are
    closed, and their records are there; `places_of` them are locked."""
    places = [(topic_id, partition, first_offset + index) for index in range(len(rows))]
    if redriven:
        await dead_letter_sources.close(connection, [row.key for row in rows], None, places)
    else:
        await dead_letter_sources.point(connection, rows, places)


def places_of(keys: Iterable[DeadLetterKey]) -> set[TopicIdPartition]:
    """The partitions of closed dead letters, or of the records of parked ones: they are closed under their locks."""
    return {(key.source.topic_id, key.source.partition) for key in keys}


class DeadLetterLog:
    """Dead letters. A repeated write adds no second copy. Each method may raise StorageError.

    `locked_append`: writes the records in the transaction that notes where they are.
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
            redriven = leader_epoch is None
            if leader_epoch is None:
                await store.lock(connection, [*places_of(row.key for row in rows) | {(topic_id, partition)}])
            else:
                await lead(connection, rows[0].source, leader_epoch)
            wanted = await wanted_of(connection, rows, redriven=redriven)
            if not wanted:
                return 0
            timestamp_ms = max(row.timestamp_ms for row in wanted)
            append = PartitionAppend(topic_id, partition, [row.tail for row in wanted], timestamp_ms, for_group)
            first = (await together.insert([append]))[0][1].base_offset
            await note_written(connection, topic_id, partition, wanted, first, redriven=redriven)
        return len(wanted)

    async def close(self, keys: Sequence[DeadLetterKey], consumer_group: str | None = None) -> int:
        """Close dead letters without sending them: they are dropped, or `consumer_group` has finished them.

        Returns: how many were open.
        """
        async with self._database.connection() as connection, connection.transaction():
            await store.lock(connection, [*places_of(keys)])
            still_open = await dead_letter_sources.open_of(connection, keys)
            await dead_letter_sources.close(connection, [key for key in keys if key in still_open], consumer_group)
        return len(still_open)

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

    async def outcomes(self, keys: Sequence[DeadLetterKey]) -> Mapping[DeadLetterKey, LetterOutcome | None]:
        """Return how dead letters in a topic ended; None: it is open. One that no group has written is left out."""
        return await self._database.query(dead_letter_sources.outcomes, keys)

    async def pointers(self, source: SharePartitionKey, offsets: Sequence[int]) -> list[Pointer]:
        """Return where the dead letters of some records of a share-partition are."""
        return await self._database.query(dead_letter_sources.pointers, source, offsets)

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
