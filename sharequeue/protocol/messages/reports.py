"""The messages of reports."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from sharequeue.protocol.histogram import MAX_MS, bucket_of
from sharequeue.protocol.messages.fields import (
    EnforcedTopicName,
    GroupId,
    PageSize,
    PageToken,
    Request,
    Response,
    Uuid,
    at_most,
    open_word,
)
from sharequeue.protocol.types import MAX_INT64, MAX_PAGE_SIZE, Int32

TimeMs = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
Records = Annotated[int, Meta(extra_json_schema={"format": "int64"})]


class ListActivityQuery(Request):
    """The hours that overlap `from_ms` to `to_ms` (exclusive), in milliseconds since the epoch."""

    from_ms: TimeMs = 0
    """The start, in milliseconds since the epoch. The hour that it lies in is counted whole."""
    to_ms: TimeMs | None = None
    """The end (exclusive), in milliseconds since the epoch. Absent: now."""
    group_id: GroupId | None = None
    """Only what this group did. Absent: all groups, and the records produced."""
    topic: EnforcedTopicName | None = None
    """Only this topic. Absent: all topics."""
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class DeliveryCount(Response):
    """Records that were delivered for the time with the number `delivery_count`."""

    delivery_count: Int32
    """1 counts first deliveries, 2 second ones, and so on."""
    records: Records
    """How many records were delivered for that time."""


class TimeToAccept(Response):
    """Records accepted from `from_ms` to `below_ms` (exclusive) after their timestamp."""

    from_ms: Records
    """The lower bound of the bucket in milliseconds, included."""
    below_ms: Records
    """The upper bound of the bucket in milliseconds, excluded; at most an eighth above the lower one."""
    records: Records
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
    records: Records
    """How many records became dead letters for this cause."""


class ActivityEntry(Response):
    """One hour of a share-partition; without `group_id`, one hour of a partition, with the records produced."""

    hour_ms: Records
    """The start of the hour, in milliseconds since the epoch."""
    topic: str
    """The name that the topic had in this hour."""
    topic_id: Uuid
    """The id of the topic. It changes if the topic is deleted and created again."""
    partition: Int32
    """The number of the partition, from 0."""
    produced: Records
    """Records appended to the partition. 0 in an entry of a group."""
    delivered: Records
    """Deliveries to the group; a record that comes twice counts twice."""
    accepted: Records
    """Records that were accepted."""
    released: Records
    """Records that were released, to be delivered again."""
    rejected: Records
    """Records that were rejected, to become dead letters."""
    expired: Records
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
    next_page_token: str | UnsetType = UNSET
    """Send it as `page_token` for the next page. Absent on the last page."""
