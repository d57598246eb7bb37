"""Recent record batches in memory, bounded in bytes over all partitions, and the known ends of each partition."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Container, Sequence

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.log import ReadResult, below_log_start
from sharequeue_gateway.record_log.record_batch import RecordBatch

OVERHEAD = 400
"""The memory of a batch besides its records, in bytes: objects, the header of positions, index entries."""


class CachedPartition:
    """One partition's known ends (−1 = not known) and cached batches, ascending."""

    __slots__ = ("bases", "batches", "log_end_offset", "log_start_offset", "replacements", "used")

    def __init__(self) -> None:
        self.log_start_offset = -1
        self.log_end_offset = -1
        self.replacements = 0
        """The last known number of replacements. Batches in memory are not older than it."""
        self.bases: list[int] = []
        self.batches: list[RecordBatch] = []
        self.used = True
        """Whether the partition was used since the last `forget_unused`."""

    @property
    def known(self) -> bool:
        return self.log_end_offset >= 0


class BatchCache:
    """Record batches of all partitions. The least recently used ones are evicted first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partitions: dict[TopicIdPartition, CachedPartition] = {}
        self._order: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self.bytes = 0

    def partition(self, place: TopicIdPartition) -> CachedPartition | None:
        known = self._partitions.get(place)
        if known is not None:
            known.used = True
        return known

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

    def set_ends(self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int) -> bool:
        """Learn a partition's ends, which never go back. Returns: whether they changed."""
        known = self._partitions.get(place)
        if known is None:
            known = self._partitions[place] = CachedPartition()
        before = (known.log_start_offset, known.log_end_offset)
        known.log_start_offset = max(known.log_start_offset, log_start_offset)
        known.log_end_offset = max(known.log_end_offset, log_end_offset)
        while known.batches and known.batches[0].last_offset < known.log_start_offset:
            self._remove(place, known, 0)
        return (known.log_start_offset, known.log_end_offset) != before

    def set_replacements(self, place: TopicIdPartition, replacements: int) -> None:
        """Learn the number of replacements in a partition. If it has risen, drop the batches in memory."""
        known = self._partitions.get(place)
        if known is None:
            known = self._partitions[place] = CachedPartition()
        if replacements > known.replacements:
            known.replacements = replacements
            while known.batches:
                self._remove(place, known, 0)

    def replacements(self, place: TopicIdPartition) -> int:
        """The known number of replacements; 0 if the partition is unknown."""
        known = self._partitions.get(place)
        return 0 if known is None else known.replacements

    def add(self, place: TopicIdPartition, batch: RecordBatch, log_end_offset: int = -1) -> None:
        """Keep a batch. `log_end_offset`: the log end that was learned with it; -1: none."""
        known = self._partitions.get(place)
        if known is None:
            known = self._partitions[place] = CachedPartition()
        known.log_end_offset = max(known.log_end_offset, log_end_offset)
        index = bisect_right(known.bases, batch.base_offset)
        if index and known.bases[index - 1] == batch.base_offset:
            return
        known.bases.insert(index, batch.base_offset)
        known.batches.insert(index, batch)
        cost = len(batch.stored) + 4 * batch.record_count + OVERHEAD
        self._order[(*place, batch.base_offset)] = cost
        self.bytes += cost
        while self.bytes > self._max_bytes and len(self._order) > 1:
            topic_id, partition, base_offset = next(iter(self._order))
            oldest = self._partitions[topic_id, partition]
            self._remove((topic_id, partition), oldest, bisect_right(oldest.bases, base_offset) - 1)

    def _remove(self, place: TopicIdPartition, known: CachedPartition, index: int) -> None:
        self.bytes -= self._order.pop((*place, known.bases[index]))
        del known.bases[index], known.batches[index]

    def drop(self, place: TopicIdPartition) -> None:
        known = self._partitions.pop(place, None)
        if known is not None:
            for base_offset in known.bases:
                self.bytes -= self._order.pop((*place, base_offset))

    def read_cached(
        self,
        topic_id: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
        committed: bool = False,
    ) -> ReadResult | None:
        """See `RecordLog.read_cached`."""
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
        if offset >= log_end_offset:
            return ReadResult((), log_start_offset, log_end_offset, log_end_offset)
        batches = self.read(place, offset, max_bytes, max_records)
        if batches is None:
            return None
        return ReadResult(batches, log_start_offset, log_end_offset, log_end_offset)

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
