"""Recent record batches in memory, bounded in bytes over all partitions, and the known ends of each partition.
`KnownLog` reports their changes to the listener.

A read_committed fetch also needs the last stable offset. Memory has it for a part of the log: `stable_offset` is the
last stable offset of the log below `judged_offset`.

    log start       stable_offset             judged_offset        log end
        │ outcome known   │ a transaction is open   │ heard of, not seen │

Two things move them: a snapshot of the database, and batches that continue the judged part. A log end that another
gateway reports moves neither: a transaction may have begun or ended behind it.
"""

from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.log import Batch, LogListener, ReadResult, below_log_start
from sharequeue_gateway.record_log.record_batch import RecordBatch

_decided = attrgetter("decided")

OVERHEAD = 400
"""The memory of a batch besides its records, in bytes: objects, the header of positions, index entries."""


@dataclass(slots=True, eq=False)
class CachedPartition:
    """One partition's known offsets (−1 = not known) and cached batches, ascending."""

    log_start_offset: int = -1
    log_end_offset: int = -1
    stable_offset: int = -1
    judged_offset: int = -1
    replacements: int = 0
    """The last known number of replacements. Batches in memory are not older than it."""
    bases: list[int] = field(default_factory=list)
    batches: list[RecordBatch] = field(default_factory=list)
    transactional: bool = False
    """Whether a batch of a transaction, or a marker, was ever in memory."""
    used: bool = True
    """Whether the partition was used since the last `forget_unused`."""

    @property
    def settled(self) -> bool:
        """Return whether `stable_offset` is the last stable offset of the whole known log."""
        return self.judged_offset >= self.log_end_offset >= 0

    @property
    def stable_end(self) -> int:
        """Return where a read_committed read may end: more can become stable only after the log end has moved."""
        return self.stable_offset if self.settled else self.log_end_offset

    def judge(self, batch: RecordBatch) -> bool:
        """Judge the batch at `judged_offset`, and move the offsets behind it.

        Returns: False if only the database can tell: the batch ends a transaction, and others may be open.
        """
        if self.stable_offset == self.judged_offset and (batch.transaction_id is None or batch.decided):
            self.stable_offset = batch.last_offset + 1
        elif batch.control:
            return False
        self.judged_offset = batch.last_offset + 1
        return True


class BatchCache:
    """Record batches of all partitions. The least recently used ones are evicted first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partitions: defaultdict[TopicIdPartition, CachedPartition] = defaultdict(CachedPartition)
        self._order: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self.bytes = 0

    def partition(self, place: TopicIdPartition) -> CachedPartition | None:
        known = self._partitions.get(place)
        if known is not None:
            known.used = True
        return known

    def knows_ends(self, place: TopicIdPartition) -> bool:
        """Return whether the log start and the log end are known."""
        known = self.partition(place)
        return known is not None and known.log_end_offset >= 0 and known.log_start_offset >= 0

    def log_start_offset(self, place: TopicIdPartition) -> int:
        """The known log start; -1 if it is unknown."""
        known = self.partition(place)
        return -1 if known is None else known.log_start_offset

    def log_end_offset(self, place: TopicIdPartition) -> int:
        """The known end; -1 if it is unknown. Unlike `partition`, this does not count as a use of the partition."""
        known = self._partitions.get(place)
        return -1 if known is None else known.log_end_offset

    def forget_unused(self, interest: Container[TopicIdPartition] = ()) -> list[TopicIdPartition]:
        """Drop partitions that were not used since the last call, because queries keep each one up to date.

        Args:
            interest: partitions to keep even if they were not used.
        Returns: the dropped ones.
        """
        unused = [place for place, known in self._partitions.items() if not known.used and place not in interest]
        for place in unused:
            self.drop(place)
        for known in self._partitions.values():
            known.used = False
        return unused

    def places(self) -> list[TopicIdPartition]:
        return list(self._partitions)

    def log_ends(self, places: Iterable[TopicIdPartition] | None = None) -> dict[TopicIdPartition, int]:
        """The known ends of these partitions; None: of all. Those at 0 are left out."""
        ends = {place: self.log_end_offset(place) for place in (self._partitions if places is None else places)}
        return {place: end for place, end in ends.items() if end > 0}

    def set_ends(
        self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int, last_stable_offset: int = -1
    ) -> bool:
        """Learn a partition's ends, which never go back. Returns: whether the start or the end changed.

        `last_stable_offset`: read from the database together with the ends; -1: unknown.
        """
        known = self._partitions[place]
        before = (known.log_start_offset, known.log_end_offset)
        known.log_start_offset = max(known.log_start_offset, log_start_offset)
        known.log_end_offset = max(known.log_end_offset, log_end_offset)
        # without a snapshot: nothing below the log start can become stable later
        known.stable_offset = max(known.stable_offset, last_stable_offset, known.log_start_offset)
        known.judged_offset = max(
            known.judged_offset, log_end_offset if last_stable_offset >= 0 else known.log_start_offset
        )
        while known.batches and known.batches[0].last_offset < known.log_start_offset:
            self._remove(place, known, 0)
        return (known.log_start_offset, known.log_end_offset) != before

    def set_replacements(self, place: TopicIdPartition, replacements: int) -> None:
        """Learn the number of replacements in a partition. If it has risen, drop the batches in memory."""
        known = self._partitions[place]
        if replacements > known.replacements:
            known.replacements = replacements
            while known.batches:
                self._remove(place, known, 0)

    def replacements(self, place: TopicIdPartition) -> int:
        """The known number of replacements; 0 if the partition is unknown."""
        known = self._partitions.get(place)
        return 0 if known is None else known.replacements

    def add(self, place: TopicIdPartition, batch: RecordBatch, log_end_offset: int = -1) -> RecordBatch:
        """Keep a batch. `log_end_offset`: the log end that was learned with it; -1: none.

        Returns: the batch in memory, which all its readers share: what becomes of its transaction is noted once.
        """
        known = self._partitions[place]
        known.log_end_offset = max(known.log_end_offset, log_end_offset)
        index = bisect_right(known.bases, batch.base_offset)
        if index and known.bases[index - 1] == batch.base_offset:
            return known.batches[index - 1]
        known.bases.insert(index, batch.base_offset)
        known.batches.insert(index, batch)
        known.transactional |= batch.transaction_id is not None
        ahead = batch
        while ahead.base_offset <= known.judged_offset <= ahead.last_offset and known.judge(ahead):
            index += 1
            if index == len(known.batches):
                break
            ahead = known.batches[index]
        cost = len(batch.stored) + 4 * batch.record_count + OVERHEAD
        self._order[(*place, batch.base_offset)] = cost
        self.bytes += cost
        while self.bytes > self._max_bytes and len(self._order) > 1:
            topic_id, partition, base_offset = next(iter(self._order))
            oldest = self._partitions[topic_id, partition]
            self._remove((topic_id, partition), oldest, bisect_right(oldest.bases, base_offset) - 1)
        return batch

    def _remove(self, place: TopicIdPartition, known: CachedPartition, index: int) -> None:
        self.bytes -= self._order.pop((*place, known.bases[index]))
        del known.bases[index], known.batches[index]

    def drop(self, place: TopicIdPartition) -> None:
        known = self._partitions.pop(place, None)
        if known is not None:
            for base_offset in known.bases:
                self.bytes -= self._order.pop((*place, base_offset))

    def read_cached(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch] | None:
        place = (topic_id, partition)
        known = self._partitions.get(place)
        if known is None:
            return None
        known.used = True
        log_start_offset, log_end_offset = known.log_start_offset, known.log_end_offset
        if log_start_offset < 0 or log_end_offset < 0:
            return None
        if offset < log_start_offset:
            raise below_log_start(offset, log_start_offset)
        end_offset, stable_offset = log_end_offset, known.stable_offset
        if committed:  # without calls: a group that meets no transaction pays next to nothing
            if known.judged_offset >= log_end_offset:
                end_offset = stable_offset
            elif offset >= stable_offset:
                return None
        if offset >= end_offset:
            return ReadResult((), log_start_offset, log_end_offset, end_offset)
        batches = self.read(place, offset, max_bytes, max_records)
        if batches is None:
            return None
        if committed and (known.transactional or batches[-1].last_offset >= stable_offset):
            batches = decided_below(batches, stable_offset)
            if batches is None:
                return None
        return ReadResult(batches, log_start_offset, log_end_offset, end_offset)

    def read(
        self, place: TopicIdPartition, offset: int, max_bytes: int, max_records: int
    ) -> Sequence[RecordBatch] | None:
        """Consecutive cached batches, from the one that holds `offset`. None if that batch is not cached."""
        known = self._partitions[place]
        index = bisect_right(known.bases, offset) - 1
        if index < 0 or known.batches[index].last_offset < offset:
            return None
        found = [known.batches[index]]
        self._order.move_to_end((*place, known.bases[index]))
        size = found[0].size
        wanted = offset + max_records - 1
        while size < max_bytes and found[-1].last_offset < wanted:
            index += 1
            if index == len(known.batches) or known.bases[index] != found[-1].last_offset + 1:
                break
            found.append(known.batches[index])
            self._order.move_to_end((*place, known.bases[index]))
            size += found[-1].size
        return found


class KnownLog:
    """`cache`: ends and recent batches. `listener`: receives each change that may matter to a fetch."""

    def __init__(self, cache: BatchCache, listener: LogListener) -> None:
        self.cache = cache
        self.listener = listener

    def publish(self, appended: Sequence[tuple[TopicIdPartition, RecordBatch]]) -> None:
        """Batches of this gateway are durable: keep them, and report each partition once."""
        news: dict[TopicIdPartition, tuple[int, int]] = {}
        for place, batch in appended:
            end = batch.last_offset + 1
            self.cache.add(place, batch, end)
            news[place] = (end, batch.record_count + (news[place][1] if place in news else 0))
        for (topic_id, partition), (log_end_offset, records) in news.items():
            self.listener.appended(topic_id, partition, log_end_offset, records)

    def forget(self) -> None:
        """The log may have gone back: forget all of it, unlike `learn`, for which no end goes back."""
        for place in self.cache.places():
            self.cache.drop(place)
            self.listener.forgotten(*place)

    def learn(
        self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int, last_stable_offset: int = -1
    ) -> None:
        """Keep the offsets of a partition, as `BatchCache.set_ends` does, and report a change. -1: unknown."""
        if self.cache.set_ends(place, log_start_offset, log_end_offset, last_stable_offset):
            self.listener.changed(*place, log_start_offset, self.cache.log_end_offset(place))


def decided_below(batches: Sequence[Batch], stable_offset: int) -> Sequence[Batch] | None:
    """As `below`. None if memory does not know what became of the transaction of one of them."""
    batches = below(batches, stable_offset)
    return batches if all(map(_decided, batches)) else None


def below(batches: Sequence[Batch], stable_offset: int) -> Sequence[Batch]:
    """The batches below the last stable offset. It lies within a batch if the log start does,
    and is the log start then."""
    if not batches or batches[-1].last_offset < stable_offset:
        return batches
    return [batch for batch in batches if batch.last_offset < stable_offset]
