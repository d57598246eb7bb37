"""The messages of reports."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from sharequeue.protocol.histogram import MAX_MS, bucket_of
from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most, open_word
from sharequeue.protocol.types import MAX_PAGE_SIZE, Int32


class ListActivityQuery(Request):
    """The hours that overlap `from_ms` to `to_ms` (exclusive), in milliseconds since the epoch."""

    from_ms: fields.TimestampMs = 0
    """The start, in milliseconds since the epoch. The hour that it lies in is counted whole."""
    to_ms: fields.TimestampMs | None = None
    """The end (exclusive), in milliseconds since the epoch. Absent: now."""
    group_id: fields.GroupId | None = None
    """Only what this group did. Absent: all groups, and the records produced."""
    topic: fields.EnforcedTopicName | None = None
    """Only this topic. Absent: all topics."""
    page_size: fields.PageSize = 1000
    page_token: fields.PageToken | None = None


class DeliveryCount(Response):
    """Records that were delivered for the time with the number `delivery_count`."""

    delivery_count: Int32
    """1 counts first deliveries, 2 second ones, and so on."""
    records: fields.AnyInt64
    """How many records were delivered for that time."""


class TimeToAccept(Response):
    """Records accepted from `from_ms` to `below_ms` (exclusive) after their timestamp."""

    from_ms: fields.AnyInt64
    """The lower bound of the bucket in milliseconds, included."""
    below_ms: fields.AnyInt64
    """The upper bound of the bucket in milliseconds, excluded; at most an eighth above the lower one."""
    records: fields.AnyInt64
    """How many records were accepted in that time after their timestamp."""


DeadLetterCause = Annotated[
    str,
    open_word(
        "DeadLetterCause",
        "`rejected` by a member, or delivered as often as `delivery_limit` allows. A later version may have more causes.",
        ("rejected", "delivery_limit"),
    ),
]


class DeadLetterCount(Response):
    """Records that became dead letters for one cause."""

    cause: DeadLetterCause
    """Why the records became dead letters."""
    records: fields.AnyInt64
    """How many records became dead letters for this cause."""


class ActivityEntry(Response):
    """One hour of a share-partition; without `group_id`, one hour of a partition, with the records produced."""

    hour_ms: fields.AnyInt64
    """The start of the hour, in milliseconds since the epoch."""
    topic: str
    """The name that the topic had in this hour."""
    topic_id: fields.TopicId
    partition: fields.PartitionNumber
    produced: fields.AnyInt64
    """Records appended to the partition. 0 in an entry of a group."""
    delivered: fields.AnyInt64
    """Deliveries to the group; a record that comes twice counts twice."""
    accepted: fields.AnyInt64
    """Records that were accepted."""
    released: fields.AnyInt64
    """Records that were released, to be delivered again."""
    rejected: fields.AnyInt64
    """Records that were rejected, to become dead letters."""
    expired: fields.AnyInt64
    """Records whose lock ended before they were settled."""
    deliveries: list[DeliveryCount]
    """How many records were delivered for the first time, the second time, and so on."""
    times_to_accept: Annotated[list[TimeToAccept], at_most(bucket_of(MAX_MS) + 1)]
    """How long records took from their timestamp until the leader applied their acceptance. An acceptance counts when
    it is durable. Buckets of several entries can be added."""
    dead_letters: list[DeadLetterCount]
    """How many records became dead letters, by cause."""
    group_id: str | UnsetType = UNSET
    """The group that the entry counts. Absent: it counts the records produced."""


class ActivityReport(Response):
    """The records that went through the queue, an entry for each hour and share-partition."""

    activity: Annotated[list[ActivityEntry], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` entries, by hour, topic and partition."""
    next_page_token: fields.NextPageToken | None = None


MOST_POINTS: Final = 500
"""Points of one answer."""
MIN_STEP_MS: Final = 10_000


class ListSamplesQuery(Request):
    """A span of time of the cluster, of a group or of a topic."""

    group_id: fields.GroupId | None = None
    """Only this group. Absent: the whole cluster, or the topic."""
    topic: fields.EnforcedTopicName | None = None
    """Only this topic, all its groups together. It does not go with `group_id`."""
    from_ms: fields.TimestampMs | None = None
    """The start, in milliseconds since the epoch. Absent: an hour before the end."""
    to_ms: fields.TimestampMs | None = None
    """The end, in milliseconds since the epoch. Absent: now."""
    step_ms: Annotated[int, Meta(ge=MIN_STEP_MS, le=2**40, extra_json_schema={"format": "int64"})] = MIN_STEP_MS
    """The time between two points, from 10,000. It is raised until the span has at most 500 points; to whole
    hours if the span begins more than a day ago."""


class Sample(Response):
    """Counts of a step of time: by what happened in it, and of what was there at its end."""

    at_ms: fields.TimestampMs
    """The end of the step, in milliseconds since the epoch."""
    in_count: fields.AnyInt64
    """Records produced; for a group, to the topics that it reads."""
    out_count: fields.AnyInt64
    """Records that were accepted."""
    failed_count: fields.AnyInt64
    """Records that were released or rejected, or whose lock ended."""
    dead_count: fields.AnyInt64
    """Dead letters that were written."""
    backlog: fields.AnyInt64
    """Records that are not finished, held and delayed ones included."""
    held_count: fields.AnyInt64
    """Those that a member holds, or whose outcome is being made durable."""
    delayed_count: fields.AnyInt64
    """Those whose delay has not ended."""
    open_dead_letters: fields.AnyInt64
    """Dead letters that are open."""
    oldest_ready_ms: fields.AnyInt64 | None = None
    """The age of the oldest record that waits for a worker, in milliseconds. Absent if none waits."""


class SampleList(Response):
    """The steps of a span of time. A step before the first sample is left out."""

    step_ms: fields.AnyInt64
    """The time between two points, which may be longer than was asked for."""
    points: Annotated[list[Sample], at_most(MOST_POINTS)]
    """The points, the oldest first. The last one may be of a step that has not ended."""


class AttentionQuery(Request):
    """A page of groups, or one of them."""

    group_id: fields.GroupId | None = None
    """Only this group, if it has work, workers or dead letters."""
    page_size: fields.PageSize = 100
    page_token: fields.PageToken | None = None


AttentionReason = Annotated[
    str,
    open_word(
        "AttentionReason",
        "`no_worker`: records wait, and no member was seen for a minute. `falling_behind`: the oldest record that waits "
        "is older than a minute, and its age grows. `errors`: more deliveries failed lately than were accepted. "
        "`dead_letters`: some are open. A later version may have more reasons.",
        ("no_worker", "falling_behind", "errors", "dead_letters"),
    ),
]


class GroupAttention(Sample, kw_only=True):
    """A group at the last look. Its step is the time since the look before."""

    group_id: str
    """The group that was looked at."""
    reasons: list[AttentionReason]
    """Why it needs attention, the most urgent first. Empty: it needs none."""
    ready_count: fields.AnyInt64
    """Those of the backlog that wait for a worker."""
    worker_count: fields.Count
    """Members that were seen in the last minute. One that calls several gateways counts once."""
    paused: bool = False
    """True: its fetches acquire nothing (`share.paused`). Known while a gateway has it in memory."""


class AttentionList(Response):
    """Groups with work or workers, those that need attention first."""

    period_ms: fields.AnyInt64
    """The time between the last look and the one before."""
    groups: Annotated[list[GroupAttention], at_most(MAX_PAGE_SIZE)]
    """A page of groups, in the order of their need."""
    next_page_token: fields.NextPageToken | None = None


class FiguresRequest(Request):
    """Asks for figures. `asker`: the gateway that takes the samples, under another name each time it begins.
    `number`: of this request, from 1 on. `taken`: the number of its last request whose answer is in a sample; 0: of
    none. What another asker was answered counts as sampled."""

    asker: str
    number: int
    taken: int


class Figures(Response):
    """Counts of one gateway. `pairs`: a group, empty for what was produced to the topic; a topic's id; the counts as
    in `sample_store`, where what happened counts since the answer that is in a sample. `members`: by group, a number of
    each. `paused`: groups in memory."""

    pairs: list[tuple[str, str, list[int]]]
    members: dict[str, list[int]]
    paused: list[str] = []
