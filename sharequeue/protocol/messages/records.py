"""The messages that carry records: produce, fetch, acknowledge, and read by offset."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.messages.problems import (
    MAX_BATCHES_PRODUCED,
    AcknowledgementResult,
    PartitionError,
    ProducedBatch,
)
from sharequeue.protocol.types import (
    MAX_ACKNOWLEDGEMENTS,
    MAX_DELAY_MS,
    MAX_ERRORS,
    MAX_INT32,
    MAX_LOCK_DURATION_MS,
    MAX_PARTITIONS_NAMED,
    MAX_RECORDS,
    MAX_STREAM_WINDOW,
    MAX_TOPICS_NAMED,
    MAX_UNIQUE_MS,
    AcquireMode,
    Int32,
)

MAX_TOPICS_PRODUCED: Final = 100
"""In one acknowledgement with `produce`."""
MAX_RECORDS_READ: Final = 100_000
"""In one answer of readRecords."""

# Produce


class ProduceRecord(Request):
    """Exactly one of `value`, `value_base64` and `tombstone`; one of `key` and `key_base64`, or neither."""

    key: fields.RecordKey | UnsetType = UNSET
    """The key as text, of any length. Records of one key go to one partition. Absent: no key."""
    key_base64: fields.RecordBase64 | UnsetType = UNSET
    """The key as bytes, in base64. Send `key` or `key_base64`, or neither."""
    value: Raw | UnsetType = UNSET
    """Any JSON, kept byte for byte and nested at most 64 levels deep. `null` is a tombstone, and is ignored beside
    `value_base64`."""
    value_base64: fields.RecordBase64 | UnsetType = UNSET
    """The value as bytes, in base64. Readers get it as `value_base64` too."""
    tombstone: bool = False
    """True: the record has no value. Compaction then removes earlier records of its key, and later itself."""
    headers: fields.RecordHeaders | UnsetType = UNSET
    """Names to texts, at most 1,000 and 256 KiB as JSON. Dead letters also have headers `__dlq.…`."""
    partition: fields.PartitionIndex | None = None
    """The partition that the record goes to. Absent: Kafka's murmur2 of its key chooses, else the next partition in
    turn."""
    timestamp_ms: fields.TimestampMs | None = None
    """Milliseconds since the epoch, at most `message.timestamp.after.max.ms` (an hour) ahead. Absent: the time of the
    gateway."""


class Unique(Request):
    """Records whose keys must be new: see `unique` of produceRecords."""

    within_ms: Annotated[int, Meta(ge=1, le=MAX_UNIQUE_MS, extra_json_schema={"format": "int64"})] | None = None
    """How long a key counts from its first record on, in milliseconds by PostgreSQL's clock, at most 30 days. Absent:
    30 days."""
    until_group: fields.GroupId | None = None
    """A key counts no longer when this group has finished its first record, durably: accepted it or made it a dead
    letter, or the log has removed it. Absent: until the time is over."""


class ProduceRequest(Request):
    """Records to append to the partitions of one topic."""

    records: Annotated[list[ProduceRecord], Meta(min_length=1, max_length=MAX_RECORDS)]
    """1 to 10,000 records. All of them are stored, or none."""
    unique: Unique | None = None
    """Append only records whose key is new in the topic; each needs a key. A record whose key was sent with `unique`
    before, and counts still, is not appended, whatever its value: the answer has the place of the first one and
    `duplicate`. Not with `Transaction-Id`. Absent: append all records."""


class ProducedRecord(Response):
    """The place of a record that was stored."""

    partition: fields.PartitionIndex
    """The partition that the record was appended to, from 0."""
    offset: fields.AnyInt64
    """The place of the record in its partition. It never changes. −1: the first record was scheduled."""
    duplicate: bool = False
    """True: the record was not appended, because its key was sent with `unique` before. The place is that of the first
    record with the key."""


class PartitionLeader(Response):
    """The gateway that leads a share-partition, or appends to a partition, and its address for other gateways.

    A call to it saves a hop."""

    topic: str
    """The name of the topic of the share-partition."""
    partition: fields.PartitionNumber
    node_id: str
    """The node id of the gateway that leads the share-partition."""
    url: str
    """The gateway's address for the other gateways. It helps clients in their network."""


class ProduceResponse(Response):
    """The partition and offset of each record, in request order."""

    records: Annotated[list[ProducedRecord], at_most(MAX_RECORDS)]
    """The place of each record, in request order."""
    leaders: Annotated[list[PartitionLeader], at_most(1)] = []
    """The gateway that appended the records, if it is another one."""


class ProducedBatches(Response):
    """The offsets of the records, by partition."""

    batches: Annotated[list[ProducedBatch], at_most(MAX_BATCHES_PRODUCED)]
    """One for each partition, in the order of each partition's first record."""


# Fetch and acknowledge


class TopicPartitions(Request):
    """Some partitions of a topic."""

    topic: fields.TopicName
    """The name of the topic. A topic that is named twice counts once."""
    partitions: fields.PartitionIndexes
    """Numbers of partitions, from 0. One request names at most 20,000 over all its topics."""


SomePartitions = Annotated[list[TopicPartitions], Meta(max_length=MAX_TOPICS_NAMED)]
"""Partitions by topic. One request names at most MAX_PARTITIONS_NAMED in all."""


class Acknowledgement(Struct, omit_defaults=True, kw_only=True):
    """Settles a range that the member holds: exactly one of `type` and `types` (one per offset).

    It may carry every other field of a fetched batch, which is ignored. So an entry of `batches` with a `type` is an
    acknowledgement.
    """

    topic: fields.TopicName
    """The name of the topic, as the fetched batch has it."""
    topic_id: fields.Uuid | None = None
    """The `topic_id` of the fetched batch. If the topic of this name has another id, the acknowledgement fails. Always
    send it."""
    partition: fields.CheckedInt32
    """The number of the partition, as the fetched batch has it."""
    first_offset: fields.CheckedInt64
    """The first offset of the range. It may lie inside of the fetched batch."""
    last_offset: fields.CheckedInt64
    """The last offset of the range, included."""
    type: fields.TypeName | None = None
    """What becomes of all records of the range. Send `type` or `types`."""
    types: fields.AcknowledgeTypes | UnsetType = UNSET
    """What becomes of each record: one word for each offset of the range, or one for all. Each word counts as an
    acknowledgement. An empty list beside `type` is ignored."""
    delivery_count: fields.CheckedInt32 | None = None
    """The `delivery_count` of the fetched batch. With it a late acknowledgement of an earlier delivery fails, and a
    repeat is recognised. Always send it."""
    reason: fields.ReasonText | None = None
    """Why, in at most 1,024 characters, for `release` and `reject`. The in-flight list and the dead letter show it."""
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS, extra_json_schema={"format": "int32"})] | None = None
    """How long the released records are not delivered, in milliseconds, at most 12 hours. 0: at once. Absent: as long
    as the group's `share.retry.backoff.ms` says. For `release` alone."""
    begun: bool = True
    """For `release`; false: the client gives the records back before it began to work on them. Then their delivery does
    not count as an attempt, up to `share.delivery.count.limit` times for a record. Refused with `kafka_defaults`."""
    lock_duration_ms: fields.LockDurationMs | None = None
    """For `renew`: how long the lock lasts from now on, in milliseconds. Absent: as long as before."""


Acknowledgements = Annotated[list[Acknowledgement], Meta(max_length=MAX_ACKNOWLEDGEMENTS)]


class FetchRequest(Request):
    """The records to acquire. It needs `topics`, `topic_partitions`, `share_session_epoch` or `acknowledgements`."""

    topics: fields.TopicNames | None = None
    """Names of topics, at most 1,000. The fetch takes all partitions of each."""
    topic_partitions: SomePartitions | None = None
    """Single partitions of topics, in place of `topics` or beside it. An assigned member names its partitions here."""
    member_id: fields.MemberId | None = None
    """The member that holds the fetched records: 1 to 36 characters. Absent: the gateway makes one and returns it."""
    max_records: fields.NonNegative | None = None
    """The most records to acquire. Default: 500. A fetch that has this many does not wait any longer."""
    max_bytes: fields.NonNegative | None = None
    """The most bytes of records, before compression. Default: 52,428,800. A larger record still comes alone."""
    min_bytes: fields.NonNegative | None = None
    """The fetch waits until it has this many bytes, or `max_records`, or its wait is over. Default: 1."""
    max_wait_ms: fields.NonNegative | None = None
    """How long to wait for records, in milliseconds. Default: 10,000. More than 30,000 counts as 30,000. Set your
    client's time-out above it."""
    batch_size: fields.NonNegative | None = None
    """A range of new records with this many is cut at the next batch boundary. Default: `max_records`."""
    lock_duration_ms: fields.LockDurationMs | None = None
    """How long the locks of this fetch last, in milliseconds. Absent: `share.record.lock.duration.ms` of the group."""
    acquire_mode: AcquireMode = AcquireMode.RECORD_LIMIT
    """`record_limit` never acquires more than `max_records`; `batch_optimized` acquires whole stored batches."""
    share_session_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] | None = None
    """Absent: no session. 0 opens one, n continues it, −1 closes it and releases what the member holds in it."""
    forgotten_topics: SomePartitions = []
    """Partitions that leave the share session. Only within a session."""
    acknowledgements: Acknowledgements = []
    """Acknowledgements to apply before the fetch, at most 1,000. Their results come in `acknowledgement_results`."""
    atomic: bool = False
    """True: the acknowledgements of one share-partition must ascend, and succeed or fail together."""
    is_renew_ack: bool = False
    """True: the acknowledgements may hold `renew`, and the fetch acquires nothing."""
    fetch_id: fields.FetchId | None = None
    """1 to 64 characters that name this fetch. A repeat by the same member, while its locks live, gets the same ranges
    again and counts no delivery."""
    with_records: bool = True
    """False: acquire only; read the records with readRecords."""
    priority: bool = False
    """True: the topics come in the order of priority. The fetch takes records of one topic, the first that has some.
    Each tenth fetch begins at the next lower topic, so that none starves. Topics from the tenth on count as one. In a
    share session, set it in each fetch; the order is that in which the session got its topics. Not with `min_bytes`
    above 1."""


class ConsumerRecord(Response):
    """A record as it is read: `key`/`value` as JSON, or `key_base64`/`value_base64` where bytes were produced."""

    offset: fields.Offset
    """The place of the record in its partition. Offsets ascend; removed records leave gaps."""
    timestamp_ms: fields.TimestampMs
    """Milliseconds since the epoch: the producer's time, or the gateway's if the producer gave none."""
    key: str | None = None
    """The key as text; null if the record has none. Absent if the key was produced as bytes."""
    key_base64: fields.Base64 | None = None
    """The key in base64. Absent unless it was produced as bytes."""
    value: Raw | UnsetType = UNSET
    """The value as it was produced, byte for byte; null is a tombstone. Absent if it was produced as bytes."""
    value_base64: fields.Base64 | None = None
    """The value in base64. Absent unless it was produced as bytes."""
    headers: dict[str, str] = {}
    """Names to texts. Those of a raw record have names in lower case, `content-type` among them."""
    headers_base64: dict[str, list[fields.Base64 | None]] = {}
    """All values of the headers whose name another Kafka client repeated, or whose value is null or not UTF-8."""


class FetchedBatch(Response):
    """One acquired range, which this member holds until the lock ends."""

    topic: str
    """The name of the topic that the range belongs to."""
    topic_id: fields.Uuid
    """The id of the topic. Another topic that gets the name later has another id. Send it back in the
    acknowledgement."""
    partition: fields.PartitionNumber
    first_offset: fields.Offset
    """The first offset that the member holds."""
    last_offset: fields.Offset
    """The last offset that the member holds, included. The log may have gaps below it."""
    delivery_count: fields.Count
    """How often these records were delivered to the group, this time included: 1 for new ones. Send it back in the
    acknowledgement."""
    lock_expires_at_ms: fields.TimestampMs
    """When the lock ends, in milliseconds since the epoch by PostgreSQL's clock. Yours may differ: measure
    with `lock_duration_ms`."""
    lock_duration_ms: Int32
    """How long the lock lasts, in milliseconds, from the fetch or from its renewal."""
    attempt: fields.Count
    """How many of the deliveries count, this one included: all but those that were never begun. The delivery limit,
    throttled redelivery and the backoff go by it."""
    records: list[ConsumerRecord] | None = None
    """The records of the range, by offset. Absent with `with_records` false."""


class FetchResponse(Response):
    """The records that the member holds from now on, what became of its acknowledgements, and what failed."""

    member_id: str
    """The member that holds the records: the request's, or a new one. Send it with acknowledgements."""
    acquisition_lock_timeout_ms: Int32
    """How long locks of this group last, in milliseconds. `lock_duration_ms` of a batch says how long its lock does."""
    batches: list[FetchedBatch]
    """The ranges that were acquired; empty if the wait ended without records."""
    acknowledgement_results: Annotated[list[AcknowledgementResult], at_most(MAX_ACKNOWLEDGEMENTS)]
    """The result of each acknowledgement of the request, in its order."""
    failed_count: Int32
    """How many acknowledgements failed or are unknown. The header `Acknowledge-Failed` says it too."""
    errors: Annotated[list[PartitionError], at_most(MAX_ERRORS)]
    """Partitions that could not be fetched, at most 50. The others were fetched."""
    leaders: Annotated[list[PartitionLeader], at_most(MAX_PARTITIONS_NAMED)] = []
    """The leaders of those partitions in `batches` that another gateway leads."""
    more_errors: fields.Count = 0
    """How many partitions failed besides those in `errors`."""
    paused: bool = False
    """True: the group is paused (`share.paused`), so the fetch acquired nothing. Absent: it is not."""


class ProduceTo(Request):
    """Records for one topic."""

    topic: fields.TopicName
    """Where the records go: the name of a topic, each once in a request."""
    records: Annotated[list[ProduceRecord], Meta(min_length=1, max_length=MAX_RECORDS)]
    """1 to 10,000 records, as in produceRecords."""


class ProducedTo(Response):
    """The place of the records of one topic."""

    topic: str
    """The name of the topic, as the request has it."""
    records: Annotated[list[ProducedRecord], at_most(MAX_RECORDS)]
    """The place of each record, in request order."""


class AcknowledgeRequest(Request):
    """The acknowledgements of records that a member holds."""

    member_id: fields.MemberId
    """The member that holds the records: `member_id` of the answer of the fetch."""
    acknowledgements: Acknowledgements
    """Ranges and what becomes of them, at most 1,000. Each is applied or fails on its own."""
    atomic: bool = False
    """True: the acknowledgements of one share-partition must ascend, and succeed or fail together."""
    share_session_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] | None = None
    """Absent: no session. n continues the session, −1 closes it after the acknowledgements."""
    produce: Annotated[list[ProduceTo], Meta(max_length=MAX_TOPICS_PRODUCED)] = []
    """Records to append in the same step, to at most 100 topics: all acknowledgements are applied and all records are
    stored, or nothing happens. Not within a share session, without `renew`, and refused with `kafka_defaults`."""


class AcknowledgeResponse(Response):
    """The outcome of each acknowledgement. `applied` ones are durable."""

    results: Annotated[list[AcknowledgementResult], at_most(MAX_ACKNOWLEDGEMENTS)]
    """The result of each acknowledgement, in request order."""
    failed_count: Int32
    """How many acknowledgements failed or are unknown. The header `Acknowledge-Failed` says it too."""
    acquisition_lock_timeout_ms: Int32
    """How long locks of this group last, in milliseconds. A lock of a fetch with `lock_duration_ms` keeps its own
    length."""
    produced: Annotated[list[ProducedTo], at_most(MAX_TOPICS_PRODUCED)] = []
    """Where the records of `produce` are, in request order."""


# Read by offset


class ReadRecordsQuery(Request):
    offset: fields.Offset = 0
    """The first offset to read. An offset outside of the log is refused (OFFSET_OUT_OF_RANGE)."""
    max_records: Annotated[int, Meta(ge=1, le=MAX_RECORDS_READ, extra_json_schema={"format": "int32"})] = 500
    """The most records to answer, from 1 to 100,000."""
    max_bytes: fields.AtLeastOne = 52_428_800
    """The most bytes of records, before compression. A larger record still comes alone."""
    isolation_level: fields.IsolationLevel = "read_uncommitted"
    """`read_committed` reads up to the last stable offset, `read_uncommitted` up to the end."""
    topic_id: fields.Uuid | None = None
    """The id of the topic that is meant. If the topic of this name has another id, the read is refused."""


class RecordPage(Response):
    """Records of one partition, and the bounds of its log."""

    records: Annotated[list[ConsumerRecord], at_most(MAX_RECORDS_READ)]
    """The records from `offset` on, in the order of offsets; empty at the end of the log."""
    next_offset: fields.Offset
    """Send it as `offset` with the next call, to read the records behind these."""
    log_start_offset: fields.Offset
    """The first offset that can be read."""
    log_end_offset: fields.Offset
    """One above the last record's offset. If `next_offset` is equal to it, all was read."""


class StreamQuery(Request):
    """The stream that a member opens."""

    topic: Annotated[str, Meta(min_length=1, max_length=8000)]
    """The name of the topic; several names are separated by commas. Each must exist."""
    member_id: fields.MemberId
    """The member that holds the records: 1 to 36 characters. It has one stream of a group at a time."""
    window: Annotated[int, Meta(ge=1, le=MAX_STREAM_WINDOW, extra_json_schema={"format": "int32"})] = 100
    """The most records that the member holds of the stream at a time, from 1 to 2,000.
    Each acknowledgement makes room."""
    resume_ms: Annotated[int, Meta(ge=0, le=MAX_LOCK_DURATION_MS, extra_json_schema={"format": "int32"})] = 5000
    """How long the records stay held after a connection was lost, in milliseconds; then they are released. At most as
    long as the group's locks."""
