"""Applies retention to partitions: one transaction each, under the partition's lock, with the floors of its readers.

    outside     ends, floors, what the limits ask for       hints: a partition with nothing to remove costs two reads
    in the      lock ── floors ── ends ── count what is     the decision: a group that begins either has its row here,
    transaction removed unfinished ── move the log start    or it reads the log start after the commit

No coordinator is asked. Any gateway may sweep any partition: it is the same transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.log import Removed
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.retention_rule import AskedStarts, RetentionRule, new_log_start
from sharequeue_gateway.record_log.store import Query


async def trim(
    connection: Any, topic_id: str, partition: int, rule: RetentionRule, asked: AskedStarts, absent: bool
) -> Removed | None:
    """Move the log start of a partition as far as its readers allow. None: it does not move.

    Args:
        absent: a group holds other partitions of the topic and has no row here. Its floor is the log start.
    """
    place = (topic_id, partition)
    async with connection.transaction():
        await store.lock(connection, [place])
        bounds = (await store.bounds(connection, [place])).get(place)
        if bounds is None or bounds.deleted:
            return None
        start, end = bounds.log_start_offset, bounds.log_end_offset
        floor = (await readers_store.lowest_floors(connection, topic_id, [partition])).get(partition)
        pointed = None  # asked behind the floor: a dead letter is written before the floor passes its record
        if rule.cleanup:
            pointed = (await dead_letter_sources.lowest(connection, topic_id, {partition: start})).get(partition)
        target = new_log_start(rule, start, end, asked, start if absent else floor, pointed)
        if target <= start:
            return None
        unfinished = await readers_store.count_removed(connection, topic_id, partition, start, target)
        await store.raise_log_starts(connection, topic_id, [(partition, target, end)])
        await dead_letter_sources.leave(connection, topic_id, {partition: target})
    return Removed(partition, target, end, unfinished)


class Retaining:
    """Sweeps of topics. `query`: runs a function with a connection. Every method may raise StorageError."""

    def __init__(self, query: Query) -> None:
        self._query = query

    async def sweep(self, topic_id: str, partitions: Sequence[int], rule: RetentionRule, now_ms: int) -> list[Removed]:
        """Apply a rule to partitions of a topic."""
        removed: list[Removed] = []
        if rule.idle or not partitions:
            return removed
        bounds = await self._query(store.bounds, [(topic_id, partition) for partition in partitions])
        floors: Mapping[int, int] = {}
        absent: frozenset[int] | set[int] = frozenset()
        if rule.keep or rule.cleanup:
            floors = await self._query(readers_store.lowest_floors, topic_id, partitions)
            absent = await self._query(readers_store.partitions_without_a_group, topic_id, partitions)
        pointed: Mapping[int, int] = {}
        if rule.cleanup:
            starts = {place[1]: found.log_start_offset for place, found in bounds.items()}
            pointed = await self._query(dead_letter_sources.lowest, topic_id, starts)
        for (_, partition), (start, end, deleted, _, _) in bounds.items():
            if deleted or start == end:
                continue
            floor = start if partition in absent else floors.get(partition)
            asked = await self._asked(topic_id, partition, rule, start, end, floor, now_ms)
            if new_log_start(rule, start, end, asked, floor, pointed.get(partition)) > start:
                trimmed = await self._query(trim, topic_id, partition, rule, asked, partition in absent)
                if trimmed is not None:
                    removed.append(trimmed)
        return removed

    async def _asked(
        self, topic_id: str, partition: int, rule: RetentionRule, start: int, end: int, floor: int | None, now_ms: int
    ) -> AskedStarts:
        """Return what the limits ask for. Where the floor allows no more than the log start, they are not looked at."""
        limits = ceiling = 0
        most = end if floor is None or not rule.keep else floor
        if most > start:
            if rule.retention_ms >= 0:
                young = await self._query(
                    store.first_batch_since, topic_id, partition, start, most, now_ms - rule.retention_ms
                )
                limits = most if young is None else young
            if rule.retention_bytes >= 0:
                limits = max(limits, await self._by_bytes(topic_id, partition, rule.retention_bytes, end))
        if rule.max_bytes >= 0:
            ceiling = await self._by_bytes(topic_id, partition, rule.max_bytes, end)
        return AskedStarts(limits, ceiling)

    async def _by_bytes(self, topic_id: str, partition: int, kept: int, end: int) -> int:
        oldest = await self._query(store.start_by_bytes, topic_id, partition, kept)
        return end if oldest is None else oldest
