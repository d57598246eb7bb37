"""One record of one group, and a write of several, as the reference model keeps them. Source: KIP-932."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sharequeue.protocol.types import AcknowledgeType, DeliveryState

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = DeliveryState
FINAL = (ACKNOWLEDGED, ARCHIVED)
REJECTED, LIMIT_EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121

Range = tuple[int, int]
Said = tuple[Any, int]
"""A reason, and when a client gave it, in whole tenths of a second."""


class Refused(Exception):
    """An acknowledgement that is refused, by Kafka's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class Record:
    """`batch`: the in-flight batch it belongs to. `write`: the change on its way. `delayed_to_ms`: 0 without a delay.
    `lock_ms`: the length of its last lock. `forgiven`: deliveries that were never begun; `unseen`: those of them that
    no client saw; `forgiving`: what `write` adds to the two. `released`: whether a worker gave it back the last time.
    `said`: why deliveries ended, by their count, where a client said so."""

    state: DeliveryState
    count: int
    batch: Range
    member: str | None = None
    lock_ends_ms: int = 0
    lock_ms: int = 0
    forgiven: int = 0
    unseen: int = 0
    forgiving: tuple[int, int] = (0, 0)
    released: bool = False
    delayed_to_ms: int = 0
    write: "Write | None" = None
    said: dict[int, Said] = field(default_factory=dict)
    cause: str | None = None

    @property
    def reason(self) -> Said | None:
        return self.said.get(self.count)

    @property
    def earlier(self) -> tuple[Said, ...]:
        return tuple(self.said[count] for count in sorted(self.said) if count < self.count)[-5:]

    @property
    def attempt(self) -> int:
        return self.count - self.forgiven

    @property
    def takeable(self) -> bool:
        return self.state is AVAILABLE and self.write is None and not self.delayed_to_ms

    @property
    def finished(self) -> bool:
        return self.state in FINAL and self.write is None

    @property
    def held(self) -> bool:
        return self.state in (ACQUIRED, ARCHIVING) or self.write is not None


@dataclass(frozen=True)
class Settlement:
    """One acknowledgement of first..last: a type for all or for each; options as the client gave them."""

    first: int
    last: int
    types: Sequence[AcknowledgeType]
    count: int | None
    reason: str | None
    delay_ms: int | None
    lock_ms: int | None
    begun: bool = True
    seen: bool = True


@dataclass(eq=False)
class Write:
    """A write to the share coordinator. `moved`: offsets that wait for its outcome; none when it is best effort."""

    start: int = 0
    finished: int = 0
    batches: dict[int, tuple[int, DeliveryState]] = field(default_factory=dict)
    notes: dict[int, tuple[int | None, Said | None, int]] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)


DeadLetters = dict[int, tuple[int, str | None, Said | None, tuple[Said, ...]]]
