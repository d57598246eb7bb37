"""The messages clients send and receive, field by field as the HTTP contract names them.

Requests refuse unknown fields. Optional response fields are absent, not null. Offsets are int64; `last_offset` is
inclusive, `log_end_offset` exclusive.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from sharequeue.protocol.bounds import MAX_VALUES
from sharequeue.protocol.types import (
    ACKNOWLEDGE_TYPES,
    GROUP_ID,
    MAX_ACKNOWLEDGEMENTS,
    MAX_CONFIGS,
    MAX_DELAY_MS,
    MAX_FETCH_ID_LENGTH,
    MAX_HEADERS,
    MAX_INT32,
    MAX_INT64,
    MAX_MEMBER_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PAGE_SIZE,
    MAX_PARTITIONS,
    MAX_PARTITIONS_NAMED,
    MAX_REASON_LENGTH,
    MAX_RECORDS,
    MAX_TOPICS_NAMED,
    PLAIN_TEXT,
    TOPIC_NAME,
    AcquireMode,
    DeliveryState,
    Int32,
)

Offset = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
PartitionIndex = Annotated[int, Meta(ge=0, le=MAX_INT32, extra_json_schema={"format": "int32"})]
TimestampMs = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
NonNegative = Annotated[int, Meta(ge=0, le=MAX_INT32, extra_json_schema={"format": "int32"})]
Count = Int32
AnyInt64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
"""An int64 of an answer that may be −1."""
AtLeastOne = Annotated[int, Meta(ge=1, le=MAX_INT32, extra_json_schema={"format": "int32"})]
CheckedInt32 = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 0, "maximum": MAX_INT32})]
CheckedInt64 = Annotated[int, Meta(extra_json_schema={"format": "int64", "minimum": 0, "maximum": MAX_INT64})]
"""Whose bounds are checked with the rest of an acknowledgement, so that a wrong one fails alone."""
PlainText = Annotated[str, Meta(pattern=PLAIN_TEXT)]
TopicName = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": TOPIC_NAME})
]
"""Checked where topics are looked up: INVALID_TOPIC_EXCEPTION."""
EnforcedTopicName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=TOPIC_NAME)]
"""Of calls that look no topic up."""
GroupId = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=GROUP_ID)]
TypeName = Annotated[str, Meta(extra_json_schema={"enum": list(ACKNOWLEDGE_TYPES)})]
"""Checked with the rest of an acknowledgement."""
ConfigName = Annotated[str, Meta(extra_json_schema={"maxLength": 100, "pattern": r"^[a-z][a-z0-9.]*\Z"})]
"""Checked where settings are looked up: INVALID_CONFIG."""
Partitions = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1, "maximum": MAX_PARTITIONS})]
"""Checked against the service's own limit: INVALID_PARTITIONS."""
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE, extra_json_schema={"format": "int32"})]
PageToken = Annotated[PlainText, Meta(max_length=2048)]
MemberId = Annotated[PlainText, Meta(min_length=1, max_length=MAX_MEMBER_ID_LENGTH)]
FetchId = Annotated[str, Meta(min_length=1, max_length=MAX_FETCH_ID_LENGTH)]
ConfigNumber = Annotated[int, Meta(extra_json_schema={"format": "int64", "minimum": -(2**63), "maximum": MAX_INT64})]
"""Checked against the bounds of its setting: INVALID_CONFIG."""
ConfigValue = str | ConfigNumber | float | bool
RecordHeaders = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": MAX_HEADERS,
        }
    ),
]
"""Names to strings, as JSON: they are decoded one record at a time, for they take ten times the room then."""
TopicNames = Annotated[list[TopicName], Meta(max_length=MAX_TOPICS_NAMED)]
PartitionIndexes = Annotated[list[PartitionIndex], Meta(max_length=MAX_PARTITIONS_NAMED)]
IsolationLevel = Literal["read_uncommitted", "read_committed"]


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request body: an unknown field is a fault, so `max_record` never passes for `max_records`."""


class Response(Struct, omit_defaults=True, kw_only=True):
    """An answer: optional fields that are not set are absent."""


class PointedDetail(Response):
    """One place of the request that is at fault: an RFC 6901 pointer into the body, or `/` and a query parameter."""

    pointer: str
    detail: str


class Problem(Response):
    """RFC 9457 problem document, the body of every error."""

    type: str
    title: str
    status: Int32
    detail: str
    code: str
    kafka_code: Int32
    retriable: bool
    definite: bool
    """True: what was asked surely did not happen. False: it may have; ask again only if twice does no harm."""
    request_id: str
    errors: list[PointedDetail] = []
    limit: AnyInt64 | None = None
    current_leader: str | None = None
    results: list["AcknowledgementResult"] = []
    """Of acknowledgements that all failed: what became of each."""
    failed_count: Int32 = 0


class Empty(Response):
    """An answer without content."""


# Topics


class CreateTopicRequest(Request):
    name: TopicName
    partitions: Partitions = 1
    config: Annotated[dict[str, ConfigValue], Meta(max_length=MAX_CONFIGS)] = {}


class Topic(Response):
    name: str
    topic_id: str
    partitions: Int32
    config: dict[str, str]


class TopicListing(Response):
    name: str
    topic_id: str
    partitions: Int32


class ListTopicsResponse(Response):
    topics: list[TopicListing]
    next_page_token: str | None = None


class PartitionOffsets(Response):
    partition: PartitionIndex
    log_start_offset: Offset
    last_stable_offset: Offset
    log_end_offset: Offset


class DescribeTopicResponse(Response):
    name: str
    topic_id: str
    config: dict[str, str]
    partitions: list[PartitionOffsets]


class UpdateTopicRequest(Request):
    """`null` for a setting, or its name in `reset`, goes back to the default."""

    partitions: Partitions | None = None
    config: Annotated[dict[str, ConfigValue | None], Meta(max_length=MAX_CONFIGS)] = {}
    reset: Annotated[list[ConfigName], Meta(max_length=MAX_CONFIGS)] = []


class DeleteRecordsPartition(Request):
    partition: PartitionIndex
    before_offset: Annotated[int, Meta(ge=-1, le=MAX_INT64, extra_json_schema={"format": "int64"})]


class DeleteRecordsRequest(Request):
    partitions: Annotated[list[DeleteRecordsPartition], Meta(min_length=1, max_length=MAX_PARTITIONS_NAMED)]


class DeletedRecordsPartition(Response):
    partition: PartitionIndex
    log_start_offset: Offset


class DeleteRecordsResponse(Response):
    partitions: list[DeletedRecordsPartition]


class ReadRecordsQuery(Request):
    offset: Offset = 0
    max_records: Annotated[int, Meta(ge=1, le=100_000, extra_json_schema={"format": "int32"})] = 500
    max_bytes: AtLeastOne = 52_428_800
    isolation_level: IsolationLevel = "read_uncommitted"


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
    """Where each record went, in request order."""

    records: list[ProducedRecord]


# Fetch and acknowledge


class TopicPartitions(Request):
    topic: TopicName
    partitions: PartitionIndexes


SomePartitions = Annotated[list[TopicPartitions], Meta(max_length=MAX_TOPICS_NAMED)]
"""Partitions by topic. All of a request together are MAX_PARTITIONS_NAMED at most."""


class Acknowledgement(Struct, omit_defaults=True, kw_only=True):
    """What a member says of a range it holds: exactly one of `type` and `types` (one per offset).

    It may carry every other field of a fetched batch, so that an entry of `batches` plus a `type` is one; those are
    ignored.
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
    acquire_mode: AcquireMode = AcquireMode.RECORD_LIMIT
    share_session_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] | None = None
    forgotten_topics: SomePartitions = []
    acknowledgements: Acknowledgements = []
    atomic: bool = False
    is_renew_ack: bool = False
    fetch_id: FetchId | None = None
    with_records: bool = True


class Record(Response):
    """A record as it is read: `key`/`value` as JSON, or `key_base64`/`value_base64` where bytes were produced."""

    offset: Offset
    timestamp_ms: TimestampMs
    key: str | None = None
    key_base64: str | None = None
    value: Raw | UnsetType = UNSET
    value_base64: str | None = None
    headers: dict[str, str] = {}


class FetchedBatch(Response):
    """One acquired range: this member holds it until the lock ends. Count the lock with
    `acquisition_lock_timeout_ms`; `lock_expires_at_ms` needs equal clocks."""

    topic: str
    partition: PartitionIndex
    first_offset: Offset
    last_offset: Offset
    delivery_count: Count
    lock_expires_at_ms: TimestampMs
    records: list[Record] | None = None


class AcknowledgementResult(Response):
    """`applied`, `ignored` (below the start offset: finished before), `failed`, `unknown` (may be durable: repeat)."""

    status: str
    code: str | None = None
    kafka_code: Int32 | None = None
    detail: str | None = None
    retriable: bool | None = None


class PartitionError(Response):
    """A partition that failed; −1 stands for the whole topic."""

    topic: str
    partition: Int32
    code: str
    kafka_code: Int32
    detail: str


class PartitionLeader(Response):
    """The gateway that leads a share-partition, and where other gateways reach it: asked there, a call saves a hop."""

    topic: str
    partition: Int32
    node_id: str
    url: str


class FetchResponse(Response):
    """`leaders`: of those partitions in `batches` that another gateway than the one asked leads.
    `more_errors`: how many partitions failed besides those in `errors`, which are 50 at most."""

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


class ReadRecordsResponse(Response):
    records: list[Record]
    next_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset


# Groups


ShareGroupConfigResponse = Annotated[dict[str, str], Meta(title="ShareGroupConfigResponse")]
"""The settings in force by name; values are text."""

UpdateShareGroupConfigRequest = Annotated[
    dict[str, ConfigValue | Annotated[list[ConfigName], Meta(max_length=MAX_CONFIGS)] | None],
    Meta(
        max_length=MAX_CONFIGS,
        title="UpdateShareGroupConfigRequest",
        description="Settings by name; null, or the name in the list `reset`, goes back to the default.",
    ),
]


class GroupPartitionOffset(Response):
    """−1 is unknown: initialised but never loaded, or the state could not be read."""

    partition: PartitionIndex
    start_offset: AnyInt64
    log_end_offset: AnyInt64
    leader_epoch: Count
    lag: AnyInt64


class GroupTopicOffsets(Response):
    topic: str
    topic_id: str
    partitions: list[GroupPartitionOffset]


class ListShareGroupOffsetsResponse(Response):
    topics: list[GroupTopicOffsets]


class InFlightQuery(Request):
    """`page_size` counts partitions and batches; a partition is listed whole, so a page may be larger by the last one."""

    topic: TopicName | None = None
    partition: PartitionIndex | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


DeliveryStateName = Annotated[str, Meta(extra_json_schema={"enum": [state.name for state in DeliveryState]})]


class InFlightBatch(Response):
    first_offset: Offset
    last_offset: Offset
    delivery_state: DeliveryStateName
    delivery_count: Count
    member_id: str | None = None
    lock_expires_at_ms: TimestampMs | None = None
    available_at_ms: TimestampMs | None = None
    reason: str | None = None


class DeadLetterStatus(Response):
    """A range on its way to the dead-letter queue that could not be written yet; it is tried until it can."""

    first_offset: Offset
    last_offset: Offset
    attempts: Int32
    last_error: str
    next_attempt_at_ms: TimestampMs


class InFlightPartition(Response):
    topic: str
    partition: PartitionIndex
    start_offset: Offset
    end_offset: AnyInt64
    batches: list[InFlightBatch]
    dead_letters: list[DeadLetterStatus] = []
    parked_dead_letters: Int32 = 0
    parked_cause: str | None = None
    """Why the last of the parked dead letters was refused."""


class ListInFlightResponse(Response):
    """`errors`: partitions that the group has and of which nobody can tell just now."""

    partitions: list[InFlightPartition]
    errors: list[PartitionError] = []
    next_page_token: str | None = None


class Readiness(Response):
    """`ready`, `degraded` (works, with less) or `unavailable`, and each dependency's own word.

    `gateways`: of a gateway, those that share the work with it, by node id.
    """

    status: str
    dependencies: dict[str, str]
    gateways: list[str] = []
