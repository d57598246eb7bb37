"""The record log on PostgreSQL: the appender, reads through the cache, trimming, and a watch over other gateways' writes."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import asyncpg
import msgspec

from sharequeue.log import fields
from sharequeue.protocol import nesting
from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import OffsetRange, SharePartitionKey, TopicIdPartition
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import SOME_BYTES, PostgresHealth
from sharequeue_gateway.record_log import dead_letter_store, purging, store
from sharequeue_gateway.record_log.appending import Appender
from sharequeue_gateway.record_log.cache import BatchCache
from sharequeue_gateway.record_log.compacting import Compaction
from sharequeue_gateway.record_log.connections import Connections
from sharequeue_gateway.record_log.log import (
    MOST_PARTITIONS,
    AppendResult,
    DeadLetterKey,
    DeadLetterRow,
    IdempotencyKey,
    OffsetOutOfRange,
    Offsets,
    Parked,
    ParkedDeadLetter,
    PartitionAppend,
    ReadResult,
    below_log_start,
    nobody,
)
from sharequeue_gateway.record_log.record_batch import CorruptBatch

log = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 1 << 20
READ_AHEAD_BATCHES: Final = 256
WATCH_PAUSE_S: Final = 0.5
WATCHED_AT_ONCE: Final = 2000
PURGE_PAUSE_S: Final = 15.0
STATEMENT_TIMEOUT_S: Final = 15
CONNECT_TIMEOUT_S: Final = 5
TRY_WRITE: Final = f"""
INSERT INTO log.record_batches
  (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records)
VALUES (gen_random_uuid(), 0, 0, 0, 0, 0, gen_random_uuid(), {SOME_BYTES})
"""


class _Timestamped(msgspec.Struct):
    offset: int
    timestamp_ms: int


_timestamps: Final = msgspec.json.Decoder(list[_Timestamped])


class PostgresRecordLog:
    """See RecordLog. Make it with `open`, keep `run` running, end it with `close`."""

    def __init__(self, database_url: str, pool: Any, cache_bytes: int, deadline_s: float) -> None:
        self._connections = Connections(pool)
        self._cache = BatchCache(cache_bytes)
        self.read_cached = self._cache.read_cached
        self.compaction = Compaction(self._query, self._cache)
        self._changed: Callable[[str, int], None] = lambda topic_id, partition: None
        self._interest: Callable[[], Iterable[TopicIdPartition]] = tuple
        self._appended: Callable[[str, int, int], None] = nobody
        self._forgotten: Callable[[str, int], None] = lambda topic_id, partition: None
        self._looking = asyncio.Lock()
        self._to_look_at: set[TopicIdPartition] = set()
        self._next_look: asyncio.Task[None] | None = None
        """Looks at these when the look that is under way has ended."""
        self.on_records: Callable[[str, int, int], None] = nobody
        """Told of records appended here: topic id, partition, how many."""

        async def connect(name: str) -> Any:
            return await asyncpg.connect(
                database_url, timeout=CONNECT_TIMEOUT_S, server_settings=_server_settings(name)
            )

        self.health = PostgresHealth(partial(connect, "health"), TRY_WRITE)
        self._appender = Appender(
            partial(connect, "append"),
            self._connections,
            self._cache,
            self._learn_before_append,
            self._on_append,
            self._on_append_of,
            self.health,
            deadline_s,
        )

    @classmethod
    async def open(
        cls, database_url: str, *, cache_bytes: int = 64 << 20, connections: int = 8, deadline_s: float = 10.0
    ) -> "PostgresRecordLog":
        pool = await asyncpg.create_pool(
            database_url,
            min_size=1,
            max_size=connections,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            server_settings=_server_settings("log"),
        )
        record_log = cls(database_url, pool, cache_bytes, deadline_s)
        for table in (store.KEYS, store.LASTING_KEYS):
            await record_log._query(store.make_key_partitions, table)
        return record_log

    async def close(self) -> None:
        self._connections.close()
        await self.health.close()

    def _on_append(self, topic_id: str, partition: int) -> None:
        self._changed(topic_id, partition)
        known = self._cache.partition((topic_id, partition))
        if known is not None and known.known:
            self._appended(topic_id, partition, known.log_end_offset)

    def _on_append_of(self, topic_id: str, partition: int, records: int) -> None:
        self.on_records(topic_id, partition, records)

    def heard_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        if self._cache.partition((topic_id, partition)) is not None:
            self._learn((topic_id, partition), -1, log_end_offset)

    def _learn(self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int) -> None:
        """Keep a partition's ends; whoever watches is told of news, by whatever it came."""
        if self._cache.set_ends(place, log_start_offset, log_end_offset):
            self._changed(*place)

    def _learn_before_append(self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int) -> None:
        """As `_learn`: the append may fail, and would tell nobody then. What was not known before is not waited for."""
        known = self._cache.partition(place)
        if known is not None and known.known:
            self._learn(place, log_start_offset, log_end_offset)
        else:
            self._cache.set_ends(place, log_start_offset, log_end_offset)

    # Append

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        return await self._appender.append(appends, idempotency_key)

    async def append_dead_letters(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        try:
            return await self._appender.append_dead_letters(topic_id, partition, rows, leader_epoch, for_group)
        except FAULTS as fault:
            raise self.health.error(fault, "dead letters cannot be written") from fault

    async def dead_letters_written(self, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
        written: set[DeadLetterKey] = await self._query(dead_letter_store.known_keys, keys)
        return written

    async def parked_dead_letters(
        self, group_id: str, limit: int, after: ParkedDeadLetter | None
    ) -> Sequence[ParkedDeadLetter]:
        parked: list[ParkedDeadLetter] = await self._query(dead_letter_store.parked, group_id, limit, after)
        return parked

    async def unpark_dead_letters(self, keys: Sequence[DeadLetterKey]) -> None:
        await self._query(dead_letter_store.unpark, keys)

    async def forget_dead_letters(
        self, source: SharePartitionKey, state_epoch: int, ranges: Sequence[OffsetRange]
    ) -> None:
        await self._query(dead_letter_store.forget_keys, source, state_epoch, ranges)

    async def park_dead_letters(self, rows: Sequence[DeadLetterRow], leader_epoch: int) -> None:
        await self._query(dead_letter_store.park, rows, leader_epoch)

    async def parked_counts(self, group_id: str) -> Mapping[TopicIdPartition, Parked]:
        counts: dict[TopicIdPartition, Parked] = await self._query(dead_letter_store.parked_counts, group_id)
        return counts

    # Read

    async def read(self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int) -> ReadResult:
        place = (topic_id, partition)
        known = self._cache.partition(place)
        end = offset
        if known is None or not known.known or known.log_start_offset < 0:
            end = (await self.offsets(topic_id, [partition]))[partition].log_end_offset
            cached = self.read_cached(topic_id, partition, offset, max_bytes, max_records)
            if cached is not None:
                return cached
        replacements = self._cache.replacements(place)
        ahead = max(READ_AHEAD_BYTES, min(max_bytes, 4 * READ_AHEAD_BYTES))
        batches = await self._query(store.read, topic_id, partition, offset, ahead, READ_AHEAD_BATCHES)
        if self._cache.replacements(place) == replacements:  # else these may be older than what was forgotten
            for batch in batches:
                self._cache.add(place, batch)
        if batches:
            self._learn(place, -1, batches[-1].last_offset + 1)
        known = self._cache.partition(place)
        log_start_offset = 0 if known is None else known.log_start_offset
        log_end_offset = end if known is None else known.log_end_offset
        if offset < log_start_offset:
            raise below_log_start(offset, log_start_offset)
        return ReadResult(_within(batches, offset, max_bytes, max_records), log_start_offset, log_end_offset)

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]:
        places = [(topic_id, partition) for partition in partitions]
        bounds = await self._query(store.bounds, places)
        answer = {}
        for place in places:
            found = bounds.get(place)
            # one without a row was never appended to: that is known too, and watched
            start, end = (0, 0) if found is None else (found.log_start_offset, found.log_end_offset)
            if found is None or not found.deleted:
                self._cache.set_replacements(place, 0 if found is None else found.replacements)
                self._learn(place, start, end)
            answer[place[1]] = Offsets(start, end, end)
        return answer

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        unknown: dict[str, list[int]] = {}
        for place in places:
            known = self._cache.partition(place)
            if known is None or not known.known or known.log_start_offset < 0:
                unknown.setdefault(place[0], []).append(place[1])
        for topic_id, partitions in unknown.items():
            await self.offsets(topic_id, partitions)

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        bounds = (await self._query(store.bounds, [(topic_id, partition)])).get((topic_id, partition))
        if bounds is None:
            return None
        from_offset = bounds.log_start_offset
        while True:
            batch = await self._query(store.batch_with_timestamp, topic_id, partition, from_offset, timestamp_ms)
            if batch is None:
                return None
            for record in nesting.decode(_timestamps, b"[" + batch.slice(from_offset, batch.last_offset) + b"]"):
                if record.timestamp_ms >= timestamp_ms:
                    return record.offset
            from_offset = batch.last_offset + 1

    # Trim

    async def delete_records(self, topic_id: str, partition: int, before_offset: int) -> int:
        place = (topic_id, partition)

        async def trim(connection: Any) -> int:
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
            self._cache.set_ends(place, target, bounds.log_end_offset)
            return target

        log_start_offset: int = await self._query(trim)
        self._changed(topic_id, partition)
        return log_start_offset

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        async def mark(connection: Any, part: range) -> None:
            places = [(topic_id, partition) for partition in part]
            async with connection.transaction():
                await store.lock(connection, places)
                await store.make_partitions(connection, places, deleted=True)
                await store.mark_deleted(connection, topic_id, part)

        for first in range(0, partitions, MOST_PARTITIONS):
            part = range(first, min(first + MOST_PARTITIONS, partitions))
            await self._query(mark, part)
            for partition in part:
                self._cache.drop((topic_id, partition))

    async def apply_retention(
        self, topic_id: str, partitions: int, retention_ms: int, retention_bytes: int, now_ms: int
    ) -> None:
        bounds = await self._query(store.bounds, [(topic_id, partition) for partition in range(partitions)])
        for (_, partition), (log_start_offset, log_end_offset, deleted, _) in bounds.items():
            target = log_start_offset
            if deleted or log_start_offset == log_end_offset:
                continue
            if retention_ms >= 0:
                batch = await self._query(
                    store.batch_with_timestamp, topic_id, partition, log_start_offset, now_ms - retention_ms
                )
                target = max(target, log_end_offset if batch is None else batch.base_offset)
            if retention_bytes >= 0:
                oldest = await self._query(store.start_by_bytes, topic_id, partition, retention_bytes)
                target = max(target, log_end_offset if oldest is None else oldest)
            if target > log_start_offset:
                await self.delete_records(topic_id, partition, target)
                log.info(
                    "retention moved the log start",
                    extra=fields(topic_id=topic_id, partition=partition, log_start_offset=target),
                )

    # Loops

    def watch(
        self,
        changed: Callable[[str, int], None],
        interest: Callable[[], Iterable[TopicIdPartition]],
        appended: Callable[[str, int, int], None] = nobody,
        forgotten: Callable[[str, int], None] = lambda topic_id, partition: None,
    ) -> None:
        self._changed = changed
        self._interest = interest
        self._appended = appended
        self._forgotten = forgotten

    async def run(self) -> None:
        """The appender, the watch and the purge, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._appender.run())
            group.create_task(self._watch())
            group.create_task(self._purge())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_PAUSE_S)
            places = list({*self._interest(), *self._cache.places()})
            try:
                for start in range(0, len(places), WATCHED_AT_ONCE):
                    await self._look_at(places[start : start + WATCHED_AT_ONCE])
            except StorageError as error:
                log.warning("cannot look for other gateways' writes", extra=fields(cause=error.detail))

    async def _look_at(self, places: Sequence[TopicIdPartition]) -> None:
        bounds = await self._query(store.bounds, places)
        for place, (log_start_offset, log_end_offset, deleted, replacements) in bounds.items():
            if deleted:
                self._cache.drop(place)
                self._forgotten(*place)
            else:
                self._cache.set_replacements(place, replacements)
                self._learn(place, log_start_offset, log_end_offset)

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        self._to_look_at.update(places)
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look(), context=contextvars.Context())
            self._next_look.add_done_callback(
                lambda look: look.cancelled() or look.exception()
            )  # which a shield may leave unread
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        """For all who asked before it began: those who come while it is under way share the next one."""
        async with self._looking:
            self._next_look = None
            places, self._to_look_at = list(self._to_look_at), set()
            for start in range(0, len(places), WATCHED_AT_ONCE):
                await self._look_at(places[start : start + WATCHED_AT_ONCE])

    async def _purge(self) -> None:
        while True:
            for place in self._cache.forget_unused(set(self._interest())):
                self._forgotten(*place)
            try:
                for table in (store.KEYS, store.LASTING_KEYS):
                    await self._query(store.make_key_partitions, table)
                    await self._query(store.drop_key_partitions, table)
                for stage, after_s in purging.STAGES:
                    while await self._query(stage, purging.AT_ONCE, after_s) >= purging.AT_ONCE:
                        pass
            except StorageError as error:
                log.warning("cannot purge the record log", extra=fields(cause=error.detail))
            await asyncio.sleep(PURGE_PAUSE_S)

    async def now_ms(self) -> float:
        """Milliseconds since the epoch by PostgreSQL's clock."""

        async def ask(connection: Any) -> float:
            return float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"))

        now_ms: float = await self._query(ask)
        return now_ms

    async def ping(self) -> None:
        await self.health.check()

    async def query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on a connection to the same database, for tables beside the log. Raises: StorageError."""
        return await self._query(function, *arguments)

    async def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a store function on a connection of the pool; every failure of the database is a StorageError."""
        try:
            async with self._connections.lend(STATEMENT_TIMEOUT_S, wait_s=CONNECT_TIMEOUT_S) as connection:
                return await function(connection, *arguments)
        except FAULTS as fault:
            raise self.health.error(fault, "the record log cannot be used") from fault
        except CorruptBatch as fault:
            raise StorageError(f"the record log cannot be read: {fault}") from fault


def _server_settings(name: str) -> dict[str, str]:
    return {
        "application_name": f"sharequeue-gateway-{name}",
        "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
        "idle_in_transaction_session_timeout": "10s",
        "jit": "off",
    }


def _within(batches: Sequence[Any], offset: int, max_bytes: int, max_records: int) -> Sequence[Any]:
    size = 0
    for index, batch in enumerate(batches):
        size += batch.size
        if size >= max_bytes or batch.last_offset >= offset + max_records - 1:
            return batches[: index + 1]
    return batches
