"""Reads of Kafka's logs: from memory if it knows the answer, else one Fetch for all groups that read there.

    Following ──▶ learn ──▶ memory (ends, recent batches) ──▶ LogListener: fetches that wait wake up
    read ──▶ memory, or one Fetch at each offset ──▶ memory

A batch that this gateway has sent is not read if the answer of its append says that nothing else is new in the log:
memory has the bytes that its records were made of.

A reader of committed records has other batches: without those of aborted transactions, up to the last stable offset.
Memory keeps them as another partition, whose number is the complement (`~partition`). Its log end is the last stable
offset.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import structs

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.kafka_log.faults import MISSING, storage_error
from sharequeue_gateway.kafka_log.read_values import JSON, batch_of, reads_as_sent
from sharequeue_gateway.kafka_log.truncations import Last, Restart, Truncations
from sharequeue_gateway.record_log.log import LogListener, Offsets, PartitionAppend, ReadResult, below_log_start
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.reading.read_room import ReadRoom, ahead_of, within
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_kafka.batches import ReadBatch, numbers_of, read_batches
from sharequeue_kafka.cluster import KafkaCluster, LogOffset, Place
from sharequeue_kafka.errors import OFFSET_OUT_OF_RANGE, KafkaError
from sharequeue_kafka.fetching import FetchedPart, Fetching
from sharequeue_kafka.following import Following
from sharequeue_kafka.producing import Appended, Heard

NO_OFFSETS: Final = Offsets(0, 0, 0)
ENDS_AT_ONCE: Final = 1000


class KafkaReads:
    """Memory of Kafka's logs, and reads through it. `run` must be running.

    `values`: the setting `value.format` of a topic, by its id. `max_depth`: deeper values are no JSON.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        cache: BatchCache,
        listener: LogListener,
        values: Callable[[str], str],
        *,
        restart: Restart,
        reading_bytes: int,
        max_depth: int,
    ) -> None:
        self._cluster = cluster
        self.truncations: Final = Truncations(cluster, restart, self.forget)
        self.cache: Final = cache
        self._listener = listener
        self._values = values
        self._max_depth = max_depth
        self._room = ReadRoom(reading_bytes)
        self._fetching = Fetching(cluster)
        self.following: Final = Following(cluster, self._moved)
        self._under_way: dict[tuple[TopicIdPartition, int], asyncio.Task[Sequence[RecordBatch]]] = {}
        """The Fetches that wait for their answer, by partition of memory and offset."""

    async def run(self) -> None:
        """Follow the logs that are used. Never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.following.run())
            group.create_task(self.truncations.run())

    # Ends

    def learn(self, place: TopicIdPartition, start: int, end: int, stable: int) -> None:
        """Keep the bounds of a log, follow it from now on, and report a change. −1: unknown.

        Without a start the end is that of one append, and more may have been read.
        """
        new = self.cache.log_end_offset(place) < 0
        if start >= 0:
            self.truncations.note_end(place, end)
        changed = self.cache.set_ends(place, start, end)
        if stable >= 0:
            changed |= self.cache.set_ends(_committed(place), start, stable)
        if new:
            self.following.follow(Place(*place), end)
        if changed:
            self._listener.changed(*place, start, self.cache.log_end_offset(place))

    def sent(self, place: Place, batch: bytes, appends: list[PartitionAppend]) -> Heard:
        """Note that a batch goes to Kafka, made of these appends."""
        self.following.appending(place)
        return partial(self._appended, place, numbers_of(batch), appends)

    def _appended(
        self, place: Place, numbers: bytes, appends: list[PartitionAppend], epoch: int, appended: Appended
    ) -> None:
        """A batch is durable, by the leader of this epoch. If nothing else is new in its log, memory has it now."""
        tails = [tail for append in appends for tail in append.tails]
        offset, end = appended.offset, appended.offset + len(tails)
        stable = None
        as_sent = appended.as_sent and all(append.plain or reads_as_sent(append.tails) for append in appends)
        if as_sent and self._values(place.topic_id) in JSON:
            stable = self.following.appended(place, epoch, appended, end)
        if stable is not None:
            self.truncations.note(place, [Last(epoch, end, numbers)])
            newest = max(append.max_timestamp_ms for append in appends)
            self.cache.add(place, RecordBatch.encode(offset, tails, newest), end)
            self.cache.set_ends(_committed(place), -1, stable)
        self.appended(*place, end, len(tails))

    def appended(self, topic_id: str, partition: int, end: int, records: int) -> None:
        """Records of this gateway are durable."""
        if self.cache.log_end_offset((topic_id, partition)) >= 0:
            self.cache.set_ends((topic_id, partition), -1, end)
        self._listener.appended(topic_id, partition, end, records)

    def _moved(self, part: FetchedPart) -> None:
        """A log that is followed has news."""
        place: TopicIdPartition = part.place
        if part.batches:
            with suppress(KafkaError):  # whoever reads the batches meets it
                for batch in self._decoded(place, read_batches(part.batches, part.aborted)):
                    if batch.last_offset < part.high_watermark:
                        self.cache.add(place, batch)
        self.learn(place, part.log_start, part.high_watermark, part.last_stable)

    async def read_ends(
        self, places: Sequence[TopicIdPartition], *, learn: bool = True
    ) -> dict[TopicIdPartition, Offsets]:
        """Ask for the bounds of logs, and learn those that are known; of a topic that is gone they are NO_OFFSETS.

        Raises: StorageError: some are not known.
        """
        found: dict[TopicIdPartition, Offsets] = {}
        for first in range(0, len(places), ENDS_AT_ONCE):
            asked = [Place(*place) for place in places[first : first + ENDS_AT_ONCE]]
            starts, stables, ends = await asyncio.gather(
                self._cluster.list_offsets(asked, "earliest"),
                self._cluster.list_offsets(asked, "latest", committed=True),
                self._cluster.list_offsets(asked, "latest"),
            )
            fault: KafkaError | None = None
            for place in asked:
                start, stable, end = starts[place], stables[place], ends[place]
                if isinstance(start, LogOffset) and isinstance(stable, LogOffset) and isinstance(end, LogOffset):
                    found[place] = Offsets(start.offset, stable.offset, end.offset)
                    if learn:
                        self.learn(place, start.offset, end.offset, stable.offset)
                    continue
                found[place] = NO_OFFSETS
                errors = [each for each in (start, stable, end) if isinstance(each, KafkaError)]
                fault = fault if errors[0].name in MISSING else fault or errors[0]
            if fault is not None:
                raise storage_error(fault) from fault
        return found

    def forget_unused(self, interest: Iterable[TopicIdPartition]) -> None:
        """Forget, and no longer follow, logs that nobody used since the last call. `interest`: those to keep."""
        kept = {place for each in interest for place in (each, _committed(each))}
        for place in self.cache.forget_unused(kept):
            if place[1] >= 0:
                self.forget(place)

    def forget(self, place: TopicIdPartition) -> None:
        self.following.unfollow(Place(*place))
        for each in (place, _committed(place)):
            self.cache.drop(each)
        self._listener.forgotten(*place)

    # Batches

    def read_cached(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch] | None:
        if not committed:
            return self.cache.read_cached(topic_id, partition, offset, max_bytes, max_records)
        known = self.cache.partition((topic_id, partition))
        read = self.cache.read_cached(topic_id, ~partition, offset, max_bytes, max_records)
        return None if read is None or known is None else structs.replace(read, log_end_offset=known.log_end_offset)

    async def read(
        self,
        topic_id: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
        committed: bool = False,
        *,
        keep: bool = True,
    ) -> ReadResult[RecordBatch]:
        """See RecordLog.read. `keep`: put the batches into memory."""
        place = (topic_id, partition)
        kept = _committed(place) if committed else place
        if not self.cache.knows_ends(kept):
            await self.read_ends([place])
        cached = self.read_cached(*place, offset, max_bytes, max_records, committed)
        if cached is not None:
            return cached
        if not self.cache.knows_ends(kept):  # the topic is gone
            return ReadResult((), 0, 0, 0)
        batches = await self._fetched(place, kept, offset, max_bytes, keep)
        known, bounds = self.cache.partition(kept), self.cache.partition(place)
        if known is None or bounds is None:  # forgotten while it was read
            return ReadResult((), 0, offset, offset)
        if offset < known.log_start_offset:
            raise below_log_start(offset, known.log_start_offset)
        found = within(batches, offset, max_bytes, max_records)
        return ReadResult(found, known.log_start_offset, bounds.log_end_offset, known.log_end_offset)

    async def _fetched(
        self, place: TopicIdPartition, kept: TopicIdPartition, offset: int, max_bytes: int, keep: bool
    ) -> Sequence[RecordBatch]:
        """Fetch once for all that read there now. A reader that leaves does not end the Fetch of the others."""
        if not keep:
            return await self._fetch(place, kept, offset, max_bytes, keep=False)
        fetch = self._under_way.get((kept, offset))
        if fetch is None:
            reading = self._fetch(place, kept, offset, max_bytes, keep=True)
            fetch = self._under_way[kept, offset] = asyncio.create_task(reading, context=contextvars.Context())
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())  # its readers may have left
            fetch.add_done_callback(lambda _: self._under_way.pop((kept, offset)))
        return await asyncio.shield(fetch)

    async def _fetch(
        self, place: TopicIdPartition, kept: TopicIdPartition, offset: int, max_bytes: int, *, keep: bool
    ) -> Sequence[RecordBatch]:
        ahead = ahead_of(max_bytes)
        committed = kept[1] < 0
        batches: list[RecordBatch] = []
        size = await self._room.enter(ahead)
        try:
            part = await self._fetching.fetch(Place(*place), offset, ahead, committed)
            end = part.last_stable if committed else part.high_watermark
            read = read_batches(part.batches, part.aborted)
            batches = self._decoded(place, _without_holes(read, offset, end))
        except KafkaError as fault:
            if fault.code != OFFSET_OUT_OF_RANGE:
                raise storage_error(fault) from fault
            self.cache.drop(kept)  # the log start has moved, or the log ends before it did
            await self.read_ends([place])
            return ()
        finally:
            self._room.leave(size, max((batch.size for batch in batches), default=0))
        self.learn(place, part.log_start, part.high_watermark, part.last_stable)
        return [self.cache.add(kept, batch) for batch in batches] if keep else batches

    def _decoded(self, place: TopicIdPartition, read: Iterable[ReadBatch]) -> list[RecordBatch]:
        read = list(read)
        self.truncations.note(place, [Last(each.leader_epoch, each.last_offset + 1) for each in read if each.records])
        value_format = self._values(place[0])
        return [batch_of(each, value_format, self._max_depth) for each in read]


def _committed(place: TopicIdPartition) -> TopicIdPartition:
    return place[0], ~place[1]


def _without_holes(batches: Iterable[ReadBatch], offset: int, end: int) -> Iterable[ReadBatch]:
    """The batches of a Fetch from `offset` on, up to `end`. Compaction may leave offsets that no batch covers."""
    following = offset
    for batch in batches:
        if batch.last_offset >= end:
            break
        yield batch._replace(first_offset=following) if batch.first_offset > following else batch
        following = batch.last_offset + 1
    if following == offset < end:
        yield ReadBatch(offset, end - 1, -1, [])
