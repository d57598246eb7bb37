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

from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import MOST_PARTITIONS
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.removing.readers_store import EndingHold, Floor, Hold, Reader
from sharequeue_gateway.record_log.store import Query

RAISED_AT_ONCE: Final = 5000
MOST_ENDING: Final = 1000


class Beginning(NamedTuple):
    """A share-partition that is about to be read. `start_offset`: its stored start, or where it is to begin.

    It does not begin below the log start if `chosen`: then nobody has read the partition for this group before.
    """

    key: SharePartitionKey
    state_epoch: int
    start_offset: int
    chosen: bool


class Begun(NamedTuple):
    """A share-partition that may hand out records. `floor`: that of its row. `log_end_offset`: -1 if the partition is
    deleted."""

    start_offset: int
    floor: int
    log_end_offset: int = -1


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
        clamped, from_start = [], []
        for key, state_epoch, target in floors:
            found = bounds.get((key.topic_id, key.partition))
            start, end = (0, 0) if found is None else (found.log_start_offset, found.log_end_offset)
            clamped.append(Floor(key, state_epoch, min(max(target, start), end)))
            from_start.append(Floor(key, -1, start))
        await readers_store.enter(connection, from_start, hold_ms)
        await readers_store.reserve(connection, clamped, hold_ms)
    return clamped


class Readers:
    """The rows as the gateway uses them. `query`: runs a function with a connection. Every method may raise
    StorageError."""

    def __init__(self, query: Query) -> None:
        self._query = query

    async def find(self, group_id: str, places: Sequence[TopicIdPartition]) -> Mapping[TopicIdPartition, Reader]:
        """The rows of one group."""
        found: dict[TopicIdPartition, Reader] = await self._query(readers_store.find, group_id, places)
        return found

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

    async def set_hold(self, group_id: str, hold_ms: int) -> None:
        """The group's settings changed."""
        await self._query(readers_store.set_hold, group_id, hold_ms)

    async def reserve(self, floors: Sequence[Floor], hold_ms: int) -> list[Floor]:
        """A reset is about to set these starts under a new state epoch: from now on no earlier life raises a floor.

        The floor is the lower one of the old and the new: the state may still be the old one.
        Without a row it is the log
        start until `raise_floors`: a leader may begin with the old state now. Returns: the starts, within the bounds of
        the log.
        """
        reserved: list[Floor] = []
        for first in range(0, len(floors), MOST_PARTITIONS):
            reserved += await self._query(reserve, floors[first : first + MOST_PARTITIONS], hold_ms)
        return reserved

    async def remove(self, floors: Sequence[Floor]) -> None:
        """The state of these share-partitions, up to the life that each one names, is deleted: remove the rows."""
        for first in range(0, len(floors), RAISED_AT_ONCE):
            await self._query(readers_store.remove, floors[first : first + RAISED_AT_ONCE])

    async def idle_groups(self, behind: str, limit: int) -> list[str]:
        """Groups of which no row was active for STALE_MS, in order, behind an id."""
        found: list[str] = await self._query(readers_store.idle_groups, behind, limit)
        return found

    async def remove_idle(self, group_id: str) -> None:
        """Remove the rows of a group that does not exist. A row that is active stays."""
        await self._query(readers_store.remove_idle, group_id)

    async def holds_of(self, group_id: str) -> Mapping[TopicIdPartition, Hold]:
        """What a group holds, by partition."""
        found: dict[TopicIdPartition, Hold] = await self._query(readers_store.holds_of, group_id)
        return found

    async def half_idle_groups(self, topic_id: str) -> list[str]:
        """Groups that have used half of the time for which they hold a topic, or all of it: the first 1,000."""
        found: list[str] = await self._query(readers_store.half_idle_groups, topic_id, MOST_ENDING)
        return found

    async def renew(self, group_id: str, topic_id: str) -> None:
        """The group uses the topic."""
        await self._query(readers_store.renew, group_id, topic_id)

    async def ending_holds(self, topic_id: str) -> list[EndingHold]:
        """Groups whose hold of a topic ends soon, or has ended, with something unfinished: the first 1,000."""
        found: list[EndingHold] = await self._query(readers_store.ending_holds, topic_id, MOST_ENDING)
        return found
