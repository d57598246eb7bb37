"""The record log: append, read, offsets, watch. A partition is a sequence of record batches, one per produce request.

`RecordLog` is what the gateway asks of a log; `postgres.PostgresRecordLog` is the one there is. Whatever implements it
passes `tests/storage/record_log_suite.py`; `atomic_produce` and `idempotency_keys` are named capabilities there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from sharequeue.protocol.errors import BY_CODE, ApiError
from sharequeue.protocol.types import OffsetRange, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.record_log.record_batch import RecordBatch

MOST_PARTITIONS: Final = 1000
"""Partitions of one append. Each is locked until it is durable, and a database has room for some thousand locks."""


class OffsetOutOfRange(ApiError):
    """The offset lies outside the log; `log_start_offset` is where it begins."""

    error = BY_CODE["OFFSET_OUT_OF_RANGE"]

    def __init__(self, detail: str, log_start_offset: int) -> None:
        super().__init__(detail)
        self.log_start_offset = log_start_offset


def below_log_start(offset: int, log_start_offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(f"offset {offset} is below the log start {log_start_offset}", log_start_offset)


class PartitionAppend(NamedTuple):
    """What one produce request puts in one partition: it becomes one record batch.

    `tails`: each record as JSON without its offset, `,"timestamp_ms":1,"key":null,"value":1}`. Those of large records
    become memoryviews of their batch once there is one. `for_group`: the share group that alone is to get them.
    """

    topic_id: str
    partition: int
    tails: list[bytes]
    max_timestamp_ms: int
    for_group: str | None = None


class IdempotencyKey(NamedTuple):
    """Names a produce request: a repeat of it answers the first answer again.

    `fingerprint`: SHA-256 of the request. `answer`: makes the answer of the base offsets; it is kept with the key.
    `lasting`: for 7 days, else for 24 hours. A repeat must say the same.
    """

    caller: str
    path: str
    topic_id: str
    key: str
    fingerprint: bytes
    answer: Callable[[Sequence[int]], bytes]
    lasting: bool = False


class AppendResult(NamedTuple):
    """`answer`: with an idempotency key, the answer kept for it."""

    base_offsets: Sequence[int]
    answer: bytes | None


class ReadResult(NamedTuple):
    """Whole batches from the one that holds the offset; none at the log end."""

    batches: Sequence[RecordBatch]
    log_start_offset: int
    log_end_offset: int


class Offsets(NamedTuple):
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int


class DeadLetterKey(NamedTuple):
    """What makes a dead letter the same after a crash."""

    source: SharePartitionKey
    state_epoch: int
    offset: int
    delivery_count: int


class DeadLetterRow(NamedTuple):
    """One dead letter: where its record stands, and the record to write (as in PartitionAppend.tails)."""

    source: SharePartitionKey
    state_epoch: int
    offset: int
    delivery_count: int
    tail: bytes
    timestamp_ms: int
    cause: str

    @property
    def key(self) -> "DeadLetterKey":
        return DeadLetterKey(self.source, self.state_epoch, self.offset, self.delivery_count)


def nobody(topic_id: str, partition: int, log_end_offset: int) -> None:
    """There is no other gateway to tell of an append."""


class Parked(NamedTuple):
    """How many dead letters are parked, and why the last of them was."""

    records: int
    cause: str


class ParkedDeadLetter(NamedTuple):
    """A dead letter that its topic refused; `tail` as in DeadLetterRow."""

    source: SharePartitionKey
    offset: int
    delivery_count: int
    tail: bytes


class RecordLog(Protocol):
    """Errors: UnknownTopicOrPartition (deleted), StorageError, RequestTimedOut (not definite), OffsetOutOfRange."""

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        """Append to all the partitions or to none; durable when it returns. Returns: the base offset of each."""

    def read_cached(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int
    ) -> ReadResult | None:
        """As `read`, from memory alone; None if memory cannot tell. Raises: OffsetOutOfRange."""

    async def read(self, topic_id: str, partition: int, offset: int, max_bytes: int, max_records: int) -> ReadResult:
        """Batches from the one that holds `offset` (or the next there is) until the limits are met; at least one.

        Raises: OffsetOutOfRange: `offset` lies below the log start.
        """

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> Mapping[int, Offsets]: ...

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        """Have the ends of all these logs known, so that reading an empty one does not ask for them one by one."""

    async def offset_for_timestamp(self, topic_id: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not before `timestamp_ms`, or None."""

    async def delete_records(self, topic_id: str, partition: int, before_offset: int) -> int:
        """Move the log start up to `before_offset` (−1: the end). Returns: the log start. Raises: OffsetOutOfRange."""

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        """Refuse appends from now on and remove all records. Repeatable."""

    async def apply_retention(
        self, topic_id: str, partitions: int, retention_ms: int, retention_bytes: int, now_ms: int
    ) -> None:
        """Move log starts up as far as the limits ask; −1 is no limit."""

    async def append_dead_letters(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        """Append dead letters, or what is redriven of them, each once however often it is asked for.

        Args:
            leader_epoch: of who writes them, if they are of one share-partition: from now on no earlier leader can.
            for_group: as in PartitionAppend.
        Returns: how many were new. Raises: NotLeaderOrFollower: a later leader has written some; none is appended.
        """

    async def dead_letters_written(self, keys: Sequence[DeadLetterKey]) -> set[DeadLetterKey]:
        """Those that were appended before."""

    async def forget_dead_letters(
        self, source: SharePartitionKey, state_epoch: int, ranges: Sequence[OffsetRange]
    ) -> None:
        """Records of these ranges are ARCHIVED for good: the keys that keep their dead letters single may go."""

    async def park_dead_letters(self, rows: Sequence[DeadLetterRow], leader_epoch: int) -> None:
        """Keep dead letters of one share-partition whose topic refuses them, each once. Raises: NotLeaderOrFollower."""

    async def parked_counts(self, group_id: str) -> Mapping[TopicIdPartition, Parked]:
        """How many dead letters of a group are parked, by where they come from."""

    async def parked_dead_letters(
        self, group_id: str, limit: int, after: ParkedDeadLetter | None
    ) -> Sequence[ParkedDeadLetter]:
        """A group's parked dead letters, in order; `after`: those behind this one."""

    async def unpark_dead_letters(self, keys: Sequence[DeadLetterKey]) -> None:
        """Forget parked dead letters: they were redriven."""

    def watch(
        self,
        changed: Callable[[str, int], None],
        interest: Callable[[], Iterable[TopicIdPartition]],
        appended: Callable[[str, int, int], None] = nobody,
        forgotten: Callable[[str, int], None] = lambda topic_id, partition: None,
    ) -> None:
        """Call `changed` after an append here, or when another gateway's append or a moved log start is noticed.

        Args:
            interest: the partitions to look at every half second.
            appended: called after an append here with the log's end, to tell other gateways.
            forgotten: called for a partition whose end is not known any more: its changes may go unnoticed.
        """

    async def look(self, places: Iterable[TopicIdPartition]) -> None:
        """Learn where partitions end: all that was appended before, by any gateway, counts. Calls share queries."""

    def heard_of(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Another gateway tells of an append: its end."""

    async def ping(self) -> None:
        """Raises: StorageError."""


__all__ = [
    "AppendResult",
    "DeadLetterKey",
    "DeadLetterRow",
    "IdempotencyKey",
    "OffsetOutOfRange",
    "Offsets",
    "ParkedDeadLetter",
    "PartitionAppend",
    "ReadResult",
    "RecordBatch",
    "RecordLog",
    "nobody",
]
