"""The SQL of `log.readers`, one function per statement: which groups read a partition,
and how far each has finished it.

A row says: all below `floor` is durably finished for the group. A floor that is too low only keeps more.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.store import Connection

STALE_MS: Final = 3_600_000
"""`active_at` of a group in use is at most about this old, or a quarter of the time for which the group holds."""


class Reader(NamedTuple):
    """The row of one group. `hold_ms`: how long the group holds the partition after its last use; 0: never, -1: always.

    `stale`: `active_at`, the time of its last use, is to be written again. `log_end_offset`: of the partition; -1 if
    it is deleted.
    """

    state_epoch: int
    floor: int
    hold_ms: int
    stale: bool
    log_end_offset: int = -1


class Hold(NamedTuple):
    """What a group holds of a partition. `expires_at_ms`: None: its hold never ends, or it has none (`holds`)."""

    holds: bool
    expires_at_ms: int | None
    removed_unfinished: int


class EndingHold(NamedTuple):
    """A group that was not used for more than half of the time for which it holds a topic, and has not finished it."""

    group_id: str
    expires_at_ms: int
    ended: bool


class Floor(NamedTuple):
    """How far a group has durably finished a partition, as its state with this `state_epoch` says."""

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
        f"""SELECT r.topic_id, r.partition, r.state_epoch, r.floor, r.hold_ms, r.active_at < now() - least($4, CASE WHEN r.hold_ms > 0 THEN r.hold_ms / 4 ELSE $4 END) * interval '1 ms',
             coalesce((SELECT CASE WHEN p.deleted THEN -1 ELSE {store.END} END FROM log.partitions p
               WHERE p.topic_id = r.topic_id AND p.partition = r.partition), 0)
           FROM log.readers r JOIN unnest($2::uuid[], $3::int[]) AS t(topic_id, partition)
             ON r.topic_id = t.topic_id AND r.partition = t.partition
           WHERE r.group_id = $1""",
        group_id,
        [topic_id for topic_id, _ in places],
        [partition for _, partition in places],
        STALE_MS,
    )
    return {(str(row[0]), row[1]): Reader(*row[2:]) for row in rows}


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
             state_epoch = greatest(r.state_epoch, excluded.state_epoch), hold_ms = excluded.hold_ms, active_at = now()
           RETURNING group_id, topic_id, partition, floor""",
        *_columns(floors),
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
        """WITH free AS MATERIALIZED (
             SELECT r.ctid AS place, said.state_epoch, said.floor
             FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[])
               AS said(topic_id, partition, group_id, state_epoch, floor)
             JOIN log.readers r
               ON r.topic_id = said.topic_id AND r.partition = said.partition AND r.group_id = said.group_id
             FOR NO KEY UPDATE OF r SKIP LOCKED)
           UPDATE log.readers r SET active_at = now(),
             floor = CASE WHEN r.state_epoch = free.state_epoch THEN greatest(r.floor, free.floor) ELSE r.floor END
           FROM free WHERE r.ctid = free.place
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


# For trims

_HOLDS: Final = "(r.hold_ms < 0 OR r.active_at > now() - r.hold_ms * interval '1 ms')"
"""Whether the group of a row holds the partition now. `hold_ms`: how long it does after its last use; 0: never."""


async def lowest_floor(connection: Connection, topic_id: str, partition: int) -> int | None:
    """The lowest floor of the groups that hold a partition; None: no group does. Call it under the partition's lock."""
    found: int | None = await connection.fetchval(
        f"SELECT min(r.floor) FROM log.readers r WHERE r.topic_id = $1 AND r.partition = $2 AND {_HOLDS}",
        topic_id,
        partition,
    )
    return found


async def lowest_floors(connection: Connection, topic_id: str) -> dict[int, int]:
    """As `lowest_floor`, for each partition of a topic that a group holds. Without the locks it is a hint."""
    rows = await connection.fetch(
        f"SELECT r.partition, min(r.floor) FROM log.readers r WHERE r.topic_id = $1 AND {_HOLDS} GROUP BY r.partition",
        topic_id,
    )
    return {row[0]: row[1] for row in rows}


async def partitions_without_a_group(connection: Connection, topic_id: str, partitions: Sequence[int]) -> set[int]:
    """Those of the partitions where some group has no row, although it holds another partition of the topic.

    The topic has grown, or the group has not fetched from them yet. For this group nothing of them is finished.
    """
    rows = await connection.fetch(
        f"""WITH marked AS MATERIALIZED (
              SELECT r.partition, r.group_id, bool_or({_HOLDS}) OVER (PARTITION BY r.group_id COLLATE "C") AS holding
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


async def set_hold(connection: Connection, group_id: str, hold_ms: int) -> None:
    """The group's settings changed."""
    await connection.execute(
        "UPDATE log.readers SET hold_ms = $2 WHERE group_id = $1 AND hold_ms <> $2", group_id, hold_ms
    )


async def reserve(connection: Connection, floors: Sequence[Floor], hold_ms: int) -> None:
    """Give rows a new state epoch, and the lower one of their old and new floors.
    Call it under the partitions' locks."""
    await connection.execute(
        """INSERT INTO log.readers AS r (topic_id, partition, group_id, state_epoch, floor, hold_ms)
           SELECT t.*, $6 FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[])
             AS t(topic_id, partition, group_id, state_epoch, floor) ORDER BY topic_id, partition, group_id
           ON CONFLICT (topic_id, partition, group_id) DO UPDATE SET
             floor = least(r.floor, excluded.floor), state_epoch = excluded.state_epoch, hold_ms = excluded.hold_ms,
             active_at = now()
           WHERE r.state_epoch <= excluded.state_epoch""",
        *_columns(floors),
        hold_ms,
    )


async def remove(connection: Connection, floors: Sequence[Floor]) -> None:
    """Remove rows of these state epochs and of earlier ones. A row of a later state epoch stays."""
    topic_ids, partitions, group_ids, state_epochs, _ = _columns(floors)
    await connection.execute(
        """DELETE FROM log.readers r USING unnest($1::uuid[], $2::int[], $3::text[], $4::int[])
             AS t(topic_id, partition, group_id, state_epoch)
           WHERE r.topic_id = t.topic_id AND r.partition = t.partition AND r.group_id = t.group_id
             AND r.state_epoch <= t.state_epoch""",
        topic_ids,
        partitions,
        group_ids,
        state_epochs,
    )


async def idle_groups(connection: Connection, behind: str, limit: int) -> list[str]:
    """Groups that were not active for STALE_MS in any row, by id.
    It reads the rows of `limit` groups, or a few more."""
    rows = await connection.fetch(
        """SELECT group_id FROM log.readers WHERE group_id > $1 GROUP BY group_id
           HAVING max(active_at) < now() - $3 * interval '1 ms' ORDER BY group_id LIMIT $2""",
        behind,
        limit,
        STALE_MS,
    )
    return [row[0] for row in rows]


async def remove_idle(connection: Connection, group_id: str) -> None:
    await connection.execute(
        "DELETE FROM log.readers WHERE group_id = $1 AND active_at < now() - $2 * interval '1 ms'", group_id, STALE_MS
    )


_EXPIRES_AT_MS: Final = "((extract(epoch FROM r.active_at) * 1000)::bigint + r.hold_ms)"


async def holds_of(connection: Connection, group_id: str) -> dict[TopicIdPartition, Hold]:
    """What a group holds, by partition."""
    rows = await connection.fetch(
        f"""SELECT r.topic_id, r.partition, {_HOLDS}, CASE WHEN r.hold_ms > 0 THEN {_EXPIRES_AT_MS} END,
              r.removed_unfinished
            FROM log.readers r WHERE r.group_id = $1""",
        group_id,
    )
    return {(str(row[0]), row[1]): Hold(*row[2:]) for row in rows}


async def half_idle_groups(connection: Connection, topic_id: str, limit: int) -> list[str]:
    """Groups that were idle for at least half of the time for which they hold a topic. Those that still hold it come
    first."""
    rows = await connection.fetch(
        f"""SELECT r.group_id FROM log.readers r
            WHERE r.topic_id = $1 AND r.hold_ms > 0 AND r.active_at < now() - r.hold_ms / 2 * interval '1 ms'
            GROUP BY r.group_id ORDER BY bool_or(NOT {_HOLDS}), min({_EXPIRES_AT_MS}) LIMIT $2""",
        topic_id,
        limit,
    )
    return [row[0] for row in rows]


async def renew(connection: Connection, group_id: str, topic_id: str) -> None:
    """The group uses the topic. It waits for no lock: a row that another transaction changes now is renewed by that
    one, or at the next sweep."""
    await connection.execute(
        """UPDATE log.readers r SET active_at = now() FROM (
             SELECT topic_id, partition, group_id FROM log.readers
             WHERE group_id = $1 AND topic_id = $2 FOR NO KEY UPDATE SKIP LOCKED) free
           WHERE (r.topic_id, r.partition, r.group_id) = (free.topic_id, free.partition, free.group_id)""",
        group_id,
        topic_id,
    )


async def ending_holds(connection: Connection, topic_id: str, limit: int) -> list[EndingHold]:
    """Groups with unfinished records whose hold of a topic ends soon, or has ended. The first to end comes first."""
    rows = await connection.fetch(
        f"""WITH ends AS MATERIALIZED (
              SELECT p.topic_id, p.partition, {store.END} AS log_end_offset FROM log.partitions p
              WHERE p.topic_id = $1 AND NOT p.deleted)
            SELECT r.group_id, min({_EXPIRES_AT_MS}), bool_or(NOT {_HOLDS}) FROM log.readers r
            JOIN ends USING (topic_id, partition)
            WHERE r.hold_ms > 0 AND r.active_at < now() - r.hold_ms / 2 * interval '1 ms'
              AND r.floor < ends.log_end_offset
            GROUP BY r.group_id ORDER BY 2 LIMIT $2""",
        topic_id,
        limit,
    )
    return [EndingHold(*row) for row in rows]
