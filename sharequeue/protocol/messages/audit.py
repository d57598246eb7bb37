"""The messages of audits: the stored rows, beside the answers of the services.

Operators make these calls, with the cluster token.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from sharequeue.protocol.messages.fields import GroupId, Offset, PageSize, PartitionIndex, PlainText, Request, Response
from sharequeue.protocol.types import MAX_INT64, Int32, Int64, StateAnnotation, StateBatch

KeysPerPage = Annotated[int, Meta(ge=1, le=1000, extra_json_schema={"format": "int32"})]
TopicId = Annotated[PlainText, Meta(min_length=1, max_length=36)]


class StateRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of a share-partition's state: `kind` snapshot, update or tombstone; -1 is unchanged.

    `fault`: why the row cannot be read; the other fields but `seq` and `kind` mean nothing then.
    """

    seq: Int64
    kind: str
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = -1
    start_offset: Int64 = -1
    delivery_complete_count: Int32 = -1
    state_batches: list[StateBatch] = []
    annotations: list[StateAnnotation] = []
    fault: str | UnsetType = UNSET


class StoredState(Struct, frozen=True, kw_only=True):
    """A share-partition and the rows that are not pruned, in order."""

    key_id: Int64
    group_id: str
    topic_id: str
    partition: Int32
    rows: list[StateRow]


class ExportStateQuery(Request):
    """Share-partitions with `key_id` above `after` that belong to one `part` of `parts`; or the one that is named."""

    after: Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})] = 0
    page_size: KeysPerPage = 200
    part: Annotated[int, Meta(ge=0, le=9999, extra_json_schema={"format": "int32"})] = 0
    parts: Annotated[int, Meta(ge=1, le=10_000, extra_json_schema={"format": "int32"})] = 1
    group_id: GroupId | None = None
    topic_id: TopicId | None = None
    partition: PartitionIndex | None = None


class ExportStateResponse(Response):
    """`next_after`: absent on the last page."""

    share_partitions: list[StoredState]
    next_after: Int64 | UnsetType = UNSET


class StateAnswer(Response):
    """The answer of readShareGroupStateSummary for a share-partition now."""

    error_code: Int32
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = -1
    delivery_complete_count: Int32 = -1


class AuditedState(Response):
    """A share-partition: its stored rows, the answer of its share coordinator, and the ends of its log.

    Without `topic` there is no such topic, or no such partition of it.
    """

    group_id: str
    topic_id: str
    partition: Int32
    rows: list[StateRow]
    answer: StateAnswer
    topic: str | UnsetType = UNSET
    log_start_offset: Offset | UnsetType = UNSET
    log_end_offset: Offset | UnsetType = UNSET


class AuditStateResponse(Response):
    """`next_after`: absent on the last page."""

    share_partitions: list[AuditedState]
    next_after: Int64 | UnsetType = UNSET


class AuditLogQuery(Request):
    """Batches from the one that holds `offset` on."""

    offset: Offset = 0
    page_size: PageSize = 1000


class LogBatch(Struct, frozen=True, kw_only=True):
    """One row of the log, without its records."""

    base_offset: Int64
    last_offset: Int64
    record_count: Int32
    generation: Int32


class LogAudit(Response):
    """Rows of a partition, including those below the log start that are not purged yet."""

    log_start_offset: Int64
    log_end_offset: Int64
    deleted: bool
    batches: list[LogBatch]
