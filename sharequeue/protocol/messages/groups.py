"""The messages of share groups: membership, description, settings, offsets."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most, word
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue.protocol.types import (
    MAX_ERRORS,
    MAX_INT32,
    MAX_NAME_LENGTH,
    MAX_PAGE_SIZE,
    MAX_TOPICS_NAMED,
)

MAX_DATETIME_LENGTH: Final = 64
MOST_AT_WORK: Final = 100
"""Groups of a page of listShareGroups with `work`."""
MAX_FETCHING_MEMBERS: Final = 1000
"""In one answer of describeShareGroup."""

# Membership


class ShareGroupHeartbeatRequest(Request):
    """A member joins its group, says that it is alive, changes its subscription, or leaves."""

    member_id: fields.MemberId
    """The name of the member within the group, chosen by it: 1 to 36 characters, such as a UUID."""
    member_epoch: Annotated[int, Meta(ge=-1, le=MAX_INT32, extra_json_schema={"format": "int32"})] = 0
    """0 joins, or joins again after UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH; −1 leaves; else the epoch of the last
    answer."""
    rack_id: Annotated[fields.PlainText, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    """Where the member runs, up to 249 characters. Absent: unchanged."""
    subscribed_topic_names: Annotated[list[fields.EnforcedTopicName], Meta(max_length=MAX_TOPICS_NAMED)] | None = None
    """The topics that the member subscribes to, at most 1,000. **Absent: unchanged. An empty list unsubscribes from
    all.** A member that joins names one at least."""


class AssignedPartitions(Response):
    """Partitions of one topic that a member is assigned."""

    topic: str
    """The name of a topic that the member subscribes to."""
    topic_id: fields.TopicId
    partitions: list[fields.PartitionIndex]
    """Numbers of the partitions that the member should fetch, ascending."""


class MemberAssignment(Response):
    """The partitions that a member is assigned; the list may be empty."""

    topic_partitions: Annotated[list[AssignedPartitions], at_most(MAX_TOPICS_NAMED)]
    """The partitions to fetch, by topic. An empty list assigns none."""


class FetchingMember(Response):
    """A member that fetched, acknowledged, renewed or read a stream in the last minute, whether it joined or not."""

    member_id: str
    """The name that its calls give. A member without one is not listed."""
    seconds_ago: fields.Count
    """Whole seconds since its last call, about one second late."""
    client_host: str | None = None
    """The address that its fetches or its stream come from; behind a proxy, the proxy's. Absent without one of them."""


class GroupWork(Response):
    """The work of a group now, in all of its topics."""

    ready: fields.AnyInt64
    """How many records wait for a worker: neither held, delayed nor dying."""
    held: fields.AnyInt64
    """How many records members hold."""
    delayed: fields.AnyInt64
    """How many records wait for the end of a delay."""
    dying: fields.AnyInt64
    """How many records have dead letters that are being written."""
    open_dead_letters: fields.AnyInt64
    """How many dead letters were neither redriven, dropped, finished nor removed."""
    workers: fields.Count
    """How many named members called any gateway in the last minute, joined or not."""
    oldest_ready_age_ms: fields.AnyInt64 | None = None
    """The age of the oldest record that waits for a worker, up to ten seconds late. Absent without one."""
    partial: bool = False
    """True: a gateway did not answer within two seconds. What is held, delayed or dying there counts as ready."""


class HeartbeatResult(Response):
    """The epoch of the member, and its assignment if that changed."""

    member_id: str
    """The member that sent the heartbeat, as it named itself."""
    member_epoch: fields.Count
    """Send it with the next heartbeat. −1 after the member left."""
    heartbeat_interval_ms: fields.Count
    """Send the next heartbeat after this many milliseconds."""
    assignment: MemberAssignment | None = None
    """The partitions that the member should fetch from now on. **Absent: no change.** An empty list: none."""
    leaders: list[PartitionLeader] = []
    """The leaders of the assigned partitions, if there are several gateways."""


# Listing and describing


STATES: Final = r"^(Empty|Stable|Dead)(,(Empty|Stable|Dead))*\Z"
"""The service ignores case, and spaces around the commas."""

GroupStateName = Annotated[
    str,
    word(
        "ShareGroupState",
        "`Stable`: it has members. `Empty`: it has none; fetches need none. `Dead`: Kafka's name; no group has it.",
        ("Empty", "Stable", "Dead"),
    ),
]

ResetTarget = Annotated[
    Literal["earliest", "latest", "current", "offset", "datetime"],
    Meta(
        title="ResetTarget",
        description="`earliest`: the log start. `latest`: the log end. `current`: the present start offset, so that held "
        "and released records come again at once. `offset` and `datetime`: as the field of that name says.",
    ),
]


class ListShareGroupsQuery(Request):
    """`state`: Empty, Stable or Dead in any case, or several, separated by commas."""

    state: Annotated[str, Meta(max_length=100, extra_json_schema={"pattern": STATES})] | None = None
    """Only groups in these states: `Empty`, `Stable` or `Dead`, several separated by commas."""
    work: bool = False
    """True: with what each group has to do now. A page then has at most 100 groups."""
    page_size: fields.PageSize = 1000
    page_token: fields.PageToken | None = None


class ShareGroupListing(Response):
    """A share group and its state."""

    group_id: str
    """The id of the group. The list is in the order of ids."""
    type: Annotated[Literal["share"], Meta(title="ShareGroupType", description="The protocol that a group follows.")]
    """Always `share`: the protocol that the group follows."""
    state: GroupStateName
    """`Stable` with members, `Empty` without any."""
    paused: bool = False
    """True: its fetches acquire nothing (`share.paused`)."""
    work: GroupWork | None = None
    """What it has to do now. Absent unless `work` was asked for."""


class ShareGroupList(Response):
    """A page of the share groups."""

    groups: Annotated[list[ShareGroupListing], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` groups, by id."""
    next_page_token: fields.NextPageToken | None = None


class DescribeShareGroupQuery(Request):
    """A page of the members."""

    page_size: fields.PageSize = 1000
    """How many members a page has at most. A page is shorter if its members have many names and partitions."""
    page_token: fields.PageToken | None = None


class ShareGroupMember(Response):
    """A member of a group, as its heartbeats describe it."""

    member_id: str
    """The name of the member within the group. The list is in the order of these."""
    member_epoch: fields.Count
    """The epoch of the member's last heartbeat that was accepted."""
    client_id: str
    """The header `Client-Id` of its heartbeats, or else their `User-Agent`."""
    client_host: str
    """The address that its heartbeats come from; behind a proxy, the proxy's."""
    subscribed_topic_names: Annotated[list[str], at_most(MAX_TOPICS_NAMED)]
    """The topics that the member subscribes to, by name."""
    assignment: MemberAssignment
    """The partitions that the member was assigned last."""
    rack_id: str | None = None
    """Where the member runs, as its heartbeats say. Absent if they do not."""


class ShareGroupDescription(Response):
    """A group, its epochs, and one page of its members."""

    group_id: str
    """The id of the group, as the path names it."""
    state: GroupStateName
    """`Stable` with members, `Empty` without any."""
    group_epoch: fields.Count
    """It rises with each change of the members or of their subscriptions."""
    assignment_epoch: fields.Count
    """The group epoch that the present assignment was made for."""
    assignor_name: str
    """The rule that divides the partitions: `simple`."""
    member_count: fields.Count
    """How many members the group has on all pages."""
    members: Annotated[list[ShareGroupMember], at_most(MAX_PAGE_SIZE)]
    """One page of the members, by id."""
    next_page_token: fields.NextPageToken | None = None
    paused: bool = False
    """True: its fetches acquire nothing (`share.paused`)."""
    work: GroupWork | None = None
    """What the group has to do now. Absent behind the first page."""
    workers: Annotated[list[FetchingMember], at_most(MAX_FETCHING_MEMBERS)] = []
    """The members that called any gateway in the last minute, joined or not: the 1,000 that called last. Absent behind
    the first page."""


class InUseQuery(Request):
    """`force`: also while the group is in use; its members are evicted and its sessions ended first."""

    force: bool = False
    """True: also while the group is in use. Its members are evicted and its sessions end first; records that were held
    can no longer be acknowledged."""


# Settings


ShareGroupConfigResponse = Annotated[
    dict[str, str],
    Meta(title="ShareGroupConfigResponse", description="Every setting in force by name. All values are text."),
]


class Clamped(Response):
    """A value of a group that lies outside the bounds in force, and what counts in its place."""

    stored: fields.AnyInt64
    """The value that the group was given."""
    used: fields.AnyInt64
    """The value in force."""
    bound: str
    """The name of the setting that keeps the stored value from being used."""


class ShareGroupServiceConfig(Response):
    """The service-wide settings of groups, and what they make of this group's."""

    service: dict[str, fields.AnyInt64]
    """The settings of the group coordinator that begin with `group.share.`, by name: defaults of what a group says
    nothing about, and bounds of what it says."""
    clamped: dict[str, Clamped] = {}
    """Settings of the group by name whose stored value lies outside the bounds now. Absent without any."""


class UpdateShareGroupConfigRequest(Request):
    """The settings that change, and those that go back to their defaults."""

    config: fields.ConfigValues = {}
    """Settings by name that change; all values are text (`"share.record.lock.duration.ms":"60000"`). Others stay."""
    reset: fields.ConfigNames = []
    """Names of settings that go back to their defaults, at most 100."""


# Offsets


class Holding(Response):
    """Retention spares the records of a partition that the group has not finished."""

    expires_at_ms: fields.AnyInt64 | None = None
    """When this ends if the group is not used before, in milliseconds since the epoch. Absent: never."""


class GroupPartitionOffset(Response):
    """The place that a group has reached in one partition."""

    partition: fields.PartitionNumber
    start_offset: fields.AnyInt64
    """All records before it are finished. −1 is unknown: the share-partition was never loaded, or its state cannot be
    read."""
    log_end_offset: fields.AnyInt64
    """One above the last record's offset. −1 is unknown."""
    leader_epoch: fields.Count
    """The epoch of the last leader that wrote state. It rises with each new leader."""
    lag: fields.AnyInt64
    """How many records the group has not finished, held and delayed ones included. −1 is unknown."""
    holding: Holding | None = None
    """Absent if retention does not spare the records that the group has not finished."""
    removed_unfinished: fields.Count = 0
    """How many offsets retention has removed although the group had not finished them. Finished ones behind the first
    unfinished one are counted too."""
    open_dead_letters: fields.Count = 0
    """How many records of the partition are dead letters that were neither redriven nor removed since."""
    last_stable_offset: fields.AnyInt64 = -1
    """The first offset of the oldest open transaction, or the log end. A `read_committed` group receives no record from
    there on. −1 is unknown."""
    stable_lag: fields.AnyInt64 = -1
    """As `lag`, but counted up to the last stable offset. −1 is unknown."""


class GroupTopicOffsets(Response):
    """The offsets of a group in one topic."""

    topic: str
    """The name of a topic that the group has fetched from."""
    topic_id: fields.TopicId
    partitions: list[GroupPartitionOffset]
    """The offsets of each partition that the group has used, by number."""


class ListOffsetsQuery(Request):
    """A page of the partitions."""

    page_size: fields.PageSize = 1000
    """How many partitions a page has at most, from 1 to 10,000."""
    page_token: fields.PageToken | None = None


class ShareGroupOffsets(Response):
    """The place that a group has reached in each of its topics."""

    topics: list[GroupTopicOffsets]
    """The topics that the group has offsets in, by name. The partitions of a topic may be on several pages."""
    next_page_token: fields.NextPageToken | None = None


class ResetTopic(Request):
    """All partitions of a topic, or some of them. `offset` replaces the request's, for `to: offset`."""

    topic: fields.TopicName
    """The name of a topic that exists. The group need not have fetched from it."""
    partitions: fields.PartitionIndexes | None = None
    """Numbers of partitions. Absent: all partitions of the topic."""
    offset: fields.Offset | None = None
    """The start offset for these partitions, in place of the request's. For `to: offset` alone."""


class ResetShareGroupOffsetsRequest(Request):
    """The place where the group begins next."""

    to: ResetTarget
    """Where the group begins next."""
    topics: Annotated[list[ResetTopic], Meta(min_length=1, max_length=MAX_TOPICS_NAMED)] | None = None
    """The topics to reset, at most 1,000. Absent: all in which the group has offsets; then the group must exist."""
    offset: fields.Offset | None = None
    """The start offset, moved into the log if it lies outside. For `to: offset` alone."""
    datetime: Annotated[str, Meta(max_length=MAX_DATETIME_LENGTH)] | None = None
    """The time to begin at, for `to: datetime` alone: ISO 8601, such as `2026-01-31T12:00:00Z`, UTC if it names no
    zone. The group begins at the first record at or after it, or at the end."""
    dry_run: bool = False
    """True: answer the new offsets and change nothing."""
    force: bool = False
    """True: also while the group is in use. Its members are evicted, and their records are released."""


class ResetPartition(Response):
    """The new start of a group in one partition."""

    partition: fields.PartitionNumber
    start_offset: fields.Offset
    """The offset that the group begins at next."""


class ResetTopicOffsets(Response):
    """The new starts of a group in one topic."""

    topic: str
    """The name of a topic whose offsets were reset."""
    topic_id: fields.TopicId
    partitions: list[ResetPartition]
    """The new start of each partition, by number."""


class ResetOffsetsResult(Response):
    """The new start offsets of the group, or with `dry_run` those that it would get."""

    topics: list[ResetTopicOffsets]
    """The new start offsets, by topic; those that it would get if `dry_run` is true."""
    failed_count: fields.Count
    """How many partitions could not be reset. Repeat the call for them."""
    errors: Annotated[list[PartitionError], at_most(MAX_ERRORS)]
    """Partitions that failed, at most 50."""
