"""Moves log starts and deletes partitions, one function per transaction, and topics in several of these. The purge
removes rows later: see `purging`."""

from collections.abc import Sequence
from typing import Any

from sharequeue_gateway.record_log import store, time_lines
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.log import MOST_PARTITIONS, OffsetOutOfRange, Removed
from sharequeue_gateway.record_log.store import Query


async def delete_records(connection: Any, topic_id: str, before: Sequence[tuple[int, int]]) -> list[Removed]:
    """Move log starts up. All of these partitions, or none. It counts nothing as unfinished: somebody wants it so.
    Raises: OffsetOutOfRange."""
    places = [(topic_id, partition) for partition, _ in before]
    trimmed = []
    async with connection.transaction():
        await store.lock(connection, places)
        await time_lines.make_partitions(connection, places)
        all_bounds = await store.bounds(connection, places)
        for place, (partition, before_offset) in zip(places, before, strict=True):
            bounds = all_bounds[place]
            target = bounds.log_end_offset if before_offset == -1 else before_offset
            if target > bounds.log_end_offset:
                raise OffsetOutOfRange(
                    f"before_offset {target} is behind the log end {bounds.log_end_offset}", bounds.log_start_offset
                )
            trimmed.append(Removed(partition, max(target, bounds.log_start_offset), bounds.log_end_offset, {}))
        await store.raise_log_starts(connection, topic_id, [each[:3] for each in trimmed])
        await dead_letter_sources.leave(connection, topic_id, {each[0]: each[1] for each in trimmed})
    return trimmed


async def delete_topic(query: Query, topic_id: str, partitions: int) -> None:
    """Mark the partitions of a topic as deleted, in transactions that lock at most MOST_PARTITIONS of them."""
    for first in range(0, partitions, MOST_PARTITIONS):
        await query(delete_partitions, topic_id, range(first, min(first + MOST_PARTITIONS, partitions)))


async def delete_partitions(connection: Any, topic_id: str, part: range) -> None:
    """Mark partitions of a topic as deleted: nobody reads them any more. Open transactions go on without them, and
    commit the rest."""
    of_part = topic_id, part.start, part.stop
    async with connection.transaction():
        await store.lock(connection, [(topic_id, partition) for partition in part])
        for table in ("transaction_partitions", "readers"):
            await connection.execute(
                f"DELETE FROM log.{table} WHERE topic_id = $1 AND partition >= $2 AND partition < $3", *of_part
            )
        await connection.execute(
            """INSERT INTO log.partitions AS p (topic_id, partition, deleted, deleted_at, trimmed_at)
               SELECT $1, n, true, clock_timestamp(), clock_timestamp() FROM generate_series($2::int, $3::int - 1) n
               ON CONFLICT (topic_id, partition) DO UPDATE SET deleted = true,
                 deleted_at = coalesce(p.deleted_at, excluded.deleted_at), trimmed_at = excluded.trimmed_at""",
            *of_part,
        )
