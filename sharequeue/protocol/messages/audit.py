"""The messages of audits: the stored rows, beside the answers of the services.

Operators make these calls, with the cluster token.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from sharequeue.protocol.messages.fields import (
    GroupId,
    Offset,
    PageSize,
    PartitionIndex,
    PlainText,
    Request,
    Response,
    at_most,
    word,
)
from sharequeue.protocol.types import KEPT_REASONS, MAX_INT64, MAX_PAGE_SIZE, GivenReason, Int32, Int64

MAX_KEYS: Final = 1000
"""Share-partitions on one page."""
KeysPerPage = Annotated[int, Meta(ge=1, le=MAX_KEYS, extra_json_schema={"format": "int32"})]
TopicId = Annotated[PlainText, Meta(min_length=1, max_length=36)]


StateRowKind = Annotated[
    str,
    word("StateRowKind", "What a row does to the state before it.", ("snapshot", "update", "tombstone")),
]


class StoredBatch(Struct, frozen=True, omit_defaults=True):
    """The state of a range of offsets, and the delay and the reasons of records that were released."""

    first_offset: Int64
    """The first offset of the range, included."""
    last_offset: Int64
    """The last offset of the range, included."""
    delivery_state: Int32
    """0 available, 2 acknowledged, 3 archiving, 4 archived."""
    delivery_count: Int32
    """How often these records were delivered to the group."""
    available_at_ms: Int64 | None = None
    """When the delay of a release ends, in milliseconds since the epoch. Absent without a delay."""
    reason: str | None = None
    """The reason that a client gave. Absent without one."""
    reason_at_ms: Int64 | None = None
    """When `reason` was given, in milliseconds since the epoch, rounded down to 100 ms. Absent without one."""
    forgiven: Int32 = 0
    """How many deliveries of these records were never begun. Absent if none."""
    earlier_reasons: Annotated[list[GivenReason], at_most(KEPT_REASONS)] = []
    """The reasons of the last deliveries before this one that had one, at most five, the oldest first.
    Absent without one."""
    transaction_id: str | None = None
    """The transaction on which the delivery after `delivery_count` is pending: it is settled if that commits. Absent
    without one."""


class StateRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of a share-partition's state: `kind` snapshot, update or tombstone; -1 is unchanged.

    `fault`: why the row cannot be read; the other fields but `seq` and `kind` mean nothing then.
    """

    seq: Int64
    """The number of the row. The rows of a share-partition ascend by it."""
    kind: StateRowKind
    """A snapshot replaces all earlier rows, an update changes them, a tombstone ends the state."""
    snapshot_epoch: Int32 = 0
    """How many snapshots were written before this row."""
    state_epoch: Int32 = 0
    """The epoch of the state. A reset of the offsets raises it."""
    leader_epoch: Int32 = -1
    """The epoch of the leader that wrote the row; −1: unchanged."""
    start_offset: Int64 = -1
    """All records before it are finished; −1: unchanged."""
    delivery_complete_count: Int32 = -1
    """Finished records behind the start offset; −1: unchanged."""
    state_batches: list[StoredBatch] = []
    """The state of ranges behind the start offset, ascending."""
    fault: str | UnsetType = UNSET
    """Why the row cannot be read. Absent if it can."""


class StoredState(Struct, frozen=True, kw_only=True):
    """A share-partition and the rows that are not pruned, in order."""

    key_id: Int64
    """The number of the share-partition. Pages are in its order."""
    group_id: str
    """The id of the group."""
    topic_id: str
    """The id of the topic."""
    partition: Int32
    """The number of the partition, from 0."""
    rows: list[StateRow]
    """The rows that are not pruned, by `seq`."""


class ExportStateQuery(Request):
    """Share-partitions with `key_id` above `after` that belong to one `part` of `parts`; or the one that is named."""

    after: Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})] = 0
    """Only share-partitions behind this one: the `next_after` of the page before."""
    page_size: KeysPerPage = 200
    """How many share-partitions a page has, from 1 to 1,000."""
    part: Annotated[int, Meta(ge=0, le=9999, extra_json_schema={"format": "int32"})] = 0
    """Which of `parts` to list, from 0. So several callers share the work."""
    parts: Annotated[int, Meta(ge=1, le=10_000, extra_json_schema={"format": "int32"})] = 1
    """Into how many parts the share-partitions are divided, from 1 to 10,000."""
    group_id: GroupId | None = None
    """Only share-partitions of this group. Absent: of all groups."""
    topic_id: TopicId | None = None
    """Only share-partitions of the topic with this id. Absent: of all topics."""
    partition: PartitionIndex | None = None
    """Only share-partitions of the partition with this number. Absent: of all."""


class ExportStateResponse(Response):
    """`next_after`: absent on the last page."""

    share_partitions: list[StoredState]
    next_after: Int64 | UnsetType = UNSET


class StateAnswer(Response):
    """The answer of readShareGroupStateSummary for a share-partition now."""

    error_code: Int32
    """Kafka's number of the error; 0 is none."""
    state_epoch: Int32 = 0
    """The epoch of the state. A reset of the offsets raises it."""
    leader_epoch: Int32 = 0
    """The epoch of the last leader that wrote state."""
    start_offset: Int64 = -1
    """All records before it are finished; −1: none was written."""
    delivery_complete_count: Int32 = -1
    """Finished records behind the start offset; −1: unknown."""


class AuditedState(Response):
    """A share-partition: its stored rows, the answer of its share coordinator, and the ends of its log.

    If `topic` is missing, the topic or the partition does not exist.
    """

    group_id: str
    """The id of the group whose state this is."""
    topic_id: str
    """The id of the topic, also if it was deleted since."""
    partition: Int32
    """The number of the partition, from 0."""
    rows: list[StateRow]
    """The stored rows that are not pruned, by `seq`."""
    answer: StateAnswer
    """What the share coordinator answered after the rows were read."""
    topic: str | UnsetType = UNSET
    """The name of the topic. Absent if there is no such topic."""
    log_start_offset: Offset | UnsetType = UNSET
    """The first offset that can be read. Absent if there is no such partition."""
    log_end_offset: Offset | UnsetType = UNSET
    """One above the last record's offset. Absent if there is no such partition."""


class AuditStateResponse(Response):
    """A page of the stored states, and of the answers that the services give about them."""

    share_partitions: Annotated[list[AuditedState], at_most(MAX_KEYS)]
    """At most `page_size` share-partitions."""
    next_after: Int64 | UnsetType = UNSET
    """Send it as `after` for the next page. Absent on the last page."""


class AuditLogQuery(Request):
    """Batches from the one that holds `offset` on."""

    offset: Offset = 0
    """The list begins with the batch that holds this offset."""
    page_size: PageSize = 1000


class LogBatch(Struct, frozen=True, kw_only=True):
    """One row of the log, without its records."""

    base_offset: Int64
    """The first offset of the batch, also if its record was removed."""
    last_offset: Int64
    """The last offset of the batch, included."""
    record_count: Int32
    """How many records the batch holds. Compaction lowers it, to 0 at last."""
    generation: Int32
    """How often the batch was replaced."""


class LogAudit(Response):
    """Rows of a partition, including those below the log start that are not purged yet."""

    log_start_offset: Int64
    """The first offset that can be read."""
    log_end_offset: Int64
    """One above the last record's offset."""
    deleted: bool
    """Whether the topic was deleted, and its records wait to be purged."""
    batches: Annotated[list[LogBatch], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` stored batches, by offset."""
