"""The messages of scheduled records: records that enter their topic at a later time."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from sharequeue.protocol.messages.fields import (
    Base64,
    PageSize,
    PageToken,
    PartitionIndex,
    Request,
    Response,
    TimestampMs,
    Uuid,
    at_most,
)
from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue.protocol.types import MAX_CANCELLED, MAX_PAGE_SIZE, MAX_RECORDS, MAX_SCHEDULE_MS, Int32, Int64
from sharequeue_http.forms.mistakes import MUST

ScheduleId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z",
        extra={MUST: "be a schedule_id, as scheduleRecords answers it"},
        extra_json_schema={"format": "uuid"},
    ),
]
Key = Annotated[str, Meta(max_length=4096)]
"""Of a filter: a longer key is found by its record's `schedule_id` alone."""


class ScheduleRecord(ProduceRecord):
    """A record as in produceRecords, without `timestamp_ms`, and when it enters the log: exactly one of `deliver_at_ms`
    and `delay_ms`."""

    deliver_at_ms: TimestampMs | None = None
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock, at most ten years ahead.
    A time that has passed means at once."""
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_SCHEDULE_MS, extra_json_schema={"format": "int64"})] | None = None
    """In how many milliseconds the record enters the log, in place of `deliver_at_ms`. At most ten years."""


class ScheduleRequest(Request):
    """Records to append to the partitions of one topic later, each at its own time."""

    records: Annotated[list[ScheduleRecord], Meta(min_length=1, max_length=MAX_RECORDS)]
    """1 to 10,000 records. All of them are scheduled, or none."""


class ScheduledRecord(Response):
    """A record that waits for its time."""

    schedule_id: Uuid
    """Names the record until it enters the log. Cancel it by this id."""
    partition: PartitionIndex
    """The partition that the record will enter. It is chosen now, and stays if the topic gets more partitions."""
    deliver_at_ms: TimestampMs
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock: not before, and as a rule
    less than half a second later."""


class ScheduleResponse(Response):
    """The scheduled records, in request order. They are durable."""

    scheduled: Annotated[list[ScheduledRecord], at_most(MAX_RECORDS)]
    """One entry for each record of the request, in its order."""


class ListScheduledQuery(Request):
    """A page of the scheduled records of a topic."""

    key: Key | None = None
    """Only records with this key, at most 4,096 characters. Absent: all."""
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class ScheduledListing(ScheduledRecord):
    """A record in a list of those that wait for their time."""

    bytes: Int32
    """The size of the record as JSON, without its offset and timestamp."""
    key: str | None = None
    """The key as text. Absent if the record has none, if it is bytes, or if it has more than 400 bytes as JSON."""


class ScheduledList(Response):
    """A page of the scheduled records of a topic, the next one due first."""

    scheduled: Annotated[list[ScheduledListing], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` records, without their values. getScheduledRecord reads one."""
    scheduled_count: Int64
    """How many records of the topic wait for their time in all, with any key."""
    next_page_token: str | None = None
    """Send it as `page_token` for the next page. Absent on the last page."""


class ScheduledDescription(ScheduledRecord):
    """A scheduled record as a whole, as a consumer will get it but for its offset and timestamp."""

    key: str | None = None
    """The key as text; null if the record has none. Absent if the key was produced as bytes."""
    key_base64: Base64 | None = None
    """The key in base64. Absent unless it was produced as bytes."""
    value: Raw | UnsetType = UNSET
    """The value as it was produced, byte for byte; null is a tombstone. Absent if it was produced as bytes."""
    value_base64: Base64 | None = None
    """The value in base64. Absent unless it was produced as bytes."""
    headers: dict[str, str] = {}
    """Names to texts. `__scheduled.created_ms` is the time of the request that scheduled the record."""


class CancelScheduledRequest(Request):
    """The scheduled records that shall never enter the log: exactly one of `schedule_ids` and `key`."""

    schedule_ids: Annotated[list[ScheduleId], Meta(max_length=MAX_CANCELLED)] = []
    """At most 1,000 ids, as scheduleRecords and listScheduledRecords answer them."""
    key: Key | None = None
    """Cancel the records with this key, at most 1,000 in one call, the next one due first."""


class CancelledRecords(Response):
    """The records that were cancelled, durably. One that is not named has entered the log, or was cancelled before."""

    cancelled: Annotated[list[Uuid], at_most(MAX_CANCELLED)]
    """The `schedule_id` of each record that was cancelled by this call."""
    more: bool = False
    """True if records with the key are left: repeat the call."""
