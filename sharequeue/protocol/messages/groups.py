"""The messages of share groups: membership, description, settings, offsets, redriven dead letters."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from sharequeue.protocol.messages.fields import (
    AnyInt64,
    ConfigName,
    ConfigValue,
    Count,
    EnforcedTopicName,
    MemberId,
    NonNegative,
    Offset,
    PageSize,
    PageToken,
    PartitionIndex,
    PartitionIndexes,
    PlainText,
    Request,
    Response,
    TimestampMs,
    TopicName,
)
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue.protocol.types import (
    MAX_CONFIGS,
    MAX_INT32,
    MAX_INT64,
    MAX_NAME_LENGTH,
    MAX_REASON_LENGTH,
    MAX_TOPICS_NAMED,
)

MAX_DATETIME_LENGTH: Final = 64

# Membership


class ShareGroupHeartbeatRequest(Request):
    """`member_epoch` 0 joins or joins again, −1 leaves, else it is the last one received.

    Without `rack_id` or `subscribed_topic_names` these are unchanged. A member that joins must name topics.
    """

    member_id: MemberId
    member_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] = 0
    rack_id: Annotated[PlainText, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    subscribed_topic_names: Annotated[list[EnforcedTopicName], Meta(max_length=MAX_TOPICS_NAMED)] | None = None


class AssignedPartitions(Response):
    topic: str
    topic_id: str
    partitions: list[PartitionIndex]


class MemberAssignment(Response):
    """The partitions that a member is assigned; the list may be empty."""

    topic_partitions: list[AssignedPartitions]


class HeartbeatResult(Response):
    """Without `assignment` it is unchanged. `leaders`: of the assigned partitions, if there are several gateways."""

    member_id: str
    member_epoch: Count
    heartbeat_interval_ms: Count
    assignment: MemberAssignment | None = None
    leaders: list[PartitionLeader] = []


# Listing and describing


STATES: Final = r"^(Empty|Stable|Dead)(,(Empty|Stable|Dead))*\Z"
"""The service ignores case, and spaces around the commas."""

GroupStateName = Annotated[str, Meta(extra_json_schema={"enum": ["Empty", "Stable", "Dead"]})]


class ListShareGroupsQuery(Request):
    """`state`: Empty, Stable or Dead in any case, or several, separated by commas."""

    state: Annotated[str, Meta(max_length=100, extra_json_schema={"pattern": STATES})] | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class ShareGroupListing(Response):
    group_id: str
    type: Literal["share"]
    state: GroupStateName


class ShareGroupList(Response):
    groups: list[ShareGroupListing]
    next_page_token: str | None = None


class DescribeShareGroupQuery(Request):
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class ShareGroupMember(Response):
    member_id: str
    member_epoch: Count
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: MemberAssignment
    rack_id: str | None = None


class ShareGroupDescription(Response):
    """`members`: one page of them, by member id. `member_count` counts all members."""

    group_id: str
    state: GroupStateName
    group_epoch: Count
    assignment_epoch: Count
    assignor_name: str
    member_count: Count
    members: list[ShareGroupMember]
    next_page_token: str | None = None


class InUseQuery(Request):
    """`force`: also while the group is in use; its members are evicted and its sessions ended first."""

    force: bool = False


# Settings


ShareGroupConfigResponse = Annotated[dict[str, str], Meta(title="ShareGroupConfigResponse")]
"""The settings in force by name. Values are text."""

UpdateShareGroupConfigRequest = Annotated[
    dict[str, ConfigValue | Annotated[list[ConfigName], Meta(max_length=MAX_CONFIGS)] | None],
    Meta(
        max_length=MAX_CONFIGS,
        title="UpdateShareGroupConfigRequest",
        description="Settings by name; null, or the name in the list `reset`, goes back to the default.",
    ),
]

# Offsets


class GroupPartitionOffset(Response):
    """−1: unknown, because the share-partition was never loaded or its state could not be read."""

    partition: PartitionIndex
    start_offset: AnyInt64
    log_end_offset: AnyInt64
    leader_epoch: Count
    lag: AnyInt64


class GroupTopicOffsets(Response):
    topic: str
    topic_id: str
    partitions: list[GroupPartitionOffset]


class ShareGroupOffsets(Response):
    topics: list[GroupTopicOffsets]


class ResetTopic(Request):
    """All partitions of a topic, or some of them. `offset` replaces the request's, for `to: offset`."""

    topic: TopicName
    partitions: PartitionIndexes | None = None
    offset: Offset | None = None


class ResetShareGroupOffsetsRequest(Request):
    """Without `topics`: all topics in which the group has offsets; then the group must exist.

    `offset` belongs to `to: offset` and is clamped to the log. `datetime` belongs to `to: datetime`: ISO 8601, UTC if it
    names no zone; the group starts at the first record at or after it, or at the log end. `current`: the present start.
    """

    to: Literal["earliest", "latest", "current", "offset", "datetime"]
    topics: Annotated[list[ResetTopic], Meta(min_length=1, max_length=MAX_TOPICS_NAMED)] | None = None
    offset: Offset | None = None
    datetime: Annotated[str, Meta(max_length=MAX_DATETIME_LENGTH)] | None = None
    dry_run: bool = False
    force: bool = False


class ResetPartition(Response):
    partition: PartitionIndex
    start_offset: Offset


class ResetTopicOffsets(Response):
    topic: str
    topic_id: str
    partitions: list[ResetPartition]


class ResetOffsetsResult(Response):
    """The new start offsets of the group (for `dry_run`, those it would get). `errors` lists at most 50 failed partitions
    of the `failed_count`."""

    topics: list[ResetTopicOffsets]
    failed_count: Count
    errors: list[PartitionError]


# Dead letters


class RedriveFilter(Request):
    """`message`: a part of the cause or of the client's reason. `before_ms`: dead-lettered before that time."""

    message: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None
    min_delivery_count: NonNegative | None = None
    before_ms: TimestampMs | None = None


class RedriveDeadLettersRequest(Request):
    """`topic`: only dead letters of that source topic.

    `to`: `retry` sends records back for this group alone; `source` appends them as new records for every group of the
    topic. `page_token`: continue behind the answer with this `next_page_token`.
    """

    topic: TopicName | None = None
    filter: RedriveFilter | None = None
    max_records: Annotated[int, Meta(ge=1, le=MAX_INT64, extra_json_schema={"format": "int64"})] | None = None
    page_token: PageToken | None = None
    to: Literal["retry", "source"] = "retry"
    dry_run: bool = False


class RedriveResult(Response):
    """`matched`: dead letters that fit the filter and were not redriven before. `skipped_count`: those of them whose record
    or topic no longer exists. `next_page_token`: there may be more dead letters than `max_records`."""

    matched: AnyInt64
    redriven: AnyInt64
    skipped_count: AnyInt64 = 0
    next_page_token: str | UnsetType = UNSET
