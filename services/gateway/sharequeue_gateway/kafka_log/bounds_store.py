"""The bounds of Kafka's logs in PostgreSQL, where floors, backlogs and open dead letters are compared with them.

A row of `log.partitions` has the log start and the log end that a gateway last saw in Kafka. Rows only follow: nothing
in Kafka depends on them. When a log start moves, what the groups had not finished below it is counted, once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.log import Removed
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.removing.readers import Reader, Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.record_log.store import Query

Ends = Mapping[TopicIdPartition, tuple[int, int]]
"""The log start and the log end of partitions."""


async def note(connection: Any, ends: Ends) -> list[tuple[str, Removed]]:
    """Have the rows follow. Returns: by topic id, the log starts that moved and what was not finished below them."""
    known = await store.bounds(connection, list(ends))
    changed = [place for place, bounds in ends.items() if place not in known or known[place][:2] != bounds]
    moved: list[tuple[str, Removed]] = []
    if not changed:
        return moved
    async with connection.transaction():
        await store.lock(connection, changed)
        await store.make_partitions(connection, changed)
        known = await store.bounds(connection, changed)
        for place in changed:
            (topic_id, partition), (start, end), before = place, ends[place], known[place].log_start_offset
            if start > before:
                unfinished = await readers_store.count_removed(connection, topic_id, partition, before, start)
                await dead_letter_sources.leave(connection, topic_id, {partition: start})
                moved.append((topic_id, Removed(partition, start, end, unfinished)))
        await connection.execute(
            """UPDATE log.partitions p SET log_start_offset = greatest(p.log_start_offset, t.log_start),
                 end_floor = greatest(p.end_floor, t.log_end)
               FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[]) AS t(topic_id, partition, log_start, log_end)
               WHERE p.topic_id = t.topic_id AND p.partition = t.partition""",
            *store.columns_of([(*place, *ends[place]) for place in changed], 4),
        )
    return moved


async def read_places(connection: Any) -> list[TopicIdPartition]:
    """Return the partitions that groups read."""
    rows = await connection.fetch("SELECT DISTINCT topic_id, partition FROM log.readers")
    return [(str(row[0]), row[1]) for row in rows]


async def floors_of(connection: Any, place: TopicIdPartition) -> list[tuple[str, int]]:
    """Return the groups that read a partition, each with what it has finished."""
    return await store.fetch(
        connection, "SELECT group_id, floor FROM log.readers WHERE topic_id = $1 AND partition = $2", *place
    )


class KafkaReaders(Readers):
    """The readers of Kafka's logs. `follow`: has the rows of partitions follow Kafka first."""

    def __init__(self, query: Query, follow: Callable[[Sequence[TopicIdPartition]], Awaitable[None]]) -> None:
        super().__init__(query)
        self._follow = follow

    async def find(self, group_id: str, places: Sequence[TopicIdPartition]) -> Mapping[TopicIdPartition, Reader]:
        await self._follow(places)
        return await super().find(group_id, places)

    async def reserve(self, floors: Sequence[Floor], hold_ms: int) -> list[Floor]:
        await self._follow([(floor.key.topic_id, floor.key.partition) for floor in floors])
        return await super().reserve(floors, hold_ms)
