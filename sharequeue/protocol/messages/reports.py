"""The messages of reports."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from sharequeue.protocol.messages.fields import EnforcedTopicName, GroupId, PageSize, PageToken, Request, Response
from sharequeue.protocol.types import MAX_INT64, Int32

TimeMs = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
Records = Annotated[int, Meta(extra_json_schema={"format": "int64"})]


class ListActivityQuery(Request):
    """The hours that overlap `from_ms` to `to_ms` (exclusive), in milliseconds since the epoch."""

    from_ms: TimeMs = 0
    to_ms: TimeMs | None = None
    group_id: GroupId | None = None
    topic: EnforcedTopicName | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class DeliveryCount(Response):
    """Records that were delivered for the time with the number `delivery_count`."""

    delivery_count: Int32
    records: Records


class TimeToAccept(Response):
    """Records accepted from `from_ms` to `below_ms` (exclusive) after their timestamp."""

    from_ms: Records
    below_ms: Records
    records: Records


class DeadLetterCount(Response):
    """`cause`: rejected or delivery_limit."""

    cause: Annotated[str, Meta(extra_json_schema={"enum": ["rejected", "delivery_limit"]})]
    records: Records


class ActivityEntry(Response):
    """One hour of a share-partition; without `group_id`, one hour of a partition, with the records produced."""

    hour_ms: Records
    topic: str
    topic_id: str
    partition: Int32
    produced: Records
    delivered: Records
    accepted: Records
    released: Records
    rejected: Records
    expired: Records
    deliveries: list[DeliveryCount]
    times_to_accept: list[TimeToAccept]
    dead_letters: list[DeadLetterCount]
    group_id: str | UnsetType = UNSET


class ActivityReport(Response):
    activity: list[ActivityEntry]
    next_page_token: str | UnsetType = UNSET
