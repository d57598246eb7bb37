"""Appends without a key: idempotent, acknowledged by all replicas in sync, gathered by partition and broker."""

from collections.abc import Sequence
from typing import NamedTuple

from sharequeue_kafka.cluster import KafkaCluster, Place


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


class IdempotentProducer:
    """Append to the leaders. An error says whether it is definite; an append without an answer ends its producer id, and
    the appends behind it go on with another."""

    def __init__(self, cluster: KafkaCluster, compression: str = "lz4", timeout_ms: int = 30_000) -> None:
        self._cluster = cluster

    async def append(self, place: Place, records: Sequence[NewRecord]) -> int:
        """Append records together, in order; answers the offset of the first.

        Raises: KafkaError; with `definite` nothing was written.
        """
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
