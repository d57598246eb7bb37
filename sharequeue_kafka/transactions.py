"""Appends in Kafka transactions: a few transactional ids, each gathers the calls that wait into one transaction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.producing import NewRecord


class Slot(NamedTuple):
    """A transactional id in one of its lives. A later life (a greater epoch, or another producer id) fences it."""

    transactional_id: str
    producer_id: int
    epoch: int


async def fence(cluster: KafkaCluster, transactional_id: str) -> Slot:
    """End the transaction of a transactional id and all its producers, and answer the new life.

    When it returns, an open transaction is aborted and one that was about to commit is committed, markers written.
    """
    raise NotImplementedError


class TransactionalSlots:
    """Append with transactional ids of this process's own."""

    def __init__(
        self, cluster: KafkaCluster, ids: Sequence[str], compression: str = "lz4", timeout_ms: int = 30_000
    ) -> None:
        self._cluster = cluster

    async def take(self) -> Slot:
        """Answer the slot with the fewest waiting calls, for an intent. It is fenced once when it is first used."""
        raise NotImplementedError

    async def append(self, slot: Slot, parts: Mapping[Place, Sequence[NewRecord]]) -> dict[Place, int]:
        """Append to all places in one transaction and commit; answers the first offset of each.

        Raises: KafkaError; definite when the slot's life is over before it began, or the transaction was aborted.
        """
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
