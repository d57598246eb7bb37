"""A cluster of Kafka as an administrator sees it: topics, their settings and partitions, and the ends of logs."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from sharequeue_kafka.settings import KafkaSettings


class Place(NamedTuple):
    """One partition. `topic_id` is the canonical text of a uuid (8-4-4-4-12); `kafka_id` writes it as Kafka prints it."""

    topic_id: str
    partition: int


class KafkaPartition(NamedTuple):
    partition: int
    leader: int  # -1: none at present
    leader_epoch: int


class KafkaTopic(NamedTuple):
    name: str
    id: str  # canonical text of a uuid
    internal: bool
    partitions: tuple[KafkaPartition, ...]  # ascending


class LogOffset(NamedTuple):
    """An end of a log, or the first record at or after a time: offset -1 when there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


Which = Literal["earliest", "latest"]


class KafkaCluster:
    """Answer for one cluster. Each call raises `KafkaError`; it tries again while the error is retriable, up to the
    settings' `request_timeout_ms`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings

    async def start(self) -> None:
        """Reach a broker and learn the others. Raises: KafkaError when none answers."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def topics(self, names: Sequence[str] | None = None) -> list[KafkaTopic]:
        """Ask for topics by name (absent ones are left out), or for all."""
        raise NotImplementedError

    async def topic(self, topic_id: str) -> KafkaTopic | None:
        """Find a topic by its id, in what was learned or by asking; None when the cluster has none."""
        raise NotImplementedError

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> KafkaTopic:
        """Create a topic and wait until its partitions have leaders. Raises: KafkaError TOPIC_ALREADY_EXISTS, ..."""
        raise NotImplementedError

    async def delete_topic(self, topic_id: str) -> None:
        raise NotImplementedError

    async def add_partitions(self, name: str, total: int) -> None:
        raise NotImplementedError

    async def describe_configs(self, name: str) -> dict[str, tuple[str | None, bool]]:
        """Answer each setting of a topic: its value, and whether it is a default."""
        raise NotImplementedError

    async def incremental_alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set what `changes` names; None takes a setting back to its default."""
        raise NotImplementedError

    async def list_offsets(
        self, places: Sequence[Place], which: Which | int, committed: bool = False
    ) -> dict[Place, LogOffset | KafkaError]:
        """Find the earliest or latest offset, or (an int) the first record at or after a time in ms.

        With `committed`, latest is the last stable offset.
        """
        raise NotImplementedError

    async def delete_records(self, before: Mapping[Place, int]) -> dict[Place, int | KafkaError]:
        """Remove the records below an offset (-1: all); answers the new log starts."""
        raise NotImplementedError

    async def end_of_epoch(self, place: Place, epoch: int) -> tuple[int, int]:
        """Answer (the largest leader epoch that is not above `epoch`, where its records end); (-1, -1): unknown."""
        raise NotImplementedError
