"""The record log on Kafka: joins its parts. Its retention is Kafka's; PostgreSQL has floors, letters and intents."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from sharequeue.protocol import capabilities
from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.types import TopicIdPartition
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue.service.kafka_health import ask_kafka
from sharequeue.service.time_line import WENT_BACK
from sharequeue_gateway.kafka_log import bounds_store
from sharequeue_gateway.kafka_log.appending import KafkaAppends, keep_keyed
from sharequeue_gateway.kafka_log.bounds_store import KafkaReaders
from sharequeue_gateway.kafka_log.dead_letters import KafkaDeadLetters, note_letters
from sharequeue_gateway.kafka_log.faults import MISSING, storage_error
from sharequeue_gateway.kafka_log.intents import Kind
from sharequeue_gateway.kafka_log.once import AppendOnce
from sharequeue_gateway.kafka_log.reading import ENDS_AT_ONCE, NO_OFFSETS, KafkaReads
from sharequeue_gateway.kafka_log.truncations import Restart
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.log import LogListener, OffsetOutOfRange, Offsets, ReadResult, Removed
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import purging, trimming
from sharequeue_gateway.record_log.retention_rule import RetentionRule
from sharequeue_gateway.record_log.transactions.open_store import OpenNow
from sharequeue_http.forms.errors import in_parts
from sharequeue_http.log import fields
from sharequeue_kafka.cluster import KafkaCluster, Place, sure
from sharequeue_kafka.errors import OFFSET_OUT_OF_RANGE, KafkaError

log = logging.getLogger(__name__)

WATCH_PAUSE_S: Final = 0.5
FOLLOW_PAUSE_S: Final = 5.0
"""How often the rows of PostgreSQL follow the bounds of the logs that groups read."""
DEADLINE_S: Final = 10.0
Interest = Callable[[], Iterable[TopicIdPartition]]


class KafkaRecordLog:
    """The `parts.Log` of Kafka. `run` must be running. Each coroutine may raise StorageError.

    `sweeps`: whether this gateway looks after a partition. `name`: as in AppendOnce.
    """

    kind: Final = "kafka"
    capabilities: Final = frozenset({capabilities.Capability.IDEMPOTENCY_KEYS, capabilities.Capability.DEAD_LETTERS})
    questions: Final = 0
    ever_skipped: Final = False
    unique: Any = None
    schedules: Any = None
    scheduled: Any = None
    compaction: Any = None
    transactions: Any = SimpleNamespace(open_now=OpenNow(0))
    """There are none. The other parts that Kafka's log lacks get no call."""

    def __init__(
        self,
        database: LogDatabase,
        cluster: KafkaCluster,
        cache: BatchCache,
        listener: LogListener,
        *,
        values: Callable[[str], str],
        sweeps: Callable[[str, int], bool],
        restart: Restart,
        reading_bytes: int,
        max_depth: int,
        name: str,
    ) -> None:
        self.database: Final = database
        self.stores: Final = {"kafka": partial(ask_kafka, cluster)}
        self._cluster = cluster
        self._sweeps = sweeps
        self.reads: Final = KafkaReads(
            cluster, cache, listener, values, restart=restart, reading_bytes=reading_bytes, max_depth=max_depth
        )
        self.readers: Final = KafkaReaders(database.query, self._follow_rows)
        self.read = self.reads.read
        self.read_cached = self.reads.read_cached
        self.known_log_start = cache.log_start_offset
        self._removed: defaultdict[str, dict[int, Removed]] = defaultdict(dict)
        """By topic id and partition, the log starts that moved since the last `apply_retention`."""
        finish = {Kind.KEYED: keep_keyed, Kind.LETTERS: note_letters, Kind.REDRIVEN: note_letters}
        self.once: Final = AppendOnce(database, cluster, name, finish, self.reads.appended, DEADLINE_S)
        self.appender: Final = KafkaAppends(cluster, self.once, self.reads.sent, 0.75 * DEADLINE_S)
        self.dead_letters: Final = KafkaDeadLetters(database, self.once)
        self._to_look_at: set[TopicIdPartition] = set()
        self._look: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """As `RecordLog.trouble`."""
        return self._cluster.trouble

    # Reads

    async def read_deleted(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> Sequence[RecordBatch]:
        """Read nothing: Kafka keeps no record below its log start."""
        return ()

    async def read_packed(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[Any]:
        return await self.reads.read(topic_id, partition, offset, max_bytes, max_records, committed, keep=False)

    # Ends

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]:
        read = await self.reads.read_ends([(topic_id, partition) for partition in partitions])
        return {partition: offsets for (_, partition), offsets in read.items()}

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        await self.reads.read_ends([place for place in places if not self.reads.cache.knows_ends(place)])

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        """Learn the ends of partitions, with every append before this call. Calls of one moment share requests."""
        self._to_look_at.update(places)
        if self._look is None:
            self._look = asyncio.create_task(self._look_once())
            self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
        await asyncio.shield(self._look)

    async def _look_once(self) -> None:
        await asyncio.sleep(0)
        self._look = None
        places, self._to_look_at = list(self._to_look_at), set()
        await self.reads.read_ends(places)

    def hear_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        if self.reads.cache.log_end_offset((topic_id, partition)) >= 0:  # known, but this does not count as a read
            self.reads.learn((topic_id, partition), -1, log_end_offset, -1)

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        place = Place(topic_id, partition)
        try:
            found = sure(await self._cluster.list_offsets([place], timestamp_ms))[place]
        except KafkaError as fault:
            raise storage_error(fault) from fault
        return None if found.offset < 0 else found.offset

    # Trims

    async def delete_records(self, topic_id: str, before: Mapping[int, int]) -> dict[int, int]:
        wanted = {Place(topic_id, partition): offset for partition, offset in before.items()}
        answered: Mapping[Place, int | KafkaError] = {}
        places = [(topic_id, partition) for partition in before]
        with in_parts(lambda: sum(isinstance(start, int) or start.retriable for start in answered.values())):
            try:
                answered = await self._cluster.delete_records(wanted)
                starts = sure(answered)
            except KafkaError as fault:
                if fault.code == OFFSET_OUT_OF_RANGE:
                    raise OffsetOutOfRange(f"an offset is behind the log end: {fault.message}", 0) from fault
                if fault.name in MISSING:
                    raise UnknownTopicOrPartition("the topic was deleted") from fault
                raise storage_error(fault) from fault
            await self.reads.read_ends(places)
            await self._follow_rows(places)
        return {place.partition: start for place, start in starts.items()}

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        """Remove what PostgreSQL has of a topic that is deleted in Kafka."""
        await trimming.delete_topic(self.database.query, topic_id, partitions)
        for partition in range(partitions):
            self.reads.forget((topic_id, partition))

    async def apply_retention(
        self, topic_id: str, partitions: Sequence[int], rule: RetentionRule, now_ms: int
    ) -> list[Removed]:
        """Return the log starts that Kafka's retention, or anybody else, has moved since the last call, if this gateway
        has noted them in PostgreSQL: those of other partitions, too."""
        return [*self._removed.pop(topic_id, {}).values()]

    # Repairs

    async def with_records(self, place: TopicIdPartition, ranges: Sequence[tuple[int, int]]) -> list[int]:
        end = (await self.reads.read_ends([place]))[place].log_end_offset
        return [index for index, (_, last_offset) in enumerate(ranges) if last_offset < end]

    async def end_above(self, ends: Mapping[TopicIdPartition, int]) -> None:
        """Say that Kafka has lost records which groups or locks name: it will give their offsets to others."""
        WENT_BACK().inc()
        log.error(
            "Kafka's log ends before offsets that groups know, and no gateway saw it lose records: reset the offsets of"
            " these groups to the end that the log has now",
            extra=fields(ends={f"{topic_id}:{partition}": end for (topic_id, partition), end in ends.items()}),
        )

    # Loops

    async def run(self, interest: Interest) -> None:
        """Follow the logs that are used, have the rows of PostgreSQL follow those that groups read, and purge rows.
        Never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.reads.run())
                group.create_task(self._watch(interest))
                group.create_task(self._follow_read())
                group.create_task(self.once.sweep(lambda: self._sweeps("intents", 0)))
                group.create_task(purging.run(self.database, lambda: self.reads.forget_unused(interest())))
        finally:
            await self.appender.close()
            await self.once.close()

    async def _watch(self, interest: Interest) -> None:
        """Learn the logs that fetches wait for and memory does not know: those whose ends could not be read before."""
        async for _ in Every(WATCH_PAUSE_S):
            with looking("log_ends", "cannot read the log ends of watched partitions"):
                await self.learn_ends(list(interest()))

    async def _follow_read(self) -> None:
        async for _ in Every(FOLLOW_PAUSE_S):
            with looking("log_ends", "cannot follow the ends of the logs that groups read"):
                places = await self.database.query(bounds_store.read_places)
                await self._follow_rows([place for place in places if self._sweeps(*place)])

    async def _follow_rows(self, places: Sequence[TopicIdPartition]) -> None:
        """Have the rows of partitions follow Kafka, and note what its retention removed."""
        for first in range(0, len(places), ENDS_AT_ONCE):
            asked = await self.reads.read_ends(places[first : first + ENDS_AT_ONCE], learn=False)
            ends = {place: (start, end) for place, (start, _, end) in asked.items() if asked[place] is not NO_OFFSETS}
            for topic_id, removed in await self.database.query(bounds_store.note, ends):
                noted = self._removed[topic_id]
                before = noted.get(removed.partition, removed._replace(unfinished={}))
                unfinished = Counter(before.unfinished) + Counter(removed.unfinished)
                noted[removed.partition] = removed._replace(unfinished=unfinished)
