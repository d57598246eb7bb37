"""The messages of reports and audits. As `messages` has the others."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from sharequeue.protocol.messages.fields import EnforcedTopicName, GroupId, PageSize, PageToken, Request, Response
from sharequeue.protocol.types import MAX_INT64, Int32

TimeMs = Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
Records = Annotated[int, Meta(extra_json_schema={"format": "int64"})]


class ListActivityQuery(Request):
    """Hours that `from_ms` to `to_ms`, exclusive, touch; epoch milliseconds."""

    from_ms: TimeMs = 0
    to_ms: TimeMs | None = None
    group_id: GroupId | None = None
    topic: EnforcedTopicName | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class DeliveryCount(Response):
    """Records delivered for the so-manieth time."""

    delivery_count: Int32
    records: Records


class TimeToAccept(Response):
    """Records accepted so long after their timestamp: from `from_ms` on, below `below_ms`."""

    from_ms: Records
    below_ms: Records
    records: Records


class DeadLetterCount(Response):
    """`cause`: rejected or delivery_limit."""

    cause: Annotated[str, Meta(extra_json_schema={"enum": ["rejected", "delivery_limit"]})]
    records: Records


class ActivityEntry(Response):
    """One hour of a share-partition; without `group_id`, of a partition: what was produced."""

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


class ListActivityResponse(Response):
    activity: list[ActivityEntry]
    next_page_token: str | UnsetType = UNSET
