"""Runs of records in flight, and the table of their state changes. Pure. Source: KIP-932.

The window of a share-partition is a list of runs: contiguous offsets with one state, ascending, never overlapping.
Kafka keeps batches and splits a batch into single offsets. A run remembers the batch it was cut from, because throttled
redelivery depends on the size of that batch.

                  fetch                      accept
    AVAILABLE ─────────────▶ ACQUIRED ─────────────────────▶ ACKNOWLEDGED
     │      ▲                 │  │  │
     │      └─────────────────┘  │  │ gap; reject or the delivery limit
     │       release, timeout    │  └──────────────────────▶ ARCHIVED
     │                           │ with a dead-letter queue   ▲   ▲
     │                           └──────────▶ ARCHIVING ──────┘   │
     └────────────────────────────────────────────────────────────┘
       the record left the log               its dead letter is written

While the write of a change is under way the run is flagged (`Run.write`) and its state may only go back to ACQUIRED.
`Run.become` is the one place that changes a state.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, structs

from sharequeue.protocol.state import Given, Note, StateBatch, StateBatches
from sharequeue.protocol.types import DeliveryState, GivenReason, OffsetRange

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

ROLL_BACKS: Final = frozenset((state, ACQUIRED) for state in DeliveryState if state is not ACQUIRED)
"""The changes of state while a write is under way: it was refused, so its records are held again."""

REJECTED: Final = "Offset rejected by client."
LIMIT_EXCEEDED: Final = "Offset delivery count exceeded the threshold."


NOT_FORGIVEN: Final = 0
FORGIVEN: Final = 1
UNSEEN: Final = 2
"""What a release that is being written adds to `Run.forgiven`: nothing, or a delivery, which no client ever saw or one
that a client gave back before it began."""


class LogBatch(Protocol):
    """The first and last offset and the newest time of a record batch that was read from the log."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class IllegalTransition(Exception):
    """A change of state that the table does not have: a fault of this program."""


class StateWrite:
    """The state to persist after one event. Until `complete_write`, the changed runs are flagged and refuse other
    events.

    `start_offset`, `at_ms`: the start offset and the time of the event. `runs`: those to commit or roll back.
    """

    __slots__ = ("at_ms", "delivery_complete_count", "removed_unread", "runs", "start_offset", "state")

    def __init__(self, start_offset: int, at_ms: int) -> None:
        self.start_offset = start_offset
        self.at_ms = at_ms
        self.delivery_complete_count = 0
        self.removed_unread = 0
        self.state = StateBatches()
        self.runs: list[Run] = []

    def fill(self, runs: Sequence["Run"], delivery_complete_count: int) -> None:
        """Set the content of the write: the states of `runs`, cut at the start offset, with reasons, delays and
        what is forgiven."""
        self.delivery_complete_count = delivery_complete_count
        batches, texts = list[StateBatch](), dict[str, int]()
        for run in runs:
            if run.last < self.start_offset:
                continue
            first = max(run.first, self.start_offset)
            forgiven = 0 if run.state in TERMINAL else run.forgiven
            note = given = None
            if run.reason is not None or run.available_at_ms or forgiven:
                if run.reason is not None:
                    given = Given(texts.setdefault(str(run.reason.reason), len(texts)), run.reason.at_ms)
                note = Note(run.available_at_ms, given, forgiven)
            batches.append(StateBatch(first, run.last, int(run.state), run.delivery_count, note))
        self.state = StateBatches(batches, list(texts))


class Hold(StateWrite):
    """A write after which records are pending on a transaction. They stay flagged until it has ended.

    `ranges`: the offsets of these records. It has no `runs`, because it lives for longer than a write: see Run.
    `durable`: the write is. `at_ms`: when this leader has first seen them pending.
    """

    __slots__ = ("durable", "ranges", "transaction_id")

    def __init__(self, start_offset: int, transaction_id: str, at_ms: int, *, durable: bool = False) -> None:
        super().__init__(start_offset, at_ms)
        self.transaction_id = transaction_id
        self.durable = durable
        self.ranges: list[OffsetRange] = []

    def add(self, run: "Run") -> None:
        """Flag a run, and have the state say that it is pending: with the delivery before this one."""
        run.write = self
        self.ranges.append(OffsetRange(run.first, run.last))
        if not self.durable:
            note = Note(forgiven=run.forgiven, transaction_id=self.transaction_id)
            self.state.batches.append(StateBatch(run.first, run.last, int(AVAILABLE), run.delivery_count - 1, note))


class DecidedWrite(StateWrite):
    """A write of what a transaction decided. It is never rolled back: if it is refused, the share-partition is loaded
    again, and decided again."""

    __slots__ = ()


class Run(Struct, gc=False, eq=False):
    """Contiguous offsets of one state.

    `batch_first`, `batch_last`: its in-flight batch. `lock_expires_at_ms`: valid while ACQUIRED, and until a change
    from ACQUIRED is durable. `lock_duration_ms`: the length of that lock, which a renewal starts again, so a lock of
    one fetch may be longer than those of its group. `forgiven`: how many of its deliveries were never begun, so that
    `attempt` is what limits go by; `unseen`: those of them that no client ever saw; `forgiving`: what the write under
    way adds to both. `released`: whether the last delivery that was begun ended by a release. `durable`: whether a
    durable write has its delivery count, so that the next leader knows it without a lock. `available_at_ms`: the end of
    the delay of a release, 0 without a delay. `reason`: why its last delivery ended, if a client said so; `earlier`:
    the reasons of deliveries before that one, the oldest first. `write`: the write that makes its last change of state
    durable, while it is under way.

    The garbage collector does not look at runs: a gateway may have 500,000, and a pass over them would stop the event
    loop for longer than all other work. So the cycle of a run and its write is broken by hand: the code that ends a
    write empties its `runs`.
    """

    first: int
    last: int
    state: DeliveryState
    delivery_count: int
    batch_first: int = 0
    batch_last: int = 0
    durable: bool = False
    forgiven: int = 0
    unseen: int = 0
    forgiving: int = NOT_FORGIVEN
    released: bool = False
    member_id: str | None = None
    lock_expires_at_ms: int = 0
    lock_duration_ms: int = 0
    available_at_ms: int = 0
    reason: GivenReason | None = None
    earlier: tuple[GivenReason, ...] = ()
    cause: str | None = None
    write: StateWrite | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def attempt(self) -> int:
        """Return how many of its deliveries count: for the limit, for throttled redelivery and for the backoff."""
        return self.delivery_count - self.forgiven

    @property
    def acquirable(self) -> bool:
        return self.state is AVAILABLE and self.write is None and not self.available_at_ms

    @property
    def finished(self) -> bool:
        """Return whether its state is terminal and durable."""
        return self.state in TERMINAL and self.write is None

    @property
    def held(self) -> bool:
        """Return whether its records count against the limit of record locks."""
        return self.state in (ACQUIRED, ARCHIVING) or self.write is not None

    def become(self, state: DeliveryState) -> None:
        """Change state. Raises: IllegalTransition."""
        if (self.state, state) not in (TRANSITIONS if self.write is None else ROLL_BACKS):
            raise IllegalTransition(f"{self.state.name} to {state.name} at {self.first}-{self.last}")
        self.state = state

    def unlock(self) -> None:
        self.member_id = None
        self.lock_expires_at_ms = 0

    def split(self, offset: int) -> "Run":
        """Cut before `offset`. Returns: the new run, which begins at `offset`. Both runs belong to the same write."""
        right = structs.replace(self, first=offset)
        if self.write is not None and not isinstance(self.write, Hold):
            self.write.runs.append(right)
        self.last = offset - 1 if offset - 1 > self.first else self.first  # a single record has one number in memory
        return right


class DeadLetter(NamedTuple):
    """A range that is ARCHIVING and must be written to the dead-letter queue. `reason`: given by the client, if any;
    `earlier`: the reasons of deliveries before the last one, the oldest first."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    reason: GivenReason | None
    earlier: tuple[GivenReason, ...] = ()
