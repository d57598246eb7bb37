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

    `rack_id` and `subscribed_topic_names` that are absent are unchanged; who joins names topics.
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
    """What a member is assigned; an empty list is nothing at all."""

    topic_partitions: list[AssignedPartitions]


class ShareGroupHeartbeatResponse(Response):
    """`assignment` absent: it is unchanged. `leaders`: of what is assigned, where there are several gateways."""

    member_id: str
    member_epoch: Count
    heartbeat_interval_ms: Count
    assignment: MemberAssignment | None = None
    leaders: list[PartitionLeader] = []


# Listing and describing


STATES: Final = r"^(Empty|Stable|Dead)(,(Empty|Stable|Dead))*\Z"
"""The service takes them in any case, and spaces beside the commas."""

GroupStateName = Annotated[str, Meta(extra_json_schema={"enum": ["Empty", "Stable", "Dead"]})]


class ListShareGroupsQuery(Request):
    """`state`: Empty, Stable or Dead, in any case, or several divided by commas."""

    state: Annotated[str, Meta(max_length=100, extra_json_schema={"pattern": STATES})] | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class ShareGroupListing(Response):
    group_id: str
    type: Literal["share"]
    state: GroupStateName


class ListShareGroupsResponse(Response):
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


class DescribeShareGroupResponse(Response):
    """`members` come a page at a time, by member id; `member_count` counts all."""

    group_id: str
    state: GroupStateName
    group_epoch: Count
    assignment_epoch: Count
    assignor_name: str
    member_count: Count
    members: list[ShareGroupMember]
    next_page_token: str | None = None


class InUseQuery(Request):
    """`force`: also while the group is in use; its members and sessions are ended first."""

    force: bool = False


# Settings


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

# Offsets


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


class ResetTopic(Request):
    """All partitions of a topic, or some. `offset` is for `to: offset`, in place of the request's."""

    topic: TopicName
    partitions: PartitionIndexes | None = None
    offset: Offset | None = None


class ResetShareGroupOffsetsRequest(Request):
    """`topics` absent: everything the group, which must be there, has offsets of.

    `offset` goes with `to: offset` and is kept within the log; `datetime`, ISO 8601, UTC when it names no zone, with
    `to: datetime`: the first record not before it, or the log end. `current` is where the group stands.
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


class ResetShareGroupOffsetsResponse(Response):
    """Where the group starts now, or would; and the partitions that failed: 50 of them at most, `failed_count` in all."""

    topics: list[ResetTopicOffsets]
    failed_count: Count
    errors: list[PartitionError]


# Dead letters


class RedriveFilter(Request):
    """`message`: a part of the cause or of the client's reason. `before_ms`: dead before that time."""

    message: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None
    min_delivery_count: NonNegative | None = None
    before_ms: TimestampMs | None = None


class RedriveDeadLettersRequest(Request):
    """`topic`: only dead letters of that source topic.

    `to`: `retry` sends records back for this group alone; `source` as new records that every group of the topic gets.
    `page_token`: go on where the answer with this `next_page_token` ended.
    """

    topic: TopicName | None = None
    filter: RedriveFilter | None = None
    max_records: Annotated[int, Meta(ge=1, le=MAX_INT64, extra_json_schema={"format": "int64"})] | None = None
    page_token: PageToken | None = None
    to: Literal["retry", "source"] = "retry"
    dry_run: bool = False


class RedriveDeadLettersResponse(Response):
    """`matched`: dead letters the filter meant that were not redriven before. `skipped_count`: of those, the ones of
    which no record is left, or whose topic is gone. `next_page_token`: there may be more than `max_records`."""

    matched: AnyInt64
    redriven: AnyInt64
    skipped_count: AnyInt64 = 0
    next_page_token: str | UnsetType = UNSET
