"""The words of the record log: `RecordLog`, what every log does; `Appends`; `LogListener`, which gets reports; types.

    reads     `read`, `read_cached`, `read_deleted`; `read_packed`: batches as they are stored
    ends      `offsets`, `look`, `learn_ends`, `hear_of`, `known_log_start`, `offset_for_timestamp`
    trims     `delete_records`, `delete_topic`, `apply_retention`
    repairs   `with_records`, `end_above`                after a store went back
    appends   `Appends.append`                           to several partitions at once, with an idempotency key

`parts.Log` adds the parts beside it: readers, dead letters, scheduled records. What a log may lack has a name in
`sharequeue.protocol.capabilities`. A log passes `tests/storage/record_log_suite.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.types import MAX_INT32, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.retention_rule import RetentionRule
from sharequeue_gateway.record_log.stored_batch import PackedBatch, StoredBatch
from sharequeue_http.forms.errors import ApiError

MOST_PARTITIONS: Final = 1000
"""The most partitions of one append. Each is locked until its commit, and PostgreSQL has room for some thousand
locks."""


CLOSED: Final = MAX_INT32
"""In place of the state epoch, in the keys by which dead letters are closed."""


class OffsetOutOfRange(ApiError):
    """The offset lies outside the log; `log_start_offset` is where the log begins."""

    error = BY_CODE["OFFSET_OUT_OF_RANGE"]

    def __init__(self, detail: str, log_start_offset: int) -> None:
        super().__init__(detail)
        self.log_start_offset = log_start_offset


def below_log_start(offset: int, log_start_offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(f"offset {offset} is below the log start {log_start_offset}", log_start_offset)


class PartitionAppend(msgspec.Struct, frozen=True):
    """The records of one produce request for one partition. They become one record batch.

    `tails`: each record as JSON without its offset, `,"timestamp_ms":1,"key":null,"value":1}`. Once the batch is made,
    the tails of large records become memoryviews of it.
    `for_group`: the only share group that receives the records.
    `transaction_id`: the transaction that the records belong to.
    `plain`: each record has a JSON value, no key and no headers, and the time `max_timestamp_ms`.
    """

    topic_id: str
    partition: int
    tails: list[bytes]
    max_timestamp_ms: int
    for_group: str | None = None
    transaction_id: str | None = None
    plain: bool = False


class IdempotencyKey(NamedTuple):
    """Names a produce request: a repeat gets the first answer.

    `caller`: the principal; empty: it has none. A key that was used without one is any caller's, so that a producer
    which begins to send an access key appends nothing twice.
    `fingerprint`: SHA-256 of the request. `answer`: makes the answer from the base offsets; it is stored with the key.
    `lasting`: the key is known for 7 days, otherwise for 24 hours.
    `plain`: the answer is a ProduceResponse of one append, so another gateway can make it too.
    """

    caller: str
    path: str
    topic_id: str
    key: str
    fingerprint: bytes
    answer: Callable[[Sequence[int]], bytes]
    lasting: bool = False
    plain: bool = False


class AppendResult(msgspec.Struct, frozen=True):
    """`answer`: the answer that is stored with the idempotency key, if there is a key.

    `repeated`: an earlier request with the key appended the records, and this one nothing.
    `node`: the other gateway that appended them, a `cluster.generation.Node`.
    """

    base_offsets: Sequence[int]
    answer: bytes | None
    repeated: bool = False
    node: Any = None


Batch = TypeVar("Batch", bound=StoredBatch)
Cut = tuple[Batch, int, int]
"""A part of a batch: from its first to its last offset."""


class ReadResult(msgspec.Struct, Generic[Batch], frozen=True):
    """Whole batches, from the one that holds the offset; none at the end.

    `end_offset`: the reader has nothing to expect from there on until the log end moves. Without transactions it is the
    log end.
    """

    batches: Sequence[Batch]
    log_start_offset: int
    log_end_offset: int
    end_offset: int


class Offsets(NamedTuple):
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int


class DeadLetterKey(NamedTuple):
    """The identity of a dead letter. It is the same after a crash."""

    source: SharePartitionKey
    state_epoch: int
    offset: int
    delivery_count: int


class DeadLetterRow(NamedTuple):
    """One dead letter: the place of its record, and the record to write (as in PartitionAppend.tails)."""

    source: SharePartitionKey
    state_epoch: int
    offset: int
    delivery_count: int
    tail: bytes
    timestamp_ms: int
    cause: str
    copied: bool = True
    """Whether it holds what redriving needs. If not, cleaning keeps its record in the log."""

    @property
    def key(self) -> "DeadLetterKey":
        return DeadLetterKey(self.source, self.state_epoch, self.offset, self.delivery_count)


class LetterOutcome(NamedTuple):
    """The end of a dead letter: redriven as the record at `redriven_to` (topic id, partition, offset), finished in
    its topic by `consumer_group`, or dropped."""

    closed_at_ms: int
    consumer_group: str | None
    redriven_to: tuple[str, int, int] | None


class Parked(NamedTuple):
    """The number of dead letters that are parked, and the cause of the last one."""

    records: int
    cause: str


class ParkedDeadLetter(NamedTuple):
    """A dead letter that its topic refused; `tail` as in DeadLetterRow."""

    source: SharePartitionKey
    offset: int
    delivery_count: int
    tail: bytes


class LogListener(Protocol):
    """Receives the changes of a record log. Each method is called on the event loop and must return at once."""

    def appended(self, topic_id: str, partition: int, log_end_offset: int, records: int) -> None:
        """Records that this gateway appended are durable."""

    def changed(self, topic_id: str, partition: int, log_start_offset: int, log_end_offset: int) -> None:
        """Another gateway appended, or the log start moved. `log_start_offset`: -1: it is unknown, or did not move."""

    def forgotten(self, topic_id: str, partition: int) -> None:
        """The log end is not followed any more: later changes may not be reported."""


class Removed(NamedTuple):
    """A log start that moved. `unfinished`: by group, how many of the removed offsets it had not finished."""

    partition: int
    log_start_offset: int
    log_end_offset: int
    unfinished: Mapping[str, int]


class Appends(Protocol):
    """Appends records."""

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        """Append to all the partitions or to none; the records are durable when it returns.

        Returns: the base offset of each append.
        Raises: UnknownTopicOrPartition: the topic is deleted; InvalidRequest (422): the key belongs to another request;
            StorageError; RequestTimedOut: the records may have been appended.
        """


class RecordLog(Protocol):
    """Partitions of records. Each coroutine may raise StorageError."""

    # Reads

    def read_cached(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch] | None:
        """As `read`, from memory alone; None if the batch is not in memory. Raises: OffsetOutOfRange."""

    async def read(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch]:
        """Batches from the one that holds `offset` (or the next one) until the limits are met; at least one.

        `committed`: end at the last stable offset. Raises: OffsetOutOfRange: `offset` lies below the log start.
        """

    async def read_deleted(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> Sequence[RecordBatch]:
        """As `read`, also below the log start, as long as the purge has not removed the batches."""

    async def read_packed(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int, committed: bool = False
    ) -> ReadResult[RecordBatch | PackedBatch]:
        """As `read`, and puts nothing into memory. Compressed batches within the limits may stay compressed."""

    # Ends

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]:
        """The bounds of partitions, read from the store."""

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        """Learn the ends of partitions together, so that `read` asks for none of them."""

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        """Learn the ends of partitions, with every append at any gateway before this call."""

    def known_log_start(self, place: TopicIdPartition) -> int:
        """The log start that memory has; -1: unknown."""

    def hear_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Another gateway reports the log end after its append."""

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with a timestamp at or after `timestamp_ms`, or None."""

    # Trims

    async def delete_records(self, topic_id: str, before: Mapping[int, int]) -> dict[int, int]:
        """Move log starts of a topic up. After a failure some may have moved.

        `before`: partitions, each with its new log start (-1: the end).
        Returns: the log start of each partition. Raises: OffsetOutOfRange.
        """

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        """Refuse further appends and remove all records. A repeat succeeds."""

    async def apply_retention(
        self, topic_id: str, partitions: Sequence[int], rule: RetentionRule, now_ms: int
    ) -> list[Removed]:
        """Have the log starts of these partitions be where retention wants them. Returns: those that moved."""

    @property
    def trouble(self) -> str:
        """Say what keeps a store of the log from answering; "" if nothing is known."""

    # Repairs

    @property
    def ever_skipped(self) -> bool:
        """Return whether the log has offsets that were skipped because it went back."""

    async def with_records(self, place: TopicIdPartition, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Return which of these ranges of offsets of a partition have a record."""

    async def end_above(self, ends: Mapping[TopicIdPartition, int]) -> None:
        """Groups or locks name offsets below these, which the log does not have: it never gives them again."""
