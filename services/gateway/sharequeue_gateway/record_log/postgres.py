"""The record log on PostgreSQL: joins its parts, reads through the cache, and runs the loops that update the cache."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from sharequeue.protocol import capabilities
from sharequeue.protocol.types import MAX_INT64, TopicIdPartition
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue.service.time_line import WENT_BACK
from sharequeue_gateway.record_log import store, time_lines
from sharequeue_gateway.record_log.appending import Appender
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.locked_append import LockedAppend
from sharequeue_gateway.record_log.log import Batch, LogListener, Offsets, ReadResult, Removed, below_log_start
from sharequeue_gateway.record_log.reading.cache import BatchCache, KnownLog
from sharequeue_gateway.record_log.reading.committed_reads import CommittedReads
from sharequeue_gateway.record_log.reading.read_room import ReadRoom, ahead_of, within
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import purging, trimming
from sharequeue_gateway.record_log.removing.compacting import Compaction
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.removing.retaining import Retaining
from sharequeue_gateway.record_log.retention_rule import RetentionRule
from sharequeue_gateway.record_log.scheduled.schedule_log import ScheduleLog
from sharequeue_gateway.record_log.scheduled.scheduled_log import ScheduledLog
from sharequeue_gateway.record_log.stored_batch import PackedBatch
from sharequeue_gateway.record_log.transactions.ending import Ending
from sharequeue_gateway.record_log.transactions.transactions import DEFAULTS, PostgresTransactions, TransactionOptions
from sharequeue_gateway.record_log.unique_log import UniqueLog
from sharequeue_http.forms.errors import in_parts
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

WATCH_PAUSE_S: Final = 0.5
WATCHED_AT_ONCE: Final = 2000
ENDS_AT_ONCE: Final = 1000
TRIMMED_AT_ONCE: Final = 250
"""The most partitions whose records one transaction deletes: appends to them wait for it."""

Interest = Callable[[], Iterable[TopicIdPartition]]


class _Timestamped(msgspec.Struct):
    offset: int
    timestamp_ms: int


_timestamps: Final = msgspec.json.Decoder(list[_Timestamped])


class PostgresRecordLog:
    """The `parts.Log` of PostgreSQL. `run` must be running. Each coroutine may raise StorageError."""

    kind: Final = "postgres"
    capabilities: Final = capabilities.ALL
    stores: Final[Mapping[str, Callable[[], Awaitable[None]]]] = MappingProxyType({})

    def __init__(
        self,
        database: LogDatabase,
        cache: BatchCache,
        listener: LogListener,
        *,
        reading_bytes: int = 256 << 20,
        deadline_s: float = 10.0,
        transactions: TransactionOptions = DEFAULTS,
        scheduled: tuple[int, int] = (10_000_000, 10 << 30),
    ) -> None:
        self.database = database
        self.readers: Final = Readers(database.query)
        self._cache = cache
        self._listener = listener
        self._known = KnownLog(self._cache, listener)
        database.time_line.forget(self._known.forget)
        ending = Ending(database, self._known, deadline_s, transactions.count_end)
        locked_append = LockedAppend(database, self._known, deadline_s)
        self.appender = Appender(database, self._known, locked_append, deadline_s)
        self.dead_letters = DeadLetterLog(database, locked_append)
        self.unique = UniqueLog(database, locked_append)
        self.schedules = ScheduleLog(database, locked_append)
        self.scheduled = ScheduledLog(database, locked_append, *scheduled)
        self.transactions = PostgresTransactions(database, self.appender, ending, transactions)
        self._retaining = Retaining(database.query)
        self.compaction = Compaction(database, self._cache)
        self.committed_reads = CommittedReads(database.query, self._known)
        self.read_cached = self._cache.read_cached
        self.known_log_start = self._cache.log_start_offset
        self._room = ReadRoom(reading_bytes)
        self._looking = asyncio.Lock()
        self._to_look_at: set[TopicIdPartition] = set()
        self._next_look: asyncio.Task[None] | None = None
        """The next look at log ends. It begins when the one under way has ended."""

    @property
    def questions(self) -> int:
        return self.committed_reads.questions

    trouble: Final = ""
    """PostgreSQL answers or refuses within the time of a load."""

    @property
    def ever_skipped(self) -> bool:
        return self.database.ever_skipped

    # Read

    async def read(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch]:
        place = (topic_id, partition)
        end = offset
        if not self._cache.knows_ends(place):
            end = (await self._read_ends([place]))[place].log_end_offset
            cached = self.read_cached(topic_id, partition, offset, max_bytes, max_records, committed)
            if cached is not None:
                return cached
        replacements = self._cache.replacements(place)
        ahead = ahead_of(max_bytes)
        batches: list[RecordBatch] = await self._read(ahead, store.read, *place, offset, ahead)
        if self._cache.replacements(place) == replacements:  # otherwise these batches may be outdated
            batches = [self._cache.add(place, batch) for batch in batches]
        return await self._result(place, offset, end, batches, max_bytes, max_records, committed)

    async def read_deleted(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> Sequence[RecordBatch]:
        return await self._read(max_bytes, store.read, topic_id, partition, offset, max_bytes)

    async def read_packed(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch | PackedBatch]:
        # a reader of the log reads each batch once, so each page of a read_committed one asks for outcomes
        place = (topic_id, partition)
        end = offset if self._cache.knows_ends(place) else (await self._read_ends([place]))[place].log_end_offset
        compressed = ahead_of(max_bytes)
        batches: list[RecordBatch | PackedBatch] = await self._read(
            compressed, store.read_packed, *place, offset, compressed, max_bytes, max_records
        )
        return await self._result(place, offset, end, batches, max_bytes, max_records, committed)

    async def _read(self, ahead: int, read: Callable[..., Awaitable[list[Any]]], *arguments: Any) -> list[Any]:
        """Read batches from the database, when there is room for them."""
        batches: list[Any] = []
        size = await self._room.enter(ahead)
        try:
            batches = await self.database.query(read, *arguments)
        finally:
            self._room.leave(size, max((batch.size for batch in batches), default=0))
        return batches

    async def _result(
        self,
        place: TopicIdPartition,
        offset: int,
        end: int,
        batches: Sequence[Batch],
        max_bytes: int,
        max_records: int,
        committed: bool,
    ) -> ReadResult[Batch]:
        """The batches from the database that a reader gets, and the bounds of the log.

        `end`: the log end, if memory does not know it.

        Raises: OffsetOutOfRange.
        """
        if batches:
            self._known.learn(place, -1, batches[-1].last_offset + 1)
        known = self._cache.partition(place)
        log_start_offset = 0 if known is None else known.log_start_offset
        log_end_offset = end if known is None else known.log_end_offset
        if offset < log_start_offset:
            raise below_log_start(offset, log_start_offset)
        found = within(batches, offset, max_bytes, max_records)
        read = ReadResult(found, log_start_offset, log_end_offset, log_end_offset)
        return await self.committed_reads.cut(place, offset, read, batches) if committed else read

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]:
        answer: dict[int, Offsets] = {}
        for start in range(0, len(partitions), ENDS_AT_ONCE):
            places = [(topic_id, partition) for partition in partitions[start : start + ENDS_AT_ONCE]]
            read = await self._read_ends(places)
            answer.update((partition, offsets) for (_, partition), offsets in read.items())
        return answer

    async def _read_ends(self, places: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, Offsets]:
        """The bounds of partitions, read with one query."""
        bounds = await self.database.query(store.bounds, places)
        answer = {}
        for place in places:
            # a partition without a row has no append yet; it is cached and watched as an empty one
            start, end, deleted, replacements, stable = bounds.get(place, store.NO_BOUNDS)
            if not deleted:
                self._cache.set_replacements(place, replacements)
                self._known.learn(place, start, end, stable)
            answer[place] = Offsets(start, stable, end)
        return answer

    async def with_records(self, place: TopicIdPartition, ranges: Sequence[tuple[int, int]]) -> list[int]:
        return await self.database.query(time_lines.with_records, place, ranges)

    async def end_above(self, ends: Mapping[TopicIdPartition, int]) -> None:
        await self.database.query(time_lines.end_above, ends)
        WENT_BACK().inc()
        log.error(
            "the log is older than what groups or Redis know of it: their offsets are skipped",
            extra=fields(ends={f"{topic_id}:{partition}": end for (topic_id, partition), end in ends.items()}),
        )

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        unknown = [place for place in places if not self._cache.knows_ends(place)]
        if unknown:
            await self._read_ends(unknown)

    def hear_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        if self._cache.partition((topic_id, partition)) is not None:
            self._known.learn((topic_id, partition), -1, log_end_offset)

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        bounds = (await self.database.query(store.bounds, [(topic_id, partition)])).get((topic_id, partition))
        if bounds is None:
            return None
        from_offset = bounds.log_start_offset
        while True:
            since = topic_id, partition, from_offset, MAX_INT64, timestamp_ms
            base_offset = await self.database.query(store.first_batch_since, *since)
            if base_offset is None:
                return None
            for batch in await self.read_deleted(topic_id, partition, max(base_offset, from_offset), 1):
                records = b"[" + batch.slice(from_offset, batch.last_offset) + b"]"
                for record in _timestamps.decode(records):
                    if record.timestamp_ms >= timestamp_ms:
                        return record.offset
                from_offset = batch.last_offset + 1

    # Trim

    async def delete_records(self, topic_id: str, before: Mapping[int, int]) -> dict[int, int]:
        log_starts: dict[int, int] = {}
        wanted = sorted(before.items())
        with in_parts(lambda: len(log_starts)):
            for start in range(0, len(wanted), TRIMMED_AT_ONCE):
                some = wanted[start : start + TRIMMED_AT_ONCE]
                trimmed = await self.database.query(trimming.delete_records, topic_id, some)
                self._moved(topic_id, trimmed)
                log_starts.update((each.partition, each.log_start_offset) for each in trimmed)
        return log_starts

    def _moved(self, topic_id: str, removed: Iterable[Removed]) -> None:
        for partition, log_start_offset, log_end_offset, _ in removed:
            self._cache.set_ends((topic_id, partition), log_start_offset, log_end_offset)
            self._listener.changed(topic_id, partition, log_start_offset, log_end_offset)

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        await trimming.delete_topic(self.database.query, topic_id, partitions)
        for partition in range(partitions):
            self._cache.drop((topic_id, partition))

    async def apply_retention(
        self, topic_id: str, partitions: Sequence[int], rule: RetentionRule, now_ms: int
    ) -> list[Removed]:
        removed = await self._retaining.sweep(topic_id, partitions, rule, now_ms)
        self._moved(topic_id, removed)
        return removed

    # Loops

    async def run(self, interest: Interest) -> None:
        """As `Log.run`. The partitions of `interest` are watched besides those in memory."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.appender.run())
            group.create_task(self._watch(interest))
            group.create_task(self._purge(interest))
            group.create_task(self.transactions.run())

    async def _watch(self, interest: Interest) -> None:
        async for _ in Every(WATCH_PAUSE_S):
            places = list({*interest(), *self._cache.places()})
            with looking("log_ends", "cannot read the log ends of watched partitions"):
                await self.database.look_back()
                for start in range(0, len(places), WATCHED_AT_ONCE):
                    await self._look_at(places[start : start + WATCHED_AT_ONCE])

    async def _look_at(self, places: Sequence[TopicIdPartition]) -> None:
        known = self._cache.log_ends(places)
        bounds = await self.database.query(store.bounds, places)
        if (sign := time_lines.older(known, bounds)) is not None:
            await self.database.skip(known, sign)
            return
        for place, (log_start_offset, log_end_offset, deleted, replacements, stable) in bounds.items():
            if deleted:
                self._cache.drop(place)
                self._listener.forgotten(*place)
            else:
                self._cache.set_replacements(place, replacements)
                self._known.learn(place, log_start_offset, log_end_offset, stable)

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        self._to_look_at.update(places)
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look(), context=contextvars.Context())
            self._next_look.add_done_callback(
                lambda look: look.cancelled() or look.exception()
            )  # which a shield may leave unread
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        """Serve every call of `look` before this began with one query. Calls from then on share the next one."""
        async with self._looking:
            self._next_look = None
            places, self._to_look_at = list(self._to_look_at), set()
            for start in range(0, len(places), WATCHED_AT_ONCE):
                await self._look_at(places[start : start + WATCHED_AT_ONCE])

    async def _purge(self, interest: Interest) -> None:
        def forget_unused() -> None:
            for place in self._cache.forget_unused(set(interest())):
                self._listener.forgotten(*place)

        await purging.run(self.database, forget_unused)
