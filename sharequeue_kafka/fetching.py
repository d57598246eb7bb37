"""Reads by offset: the calls of a moment that go to one broker are one Fetch."""

from typing import NamedTuple

from sharequeue_kafka.cluster import KafkaCluster, Place


class FetchedPart(NamedTuple):
    """What a broker answers for one partition.

    Attributes:
        batches: raw record batches, for `batches.records_of`; the first may begin below the offset, the last may be cut.
        aborted: (producer id, first offset) of aborted transactions, when the read was `committed`.
        diverging: (epoch, end offset) where this log parts from the reader's history, or None. Then nothing is read.
    """

    place: Place
    batches: bytes
    log_start: int
    high_watermark: int
    last_stable: int
    aborted: tuple[tuple[int, int], ...]
    diverging: tuple[int, int] | None = None


class Fetching:
    """Read from the leaders of a cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    async def fetch(
        self,
        place: Place,
        offset: int,
        max_bytes: int,
        committed: bool,
        current_leader_epoch: int = -1,
        last_epoch: int = -1,
    ) -> FetchedPart:
        """Read from an offset, without waiting for records. At least one whole batch is read if there is one.

        Args:
            last_epoch: leader epoch of the record before `offset`; the broker then says where the logs part (KIP-320).
        Raises: KafkaError; OFFSET_OUT_OF_RANGE and UNKNOWN_TOPIC_ID go to the caller at once.
        """
        raise NotImplementedError
