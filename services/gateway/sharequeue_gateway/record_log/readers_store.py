"""The SQL of `log.readers`, one function per statement: which groups read a partition, and how far each has finished it.

A row says: all below `floor` is durably finished for the group. A floor that is too low only keeps more.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.store import Connection

STALE_MS: Final = 3_600_000
"""`active_at` of a group that is in use is at most about this old, or a quarter of the time that it holds."""


class Reader(NamedTuple):
    """The row of one group. `stale`: its `active_at` is to be written again."""

    state_epoch: int
    floor: int
    stale: bool


class Floor(NamedTuple):
    """How far a group has durably finished a partition, in the life of the share-partition that `state_epoch` names."""

    key: SharePartitionKey
    state_epoch: int
    floor: int


def _columns(floors: Sequence[Floor]) -> list[list[Any]]:
    return [
        [floor.key.topic_id for floor in floors],
        [floor.key.partition for floor in floors],
        [floor.key.group_id for floor in floors],
        [floor.state_epoch for floor in floors],
        [floor.floor for floor in floors],
    ]


async def find(
    connection: Connection, group_id: str, places: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, Reader]:
    """The rows of one group."""
    rows = await connection.fetch(
        """SELECT r.topic_id, r.partition, r.state_epoch, r.floor, r.active_at < now() - least($4, CASE WHEN r.hold_ms > 0 THEN r.hold_ms / 4 ELSE $4 END) * interval '1 ms'
           FROM log.readers r JOIN unnest($2::uuid[], $3::int[]) AS t(topic_id, partition)
             ON r.topic_id = t.topic_id AND r.partition = t.partition
           WHERE r.group_id = $1""",
        group_id,
        [topic_id for topic_id, _ in places],
        [partition for _, partition in places],
        STALE_MS,
    )
    return {(str(row[0]), row[1]): Reader(*row[2:]) for row in rows}


async def enter(connection: Connection, floors: Sequence[Floor]) -> dict[SharePartitionKey, int]:
    """Add rows; a later life of a share-partition takes over the row of an earlier one. Call it under the partitions'
    locks.

    In the same life the lower floor wins: two leaders may have chosen different starts. A row of a later life stays.
    Returns: the floors.
    """
    rows = await connection.fetch(
        """INSERT INTO log.readers AS r (topic_id, partition, group_id, state_epoch, floor)
           SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[])
             AS t(topic_id, partition, group_id, state_epoch, floor) ORDER BY topic_id, partition, group_id
           ON CONFLICT (topic_id, partition, group_id) DO UPDATE SET
             floor = CASE WHEN r.state_epoch < excluded.state_epoch THEN excluded.floor
               WHEN r.state_epoch = excluded.state_epoch THEN least(r.floor, excluded.floor) ELSE r.floor END,
             state_epoch = greatest(r.state_epoch, excluded.state_epoch), active_at = now()
           RETURNING group_id, topic_id, partition, floor""",
        *_columns(floors),
    )
    return {SharePartitionKey(row[0], str(row[1]), row[2]): row[3] for row in rows}


async def raise_floors(connection: Connection, floors: Sequence[Floor]) -> set[SharePartitionKey]:
    """Raise floors, in the life that each one names; note that the groups are in use.

    It waits for nobody: a row that another transaction changes now is left out. Returns: the rows that were there, and
    not left out.
    """
    rows = await connection.fetch(
        """WITH said AS MATERIALIZED (
             SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[])
               AS t(topic_id, partition, group_id, state_epoch, floor)),
           free AS MATERIALIZED (
             SELECT r.topic_id, r.partition, r.group_id FROM log.readers r JOIN said
               ON r.topic_id = said.topic_id AND r.partition = said.partition AND r.group_id = said.group_id
             FOR NO KEY UPDATE OF r SKIP LOCKED)
           UPDATE log.readers r SET active_at = now(),
             floor = CASE WHEN r.state_epoch = said.state_epoch AND r.floor < said.floor THEN said.floor ELSE r.floor END
           FROM free JOIN said USING (topic_id, partition, group_id)
           WHERE r.topic_id = free.topic_id AND r.partition = free.partition AND r.group_id = free.group_id
           RETURNING r.group_id, r.topic_id, r.partition""",
        *_columns(floors),
    )
    return {SharePartitionKey(row[0], str(row[1]), row[2]) for row in rows}


async def remove_of_topic(connection: Connection, topic_id: str, partitions: range) -> None:
    """The topic is deleted: nobody reads it any more."""
    await connection.execute(
        "DELETE FROM log.readers WHERE topic_id = $1 AND partition >= $2 AND partition < $3",
        topic_id,
        partitions.start,
        partitions.stop,
    )
