"""Moves log starts and deletes partitions, one function per transaction. The purge removes rows later: see
`purging`."""

from typing import Any, NamedTuple

from sharequeue_gateway.record_log import readers_store, store
from sharequeue_gateway.record_log.log import OffsetOutOfRange


class Trimmed(NamedTuple):
    """The new bounds of a partition."""

    log_start_offset: int
    log_end_offset: int


async def delete_records(connection: Any, topic_id: str, partition: int, before_offset: int) -> Trimmed:
    """See RecordLog.delete_records."""
    place = (topic_id, partition)
    async with connection.transaction():
        await store.lock(connection, [place])
        await store.make_partitions(connection, [place])
        bounds = (await store.bounds(connection, [place]))[place]
        target = bounds.log_end_offset if before_offset == -1 else before_offset
        if target > bounds.log_end_offset:
            raise OffsetOutOfRange(
                f"before_offset {target} is behind the log end {bounds.log_end_offset}", bounds.log_start_offset
            )
        target = max(target, bounds.log_start_offset)
        await store.raise_log_start(connection, topic_id, partition, target, bounds.log_end_offset)
    return Trimmed(target, bounds.log_end_offset)


async def delete_partitions(connection: Any, topic_id: str, part: range) -> None:
    """Mark partitions of a topic as deleted."""
    places = [(topic_id, partition) for partition in part]
    async with connection.transaction():
        await store.lock(connection, places)
        await readers_store.remove_of_topic(connection, topic_id, part)
        await store.make_partitions(connection, places, deleted=True)
        await store.mark_deleted(connection, topic_id, part)
