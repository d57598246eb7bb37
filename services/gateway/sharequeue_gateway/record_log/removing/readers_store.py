"""The SQL of `log.readers` that is part of a larger transaction, one function per statement: which groups read a
partition, and how far each has finished it. `readers` has the other statements.

A row says: all below `floor` is durably finished for the group. A floor that is too low only keeps more.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.store import Connection, columns_of

KEPT: Final = -1
"""In place of `ready` or `delayed`: what the row has stays."""


class Floor(NamedTuple):
    """The offset up to which a group has durably finished a partition, as its state with this `state_epoch` says.
    `ready`, `delayed`: see `Window.ahead`; only `raise_floors` stores them."""

    key: SharePartitionKey
    state_epoch: int
    floor: int
    ready: int | None = None
    delayed: int | None = None


def columns(floors: Sequence[Floor]) -> list[list[Any]]:
    return columns_of([(*key[1:], key.group_id, state_epoch, floor) for key, state_epoch, floor, *_ in floors], 5)


async def enter(connection: Connection, floors: Sequence[Floor], hold_ms: int) -> dict[SharePartitionKey, int]:
    """Add rows; a later life of a share-partition takes over the row of an earlier one. Call it under the partitions'
    locks.

    In the same life the lower floor wins: two leaders may have chosen different starts. A row of a later life stays.
    Returns: the floors.
    """
    rows = await connection.fetch(
        """INSERT INTO log.readers AS r (topic_id, partition, group_id, state_epoch, floor, hold_ms)
           SELECT t.*, $6 FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[])
             AS t(topic_id, partition, group_id, state_epoch, floor) ORDER BY topic_id, partition, group_id
           ON CONFLICT (topic_id, partition, group_id) DO UPDATE SET
             floor = CASE WHEN r.state_epoch < excluded.state_epoch THEN excluded.floor
               WHEN r.state_epoch = excluded.state_epoch THEN least(r.floor, excluded.floor) ELSE r.floor END,
             state_epoch = greatest(r.state_epoch, excluded.state_epoch), hold_ms = excluded.hold_ms, active_at = now(),
             ready = NULL, delayed = NULL
           RETURNING group_id, topic_id, partition, floor""",
        *columns(floors),
        hold_ms,
    )
    return {SharePartitionKey(row[0], str(row[1]), row[2]): row[3] for row in rows}


async def raise_floors(connection: Connection, floors: Sequence[Floor]) -> set[SharePartitionKey]:
    """Raise floors, in rows of the state epoch that each floor names, and note that the groups are in use.

    It waits for no lock: a row that another transaction changes now is left out. Rows are locked first and then found
    by their place in the table: PostgreSQL expects few rows, and would join them by their keys in a loop over a loop.

    Returns: the rows that exist and were not left out.
    """
    rows = await connection.fetch(
        f"""WITH free AS MATERIALIZED (
             SELECT r.ctid AS place, said.state_epoch, said.floor, said.ready, said.delayed
             FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[])
               AS said(topic_id, partition, group_id, state_epoch, floor, ready, delayed)
             JOIN log.readers r
               ON r.topic_id = said.topic_id AND r.partition = said.partition AND r.group_id = said.group_id
             FOR NO KEY UPDATE OF r SKIP LOCKED)
           UPDATE log.readers r SET active_at = now(),
             floor = CASE WHEN r.state_epoch = free.state_epoch THEN greatest(r.floor, free.floor) ELSE r.floor END,
             ready = CASE WHEN r.state_epoch = free.state_epoch AND free.ready IS DISTINCT FROM {KEPT}
               THEN free.ready ELSE r.ready END,
             delayed = CASE WHEN r.state_epoch = free.state_epoch AND free.delayed IS DISTINCT FROM {KEPT}
               THEN free.delayed ELSE r.delayed END
           FROM free WHERE r.ctid = free.place
           RETURNING r.group_id, r.topic_id, r.partition""",
        *columns(floors),
        *columns_of([floor[3:] for floor in floors], 2),
    )
    return {SharePartitionKey(row[0], str(row[1]), row[2]) for row in rows}


# For trims

HOLDS: Final = "(r.hold_ms < 0 OR r.active_at > now() - r.hold_ms * interval '1 ms')"
"""Whether the group of a row holds the partition now. `hold_ms`: how long it does after its last use; 0: never."""


async def lowest_floors(connection: Connection, topic_id: str, partitions: Sequence[int]) -> dict[int, int]:
    """The lowest floor of the groups that hold a partition, for each that a group holds. Without the partitions' locks
    it is a hint."""
    rows = await connection.fetch(
        f"""SELECT r.partition, min(r.floor) FROM log.readers r
            WHERE r.topic_id = $1 AND r.partition = ANY($2::int[]) AND {HOLDS} GROUP BY r.partition""",
        topic_id,
        partitions,
    )
    return {row[0]: row[1] for row in rows}


async def partitions_without_a_group(connection: Connection, topic_id: str, partitions: Sequence[int]) -> set[int]:
    """Return the given partitions where some group has no row, although it holds another partition of the topic.

    The topic has grown, or the group has not fetched from them yet. For this group nothing of them is finished.
    """
    rows = await connection.fetch(
        f"""WITH marked AS MATERIALIZED (
              SELECT r.partition, r.group_id, bool_or({HOLDS}) OVER (PARTITION BY r.group_id COLLATE "C") AS holding
              FROM log.readers r WHERE r.topic_id = $1)
            SELECT partition, count(*), (SELECT count(DISTINCT group_id COLLATE "C") FROM marked WHERE holding)
            FROM marked WHERE holding GROUP BY partition""",
        topic_id,
    )
    whole = {row[0] for row in rows if row[1] == row[2]}
    return set(partitions) - whole if rows else set()


async def count_removed(
    connection: Connection, topic_id: str, partition: int, log_start_offset: int, new_log_start: int
) -> dict[str, int]:
    """The log start is about to move: count what the groups have not finished of it. Returns: the counts by group."""
    rows = await connection.fetch(
        """UPDATE log.readers SET removed_unfinished = removed_unfinished + $4 - greatest(floor, $3)
           WHERE topic_id = $1 AND partition = $2 AND floor < $4 RETURNING group_id, $4 - greatest(floor, $3)""",
        topic_id,
        partition,
        log_start_offset,
        new_log_start,
    )
    return {row[0]: row[1] for row in rows}
