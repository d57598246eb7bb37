"""What the two sides have in common: what they are asked to do, and what they answer."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tests.kafka.scripts import Level


class Batch(NamedTuple):
    """Offsets that a fetch has acquired, both inclusive, and the records among them."""

    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    records: dict[int, str]


class Settled(NamedTuple):
    """How a member settles each offset from `first_offset` on: `accept`, `release`, `reject`,
    or `gap` without a record."""

    partition: int
    first_offset: int
    types: tuple[str, ...]
    delivery_count: int


class Ends(NamedTuple):
    """Of each partition."""

    log_end: list[int]
    last_stable: list[int]


class GroupOffsets(NamedTuple):
    """Of a group in one partition, as an operator reads it."""

    start_offset: int
    lag: int


class Side(Protocol):
    """Kafka or sharequeue, as one player uses it. Every script has a topic and groups of its own."""

    name: str

    def close(self) -> None: ...
    def begin_script(self, name: str, partitions: int) -> None:
        """Make the topic of this name."""

    def start(self, group: str, reset: str) -> None:
        """Make a group, which begins where `share.auto.offset.reset` says."""

    def grow(self, partitions: int) -> None:
        """Have the topic have so many partitions."""

    def remake(self, partitions: int) -> None:
        """Delete the topic, and make another one of its name."""

    def settle_late(self, group: str, member: int, settled: Sequence[Settled]) -> set[int]:
        """Accept records of the topic that is gone. Returns: the error codes."""

    def begin(self, producer: str) -> None: ...
    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        """Returns: the offset of the first."""

    def end(self, producer: str, commit: bool) -> None:
        """Returns when the marker is in each partition of the transaction."""

    def replace(self, producer: str) -> None: ...
    def set_level(self, group: str, level: Level) -> None: ...
    def set_lock(self, group: str, lock_ms: int) -> None:
        """Set how long the group's next locks last."""

    def restart(self) -> None:
        """Crash, and come back, with the sides of all other players. Only of sides that read the same topic."""

    def delete(self, partition: int, before_offset: int) -> None: ...
    def fetch(self, group: str, member: int, max_records: int, record_limit: bool, wait_ms: int) -> Sequence[Batch]: ...
    def acknowledge(self, group: str, member: int, settled: Sequence[Settled]) -> None: ...
    def leave(self, group: str, member: int) -> None: ...
    def ends(self) -> Ends: ...
    def offsets(self, group: str) -> list[GroupOffsets]: ...


class Sides(NamedTuple):
    """Kafka and sharequeue, as one player calls them."""

    kafka: Side
    sharequeue: Side

    def close(self) -> None:
        for side in self:
            side.close()
