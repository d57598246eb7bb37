"""The part of the log that a gateway has in memory. Reports changes to the listener."""

from collections.abc import Sequence

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.log import LogListener
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.record_batch import RecordBatch


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

    def publish_markers(self, markers: Sequence[tuple[TopicIdPartition, RecordBatch]]) -> None:
        """As `publish`, for markers, of which each partition has one."""
        for place, marker in markers:
            end = marker.last_offset + 1
            self.cache.add(place, marker, end)
            self.listener.appended(*place, end, 0)

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

    def learn_before_append(
        self, place: TopicIdPartition, log_start_offset: int, log_end_offset: int, last_stable_offset: int
    ) -> None:
        """Keep the offsets that an append found. If it fails, only this reports the earlier appends of other gateways.

        If the end of the partition was unknown, no fetch waits for the partition, and nothing is reported.
        """
        known = self.cache.partition(place)
        if known is not None and known.known:
            self.learn(place, log_start_offset, log_end_offset, last_stable_offset)
        else:
            self.cache.set_ends(place, log_start_offset, log_end_offset, last_stable_offset)
