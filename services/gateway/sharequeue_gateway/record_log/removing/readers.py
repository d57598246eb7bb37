"""The readers of the log: every group has a row for each partition that it reads, before it gets a record of it.

A trim takes the partition's lock and looks at the rows. So a group that begins either has its row there, or it reads
the log start after the trim:

    begin    lock ── read the log start ── add the row ── commit ──▶ the start is stored, records are handed out
    trim     lock ── read min(floor) ───── move the log start ── commit

Locks are taken in one order: the partitions' advisory locks, then rows of `log.readers`, then rows of
`log.partitions`. A raise takes no advisory lock and waits for no row.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import MAX_INT64, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import MOST_PARTITIONS
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.removing.readers_store import HOLDS, Floor
from sharequeue_gateway.record_log.store import Query, columns_of, execute, fetch

RAISED_AT_ONCE: Final = 5000
MOST_ENDING: Final = 1000


STALE_MS: Final = 3_600_000
"""`active_at` of a group in use is at most about this old, or a quarter of the time for which the group holds."""

_STALE_MS: Final = f"CASE WHEN hold_ms > 0 THEN least({STALE_MS}, hold_ms / 4) ELSE {STALE_MS} END"
_EXPIRES_AT_MS: Final = "((extract(epoch FROM r.active_at) * 1000)::bigint + r.hold_ms)"


class Reader(NamedTuple):
    """The row of one group. `hold_ms`: how long the group holds the partition after its last use; 0: never, -1: always.

    `stale`: `active_at`, the time of its last use, is to be written again. `log_end_offset`: of the partition; -1 if
    it is deleted. `ready`, `delayed`: as in a Floor.
    """

    state_epoch: int
    floor: int
    hold_ms: int
    stale: bool
    log_end_offset: int = -1
    ready: int | None = None
    delayed: int | None = None


class GroupHold(NamedTuple):
    """The hold of a group on a partition. `expires_at_ms`: None: its hold never ends, or it has none (`holds`)."""

    holds: bool
    expires_at_ms: int | None
    removed_unfinished: int


class EndingHold(NamedTuple):
    """A group that was not used for more than half of the time for which it holds a topic, and has not finished it."""

    group_id: str
    expires_at_ms: int
    ended: bool


class Beginning(NamedTuple):
    """A share-partition that is about to be read. `start_offset`: its stored start, or where it is to begin.

    It does not begin below the log start if `chosen`: then nobody has read the partition for this group before.
    """

    key: SharePartitionKey
    state_epoch: int
    start_offset: int
    chosen: bool


class Begun(NamedTuple):
    """A share-partition that may hand out records. `floor`, `ready`, `delayed`: as its row has them.
    `log_end_offset`: -1 if the partition is deleted."""

    start_offset: int
    floor: int
    log_end_offset: int = -1
    ready: int | None = None
    delayed: int | None = None


async def begin(connection: Any, beginnings: Sequence[Beginning], hold_ms: int) -> dict[SharePartitionKey, Begun]:
    """See Readers.begin."""
    places = sorted({(beginning.key.topic_id, beginning.key.partition) for beginning in beginnings})
    async with connection.transaction():
        await store.lock(connection, places)
        bounds = await store.bounds(connection, places)
        starts = {}
        for key, _, start_offset, chosen in beginnings:
            found = bounds.get((key.topic_id, key.partition))
            starts[key] = max(start_offset, found.log_start_offset) if chosen and found is not None else start_offset
        floors = await readers_store.enter(
            connection, [Floor(each.key, each.state_epoch, starts[each.key]) for each in beginnings], hold_ms
        )
    ends = {place: -1 if found.deleted else found.log_end_offset for place, found in bounds.items()}
    return {
        key: Begun(start_offset, floors[key], ends.get((key.topic_id, key.partition), 0))
        for key, start_offset in starts.items()
    }


async def reserve(connection: Any, floors: Sequence[Floor], hold_ms: int) -> list[Floor]:
    """See Readers.reserve."""
    places = sorted({(floor.key.topic_id, floor.key.partition) for floor in floors})
    async with connection.transaction():
        await store.lock(connection, places)
        bounds = await store.bounds(connection, places)
        reserved, from_start = [], []
        for floor in floors:
            start, end, *_ = bounds.get((floor.key.topic_id, floor.key.partition), store.NO_BOUNDS)
            reserved.append(floor._replace(floor=min(max(floor.floor, start), end)))
            from_start.append(floor._replace(state_epoch=-1, floor=start))
        old = await readers_store.enter(connection, from_start, hold_ms)
        lower = [floor._replace(floor=min(floor.floor, old[floor.key])) for floor in reserved]
        await readers_store.enter(connection, lower, hold_ms)
    return reserved


class Readers:
    """The rows as the gateway uses them. `query`: runs a function with a connection. Every method may raise
    StorageError."""

    def __init__(self, query: Query) -> None:
        self._query = query

    async def find(self, group_id: str, places: Sequence[TopicIdPartition]) -> Mapping[TopicIdPartition, Reader]:
        """Find the rows of one group."""
        rows = await self._query(
            fetch,
            f"""SELECT r.topic_id, r.partition, r.state_epoch, r.floor, r.hold_ms,
                 r.active_at < now() - {_STALE_MS} * interval '1 ms',
                 coalesce((SELECT CASE WHEN p.deleted THEN -1 ELSE {store.END} END FROM log.partitions p
                   WHERE p.topic_id = r.topic_id AND p.partition = r.partition), 0), r.ready, r.delayed
               FROM log.readers r JOIN unnest($2::uuid[], $3::int[]) AS t(topic_id, partition)
                 ON r.topic_id = t.topic_id AND r.partition = t.partition
               WHERE r.group_id = $1""",
            group_id,
            *columns_of(places, 2),
        )
        return {(str(row[0]), row[1]): Reader(*row[2:]) for row in rows}

    async def begin(self, beginnings: Sequence[Beginning], hold_ms: int) -> dict[SharePartitionKey, Begun]:
        """Add the rows of share-partitions before anything is handed out. Returns: where each begins.

        Args:
            hold_ms: of the group, see ShareGroupConfig.
        """
        begun: dict[SharePartitionKey, Begun] = {}
        for first in range(0, len(beginnings), MOST_PARTITIONS):
            begun.update(await self._query(begin, beginnings[first : first + MOST_PARTITIONS], hold_ms))
        return begun

    async def raise_floors(self, floors: Sequence[Floor]) -> set[SharePartitionKey]:
        """Raise floors to what is durably finished. Returns: the share-partitions whose row was there and free."""
        raised: set[SharePartitionKey] = set()
        for first in range(0, len(floors), RAISED_AT_ONCE):
            raised |= await self._query(readers_store.raise_floors, floors[first : first + RAISED_AT_ONCE])
        return raised

    async def groups_of(self, places: Sequence[TopicIdPartition]) -> list[tuple[TopicIdPartition, list[str]]]:
        """Up to 16 groups that read each of these partitions now, or did in the last minutes."""
        rows = await self._query(
            fetch,
            f"""SELECT t.topic_id, t.partition, array(
                  SELECT r.group_id FROM log.readers r
                  WHERE r.topic_id = t.topic_id AND r.partition = t.partition
                    AND r.active_at > now() - {_STALE_MS} * interval '1 ms'
                  ORDER BY r.group_id LIMIT 16)
                FROM unnest($1::uuid[], $2::int[]) AS t(topic_id, partition)""",
            *columns_of(places, 2),
        )
        return [((str(row[0]), row[1]), row[2]) for row in rows]

    async def set_hold(self, group_id: str, hold_ms: int) -> None:
        """The group's settings changed. A hold that had no end, and has one now, begins now."""
        await self._query(
            execute,
            """UPDATE log.readers SET hold_ms = $2,
                 active_at = CASE WHEN hold_ms < 0 THEN clock_timestamp() ELSE active_at END
               WHERE group_id = $1 AND hold_ms <> $2""",
            group_id,
            hold_ms,
        )

    async def reserve(self, floors: Sequence[Floor], hold_ms: int) -> list[Floor]:
        """A reset is about to set these starts under a new state epoch: from now on no earlier life raises a floor.

        The floor is the lower one of the old and the new until `raise_floors`: a leader may begin with the old state
        now. A group without a row has the log start as its old one. Returns: the starts, within the bounds of the log.
        """
        reserved: list[Floor] = []
        for first in range(0, len(floors), MOST_PARTITIONS):
            reserved += await self._query(reserve, floors[first : first + MOST_PARTITIONS], hold_ms)
        return reserved

    async def remove(self, floors: Sequence[Floor]) -> None:
        """The state of these share-partitions, up to the life that each one names, is deleted: remove the rows.

        A row of a later state epoch stays.
        """
        for first in range(0, len(floors), RAISED_AT_ONCE):
            await self._query(
                execute,
                """DELETE FROM log.readers r USING unnest($1::uuid[], $2::int[], $3::text[], $4::int[])
                     AS t(topic_id, partition, group_id, state_epoch)
                   WHERE r.topic_id = t.topic_id AND r.partition = t.partition AND r.group_id = t.group_id
                     AND r.state_epoch <= t.state_epoch""",
                *readers_store.columns(floors[first : first + RAISED_AT_ONCE])[:4],
            )

    async def idle_groups(self, behind: str, limit: int) -> list[str]:
        """Groups of which no row was active for STALE_MS, in order, behind an id.
        It reads the rows of `limit` groups, or a few more."""
        rows = await self._query(
            fetch,
            """SELECT group_id FROM log.readers WHERE group_id > $1 GROUP BY group_id
               HAVING max(active_at) < now() - $3 * interval '1 ms' ORDER BY group_id LIMIT $2""",
            behind,
            limit,
            STALE_MS,
        )
        return [row[0] for row in rows]

    async def remove_idle(self, group_id: str) -> None:
        """Remove the rows of a group that does not exist. A row that is active stays."""
        await self._query(
            execute,
            "DELETE FROM log.readers WHERE group_id = $1 AND active_at < now() - $2 * interval '1 ms'",
            group_id,
            STALE_MS,
        )

    async def unused_ms(self, group_id: str) -> int:
        """For how long the rows of a group show no use: their last time may be too old, see STALE_MS. Without rows, as
        long as can be."""
        rows = await self._query(
            fetch,
            f"""SELECT coalesce(floor(min(extract(epoch FROM now() - active_at) * 1000 - {_STALE_MS})), {MAX_INT64})::bigint
                FROM log.readers WHERE group_id = $1""",
            group_id,
        )
        return int(rows[0][0])

    async def holds_of(self, group_id: str) -> Mapping[TopicIdPartition, GroupHold]:
        """List what a group holds, by partition."""
        rows = await self._query(
            fetch,
            f"""SELECT r.topic_id, r.partition, {HOLDS}, CASE WHEN r.hold_ms > 0 THEN {_EXPIRES_AT_MS} END,
                  r.removed_unfinished
                FROM log.readers r WHERE r.group_id = $1""",
            group_id,
        )
        return {(str(row[0]), row[1]): GroupHold(*row[2:]) for row in rows}

    async def half_idle_groups(self, topic_id: str) -> list[str]:
        """Groups that have used half of the time for which they hold a topic, or all of it: the first 1,000.
        Those that still hold it come first."""
        rows = await self._query(
            fetch,
            f"""SELECT r.group_id FROM log.readers r
                WHERE r.topic_id = $1 AND r.hold_ms > 0 AND r.active_at < now() - r.hold_ms / 2 * interval '1 ms'
                GROUP BY r.group_id ORDER BY bool_or(NOT {HOLDS}), min({_EXPIRES_AT_MS}) LIMIT $2""",
            topic_id,
            MOST_ENDING,
        )
        return [row[0] for row in rows]

    async def renew(self, group_id: str, topic_id: str) -> None:
        """The group uses the topic. It waits for no lock: a row that another transaction changes now is renewed by that
        one, or at the next sweep."""
        await self._query(
            execute,
            """UPDATE log.readers r SET active_at = now() FROM (
                 SELECT topic_id, partition, group_id FROM log.readers
                 WHERE group_id = $1 AND topic_id = $2 FOR NO KEY UPDATE SKIP LOCKED) free
               WHERE (r.topic_id, r.partition, r.group_id) = (free.topic_id, free.partition, free.group_id)""",
            group_id,
            topic_id,
        )

    async def ending_holds(self, topic_id: str) -> list[EndingHold]:
        """Groups whose hold of a topic ends soon, or has ended, with something unfinished: the first 1,000 to end."""
        rows = await self._query(
            fetch,
            f"""WITH ends AS MATERIALIZED (
                  SELECT p.topic_id, p.partition, {store.END} AS log_end_offset FROM log.partitions p
                  WHERE p.topic_id = $1 AND NOT p.deleted)
                SELECT r.group_id, min({_EXPIRES_AT_MS}), bool_or(NOT {HOLDS}) FROM log.readers r
                JOIN ends USING (topic_id, partition)
                WHERE r.hold_ms > 0 AND r.active_at < now() - r.hold_ms / 2 * interval '1 ms'
                  AND r.floor < ends.log_end_offset
                GROUP BY r.group_id ORDER BY 2 LIMIT $2""",
            topic_id,
            MOST_ENDING,
        )
        return [EndingHold(*row) for row in rows]
