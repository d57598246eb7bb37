"""The interfaces of the record log: `Appends`, `RecordLog`, `DeadLetterLog`; and `LogListener`, which gets its reports.

`postgres.PostgresRecordLog` is the one implementation. Each implementation passes `tests/storage/record_log_suite.py`,
where `atomic_produce` and `idempotency_keys` are named capabilities.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from sharequeue.protocol.errors import BY_CODE, ApiError
from sharequeue.protocol.types import OffsetRange, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.retention_rule import RetentionRule
from sharequeue_gateway.record_log.stored_batch import PackedBatch, StoredBatch

MOST_PARTITIONS: Final = 1000
"""The most partitions of one append. Each is locked until its commit, and PostgreSQL has room for some thousand
locks."""


SOURCE_HEADER: Final = "__dlq.source.header."
"""Before the names of the source record's headers, in the headers of its dead letter."""


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
    """

    topic_id: str
    partition: int
    tails: list[bytes]
    max_timestamp_ms: int
    for_group: str | None = None
    transaction_id: str | None = None


class IdempotencyKey(NamedTuple):
    """Names a produce request: a repeat gets the first answer.

    `fingerprint`: SHA-256 of the request. `answer`: makes the answer from the base offsets; it is stored with the key.
    `lasting`: the key is known for 7 days, otherwise for 24 hours. A repeat must have the same value.
    """

    caller: str
    path: str
    topic_id: str
    key: str
    fingerprint: bytes
    answer: Callable[[Sequence[int]], bytes]
    lasting: bool = False


class AppendResult(msgspec.Struct, frozen=True):
    """`answer`: the answer that is stored with the idempotency key, if there is a key.

    `repeated`: an earlier request with the key appended the records, and this one nothing.
    """

    base_offsets: Sequence[int]
    answer: bytes | None
    repeated: bool = False


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


class Parked(NamedTuple):
    """How many dead letters are parked, and the cause of the last one."""

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

    def changed(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Another gateway appended, or the log start moved."""

    def forgotten(self, topic_id: str, partition: int) -> None:
        """The log end is not followed any more: later changes may not be reported."""


class Appends(Protocol):
    """Appends to the log."""

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        """Append to all the partitions or to none; the records are durable when it returns.

        Returns: the base offset of each append.
        Raises: UnknownTopicOrPartition: the topic is deleted; InvalidRequest (422): the key belongs to another request;
            StorageError; RequestTimedOut: the records may have been appended.
        """


class Removed(NamedTuple):
    """A log start that moved. `unfinished`: by group, how many of the removed offsets it had not finished."""

    partition: int
    log_start_offset: int
    log_end_offset: int
    unfinished: Mapping[str, int]


class RecordLog(Protocol):
    """Reads and trims partitions. Each coroutine may raise StorageError."""

    def read_cached(
        self,
        topic_id: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
        committed: bool = False,
    ) -> ReadResult[RecordBatch] | None:
        """As `read`, from memory alone; None if the batch is not in memory. Raises: OffsetOutOfRange."""

    async def read(
        self,
        topic_id: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
        committed: bool = False,
    ) -> ReadResult[RecordBatch]:
        """Batches from the one that holds `offset` (or the next one) until the limits are met; at least one.

        `committed`: end at the last stable offset.

        Raises: OffsetOutOfRange: `offset` lies below the log start.
        """

    async def read_packed(
        self,
        topic_id: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
        committed: bool = False,
    ) -> ReadResult[RecordBatch | PackedBatch]:
        """As `read`. Compressed batches that lie within the limits as a whole stay compressed."""

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]:
        """The bounds of partitions, read from the database."""

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        """Learn the ends of partitions with one query, so that `read` makes none for each empty partition."""

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        """Learn the ends of partitions, with every append at any gateway before this call. Calls share queries."""

    def hear_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Another gateway reports the log end after its append."""

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with a timestamp at or after `timestamp_ms`, or None."""

    async def delete_records(self, topic_id: str, before: Mapping[int, int]) -> dict[int, int]:
        """Move log starts of a topic up, a bounded number in one transaction. After a failure some may have moved.

        Args:
            before: partitions, each with its new log start (-1: the end).
        Returns: the log start of each partition.
        Raises: OffsetOutOfRange.
        """

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        """Refuse further appends and remove all records. A repeat succeeds."""

    async def apply_retention(
        self, topic_id: str, partitions: Sequence[int], rule: RetentionRule, now_ms: int
    ) -> list[Removed]:
        """Move log starts of these partitions up until the rule holds. Returns: those that moved."""


class DeadLetterLog(Protocol):
    """Dead letters. A repeated write adds no second copy. Each method may raise StorageError."""

    async def append(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        """Append dead letters to their topic, or redriven ones to the topic of their record.

        Args:
            leader_epoch: of the writer, whose rows are all of one share-partition. It fences earlier leaders. None: the
                rows are redriven, and parked ones are removed from the parking table.
            for_group: as in PartitionAppend.
        Returns: how many were new.
        Raises: NotLeaderOrFollower: a later leader has written dead letters, so none is appended;
        UnknownTopicOrPartition.
        """

    async def written(self, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
        """Those of the keys whose dead letters were appended before."""

    async def forget(self, source: SharePartitionKey, state_epoch: int, ranges: Sequence[OffsetRange]) -> None:
        """The records of these ranges stay ARCHIVED: remove the keys of their dead letters, those of earlier epochs
        too."""

    async def park(self, rows: Sequence[DeadLetterRow], leader_epoch: int) -> None:
        """Keep dead letters of one share-partition that their topic refuses, each once. Raises: NotLeaderOrFollower."""

    async def parked_counts(self, group_id: str) -> Mapping[TopicIdPartition, Parked]:
        """How many dead letters of a group are parked, by the partition of their records."""

    async def parked(self, group_id: str, limit: int, after: ParkedDeadLetter | None) -> Sequence[ParkedDeadLetter]:
        """The parked dead letters of a group, in order. `after`: begin behind this one."""

    async def open_counts(self, group_id: str) -> Mapping[TopicIdPartition, int]:
        """How many dead letters of a group were neither redriven nor removed, by the partition of their records."""
