"""The messages that carry records: produce, fetch, acknowledge, and read by offset."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from sharequeue.protocol.bounds import MAX_VALUES
from sharequeue.protocol.messages.fields import (
    AtLeastOne,
    CheckedInt32,
    CheckedInt64,
    Count,
    FetchId,
    IsolationLevel,
    LockDurationMs,
    MemberId,
    NonNegative,
    Offset,
    PartitionIndex,
    PartitionIndexes,
    RecordHeaders,
    Request,
    Response,
    TimestampMs,
    TopicName,
    TopicNames,
    TypeName,
)
from sharequeue.protocol.messages.problems import AcknowledgementResult, PartitionError
from sharequeue.protocol.types import (
    MAX_ACKNOWLEDGEMENTS,
    MAX_DELAY_MS,
    MAX_INT32,
    MAX_REASON_LENGTH,
    MAX_RECORDS,
    MAX_TOPICS_NAMED,
    AcquireMode,
    Int32,
)

# Produce


class ProduceRecord(Request):
    """Exactly one of `value`, `value_base64` and `tombstone`; one of `key` and `key_base64`, or neither.

    `value` is any JSON and is kept byte for byte; `null` is a tombstone.
    """

    key: str | None = None
    key_base64: str | None = None
    value: Raw | UnsetType = UNSET
    value_base64: str | None = None
    tombstone: bool = False
    headers: RecordHeaders | UnsetType = UNSET
    partition: PartitionIndex | None = None
    timestamp_ms: TimestampMs | None = None


class ProduceRequest(Request):
    records: Annotated[list[ProduceRecord], Meta(min_length=1, max_length=MAX_RECORDS)]


class ProducedRecord(Response):
    partition: PartitionIndex
    offset: Offset


class ProduceResponse(Response):
    """The partition and offset of each record, in request order."""

    records: list[ProducedRecord]


# Fetch and acknowledge


class TopicPartitions(Request):
    topic: TopicName
    partitions: PartitionIndexes


SomePartitions = Annotated[list[TopicPartitions], Meta(max_length=MAX_TOPICS_NAMED)]
"""Partitions by topic. One request names at most MAX_PARTITIONS_NAMED in all."""


class Acknowledgement(Struct, omit_defaults=True, kw_only=True):
    """Settles a range that the member holds: exactly one of `type` and `types` (one per offset).

    `lock_duration_ms`: for renew, the length of the lock from now on. Other types ignore it.
    It may carry every other field of a fetched batch, which is ignored. So an entry of `batches` with a `type` is an
    acknowledgement.
    """

    topic: TopicName
    partition: CheckedInt32
    first_offset: CheckedInt64
    last_offset: CheckedInt64
    type: TypeName | None = None
    types: Annotated[list[TypeName], Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_VALUES})] | None = None
    delivery_count: CheckedInt32 | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS, extra_json_schema={"format": "int32"})] = 0
    lock_duration_ms: LockDurationMs | None = None


Acknowledgements = Annotated[list[Acknowledgement], Meta(max_length=MAX_ACKNOWLEDGEMENTS)]


class FetchRequest(Request):
    topics: TopicNames | None = None
    topic_partitions: SomePartitions | None = None
    member_id: MemberId | None = None
    max_records: NonNegative | None = None
    max_bytes: NonNegative | None = None
    min_bytes: NonNegative | None = None
    max_wait_ms: NonNegative | None = None
    batch_size: NonNegative | None = None
    lock_duration_ms: LockDurationMs | None = None
    acquire_mode: AcquireMode = AcquireMode.RECORD_LIMIT
    share_session_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] | None = None
    forgotten_topics: SomePartitions = []
    acknowledgements: Acknowledgements = []
    atomic: bool = False
    is_renew_ack: bool = False
    fetch_id: FetchId | None = None
    with_records: bool = True


class ConsumerRecord(Response):
    """A record as it is read: `key`/`value` as JSON, or `key_base64`/`value_base64` where bytes were produced."""

    offset: Offset
    timestamp_ms: TimestampMs
    key: str | None = None
    key_base64: str | None = None
    value: Raw | UnsetType = UNSET
    value_base64: str | None = None
    headers: dict[str, str] = {}


class FetchedBatch(Response):
    """One acquired range, which this member holds until the lock ends. Measure the lock with `lock_duration_ms`, its
    length; `lock_expires_at_ms` needs equal clocks."""

    topic: str
    partition: PartitionIndex
    first_offset: Offset
    last_offset: Offset
    delivery_count: Count
    lock_expires_at_ms: TimestampMs
    lock_duration_ms: Int32
    records: list[ConsumerRecord] | None = None


class PartitionLeader(Response):
    """The gateway that leads a share-partition, and its address for other gateways. A call to it saves a hop."""

    topic: str
    partition: Int32
    node_id: str
    url: str


class FetchResponse(Response):
    """`leaders`: the leaders of those partitions in `batches` that this gateway does not lead itself.
    `more_errors`: the number of failed partitions besides those in `errors`, which lists at most 50."""

    member_id: str
    acquisition_lock_timeout_ms: Int32
    batches: list[FetchedBatch]
    acknowledgement_results: list[AcknowledgementResult]
    failed_count: Int32
    errors: list[PartitionError]
    leaders: list[PartitionLeader] = []
    more_errors: Count = 0


class AcknowledgeRequest(Request):
    member_id: MemberId
    acknowledgements: Acknowledgements
    atomic: bool = False
    share_session_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] | None = None


class AcknowledgeResponse(Response):
    results: list[AcknowledgementResult]
    failed_count: Int32
    acquisition_lock_timeout_ms: Int32


# Read by offset


class ReadRecordsQuery(Request):
    offset: Offset = 0
    max_records: Annotated[int, Meta(ge=1, le=100_000, extra_json_schema={"format": "int32"})] = 500
    max_bytes: AtLeastOne = 52_428_800
    isolation_level: IsolationLevel = "read_uncommitted"


class RecordPage(Response):
    records: list[ConsumerRecord]
    next_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
