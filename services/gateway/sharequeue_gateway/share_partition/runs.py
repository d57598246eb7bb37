"""Runs of records in flight, and the table of their state changes. Pure. Source: KIP-932.

The window of a share-partition is a list of runs: contiguous offsets with one state, ascending, never overlapping.
Kafka keeps batches and splits one into single offsets; a run remembers the batch it was cut from, because throttled
redelivery goes by the size of the batch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.types import DeliveryState, StateAnnotation, StateBatch

AVAILABLE: Final = DeliveryState.AVAILABLE
ACQUIRED: Final = DeliveryState.ACQUIRED
ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
ARCHIVING: Final = DeliveryState.ARCHIVING
ARCHIVED: Final = DeliveryState.ARCHIVED

TERMINAL: Final = frozenset({ACKNOWLEDGED, ARCHIVED})

TRANSITIONS: Final = frozenset(
    {
        (AVAILABLE, ACQUIRED),  # a fetch
        (ACQUIRED, AVAILABLE),  # release, lock timeout
        (ACQUIRED, ACKNOWLEDGED),  # accept
        (ACQUIRED, ARCHIVING),  # reject or delivery limit, with a dead-letter queue
        (ACQUIRED, ARCHIVED),  # gap; reject or delivery limit, without one
        (ARCHIVING, ARCHIVED),  # the dead letter is written
        (AVAILABLE, ARCHIVED),  # the record left the log: compaction, retention, delete-records
    }
)

REJECTED: Final = "Offset rejected by client."
LIMIT_EXCEEDED: Final = "Offset delivery count exceeded the threshold."


class IllegalTransition(Exception):
    """A change of state that the protocol does not have: a fault of this program."""


class StateWrite:
    """What one event persists. Until `complete_write` the runs it moved are flagged and refuse any other event.

    `start_offset`: the start offset when the event happened. `runs`: those to commit or roll back.
    """

    __slots__ = ("annotations", "delivery_complete_count", "runs", "start_offset", "state_batches")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.delivery_complete_count = 0
        self.state_batches: list[StateBatch] = []
        self.annotations: list[StateAnnotation] = []
        self.runs: list[Run] = []


class Run:
    """Contiguous offsets of one state.

    `batch_first`, `batch_last`: the in-flight batch it belongs to. `lock_expires_at_ms`: while ACQUIRED, and until a
    pending transition from there is durable. `available_at_ms`: a delayed release, 0 when there is none. `write`: the
    transition in progress.
    """

    __slots__ = (
        "available_at_ms",
        "batch_first",
        "batch_last",
        "cause",
        "delivery_count",
        "first",
        "last",
        "lock_expires_at_ms",
        "member_id",
        "reason",
        "state",
        "write",
    )

    def __init__(
        self, first: int, last: int, state: DeliveryState, delivery_count: int, batch_first: int, batch_last: int
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.batch_first = batch_first
        self.batch_last = batch_last
        self.member_id: str | None = None
        self.lock_expires_at_ms = 0
        self.available_at_ms = 0
        self.reason: str | None = None
        self.cause: str | None = None
        self.write: StateWrite | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def acquirable(self) -> bool:
        return self.state is AVAILABLE and self.write is None and not self.available_at_ms

    @property
    def finished(self) -> bool:
        """Terminal, and durably so."""
        return self.state in TERMINAL and self.write is None

    @property
    def held(self) -> bool:
        """Whether its records count against the limit of record locks."""
        return self.state in (ACQUIRED, ARCHIVING) or self.write is not None or bool(self.available_at_ms)

    def become(self, state: DeliveryState) -> None:
        """Change state: the only place that does, but for a roll-back."""
        if (self.state, state) not in TRANSITIONS:
            raise IllegalTransition(f"{self.state.name} to {state.name} at {self.first}-{self.last}")
        self.state = state

    def unlock(self) -> None:
        self.member_id = None
        self.lock_expires_at_ms = 0

    def split(self, offset: int) -> "Run":
        """Cut before `offset`, which becomes the first of the returned run; both belong to the same write."""
        right = Run(offset, self.last, self.state, self.delivery_count, self.batch_first, self.batch_last)
        right.member_id = self.member_id
        right.lock_expires_at_ms = self.lock_expires_at_ms
        right.available_at_ms = self.available_at_ms
        right.reason = self.reason
        right.cause = self.cause
        right.write = self.write
        if self.write is not None:
            self.write.runs.append(right)
        self.last = offset - 1
        return right

    def persisted(self, start_offset: int) -> StateBatch | None:
        """The state batch that persists it, cut at the start offset; None if all of it lies below."""
        if self.last < start_offset:
            return None
        return StateBatch(max(self.first, start_offset), self.last, int(self.state), self.delivery_count)


class DeadLetter(NamedTuple):
    """A range that is ARCHIVING and must be written to the dead-letter queue; `reason` is what the client gave."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    reason: str | None


class RestoredLock(NamedTuple):
    """An acquisition lock as an earlier leader left it; locks may overlap and may be stale."""

    first_offset: int
    last_offset: int
    member_id: str
    delivery_count: int
    deadline_ms: int


class LeftLocks(NamedTuple):
    """What the memory of an earlier leader knew, in the life of the share-partition that the state epoch names."""

    state_epoch: int
    locks: Sequence[RestoredLock]
