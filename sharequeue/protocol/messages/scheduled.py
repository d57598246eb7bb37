"""The messages of scheduled records, which enter their topic at a later time, and of schedules, each of which makes one
record of its topic at each of its times."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.messages.records import ProduceRecord, Unique
from sharequeue.protocol.types import (
    MAX_CANCELLED,
    MAX_PAGE_SIZE,
    MAX_RECORDS,
    MAX_SCHEDULE_MS,
    MAX_SCHEDULES,
    Int32,
    Int64,
)
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

    deliver_at_ms: fields.TimestampMs | None = None
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock, at most ten years ahead.
    A time that has passed means at once."""
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_SCHEDULE_MS, extra_json_schema={"format": "int64"})] | None = None
    """In how many milliseconds the record enters the log, in place of `deliver_at_ms`. At most ten years."""


class ScheduleRequest(Request):
    """Records to append to the partitions of one topic later, each at its own time."""

    records: Annotated[list[ScheduleRecord], Meta(min_length=1, max_length=MAX_RECORDS)]
    """1 to 10,000 records. All of them are scheduled, or none."""
    unique: Unique | None = None
    """Schedule only records whose key is new in the topic, as in produceRecords. A key counts until `within_ms` after
    its record is due, and no longer than until that is cancelled, or `until_group` has finished it."""


class ScheduleOutcome(Response):
    """A record that waits for its time; with `duplicate`, the first record with the key."""

    partition: fields.PartitionIndex
    """The partition that the record will enter. It is chosen now, and stays if the topic gets more partitions."""
    schedule_id: fields.Uuid | None = None
    """Names the record until it enters the log. Cancel it by this id. Absent if the first record was not scheduled."""
    deliver_at_ms: fields.TimestampMs | None = None
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock: not before, and as a rule
    less than half a second later. Absent if an earlier request scheduled it."""
    offset: fields.AnyInt64 = -1
    """The place of the first record if it was not scheduled, but produced. Otherwise absent."""
    duplicate: bool = False
    """True: the record was not scheduled, because its key was sent with `unique` before."""


class ScheduleResponse(Response):
    """The scheduled records, in request order. They are durable."""

    scheduled: Annotated[list[ScheduleOutcome], at_most(MAX_RECORDS)]
    """One entry for each record of the request, in its order."""


class ListScheduledQuery(Request):
    """A page of what waits for its time."""

    page_size: fields.PageSize = 1000
    page_token: fields.PageToken | None = None


class ScheduledListing(Response):
    """A record in a list of those that wait for their time."""

    schedule_id: fields.Uuid
    """Names the record until it enters the log. Cancel it by this id."""
    partition: fields.PartitionIndex
    """The partition that the record will enter. It is chosen now, and stays if the topic gets more partitions."""
    deliver_at_ms: fields.TimestampMs
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock: not before, and as a rule
    less than half a second later."""
    bytes: Int32
    """The size of the record as JSON, without its offset and timestamp."""
    key: str | None = None
    """The key as text. Absent if the record has none, if it is bytes, or if it has more than 400 bytes as JSON."""


class ScheduledList(Response):
    """A page of the scheduled records of a topic, the next one due first."""

    scheduled: Annotated[list[ScheduledListing], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` records, without their values."""
    scheduled_count: Int64
    """How many records of the topic wait for their time in all."""
    next_page_token: fields.NextPageToken | None = None


class DueRecord(Response):
    """A record that is due: a scheduled one, which has a `schedule_id`, or the next one of the schedule `name`."""

    topic: str
    """The topic that the record will enter."""
    partition: fields.PartitionIndex
    """The partition that the record will enter."""
    deliver_at_ms: fields.TimestampMs
    """When the record enters the log, in milliseconds since the epoch by PostgreSQL's clock."""
    bytes: Int32
    """The size of the record as JSON, without its offset and timestamp."""
    schedule_id: fields.Uuid | None = None
    """Names a scheduled record in its topic: cancel it by this id. Absent if a schedule makes the record."""
    name: str | None = None
    """The schedule of the topic that makes the record: updateSchedule pauses it. Absent of a scheduled record."""
    key: str | None = None
    """The key as text. Absent if the record has none, if it is bytes, or if it has more than 400 bytes as JSON."""


class DueList(Response):
    """A page of what is due in all topics, the next one first."""

    due: Annotated[list[DueRecord], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` records, without their values. A schedule has one, that of its next time."""
    next_page_token: fields.NextPageToken | None = None


class CancelScheduledRequest(Request):
    """The scheduled records that shall never enter the log: exactly one of `schedule_ids` and `key`."""

    schedule_ids: Annotated[list[ScheduleId], Meta(max_length=MAX_CANCELLED)] = []
    """At most 1,000 ids, as scheduleRecords and listScheduledRecords answer them."""
    key: Key | None = None
    """Cancel the records with this key, at most 1,000 in one call, the next one due first."""


class CancelledRecords(Response):
    """The records that were cancelled, durably. One that is not named has entered the log, or was cancelled before."""

    cancelled: Annotated[list[fields.Uuid], at_most(MAX_CANCELLED)]
    """The `schedule_id` of each record that was cancelled by this call."""
    more: bool = False
    """True if records with the key are left: repeat the call."""


CronText = Annotated[str, Meta(min_length=1, max_length=200)]
ZoneName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+\Z")]
Missed = Annotated[
    Literal["one", "all", "none"],
    Meta(
        title="Missed",
        description="What becomes of the times that passed more than a minute ago without a gateway that could make their "
        "records. `one`: one record, for the first of them. `all`: each of the last seven days. `none`: no record.",
    ),
]


class PutScheduleRequest(Request):
    """A schedule as a whole: when, and the record. It takes the place of one with the same name."""

    cron: CronText
    """Five fields, as in crontab: minute, hour, day of the month, month, day of the week; or six, the first of them the
    second. `*/5 * * * *` is each five minutes."""
    record: ProduceRecord
    """The record of each time, as in produceRecords, without `timestamp_ms`."""
    time_zone: ZoneName = "UTC"
    """The IANA name of the time zone of `cron`, such as `Europe/Berlin`."""
    missed: Missed = "one"
    """What to do about times that an outage has taken."""
    paused: bool = False
    """True: no record is made at its times until updateSchedule sets it false."""


class UpdateScheduleRequest(Request):
    """Pause a schedule, let it go on, or make a record now."""

    paused: bool | None = None
    """False: it goes on with its next time. Times that passed while it was paused make no record. Absent: unchanged."""
    run: bool = False
    """True: one record is made now, beside its times, also while it is paused. A repeat makes a further one."""


class ScheduleSummary(Response):
    """A schedule without its record."""

    name: str
    """The name of the schedule, distinct within its topic."""
    cron: str
    """When it makes records: five or six fields, as in the request."""
    time_zone: str
    """The IANA name of the time zone of `cron`."""
    missed: Missed
    """What becomes of times that an outage has taken."""
    partition: fields.PartitionIndex
    """The partition that gets the records. It is chosen when the schedule is put."""
    paused: bool
    """Whether it makes no records at its times now."""
    next_at_ms: fields.TimestampMs
    """Its next time that makes a record, in milliseconds since the epoch; without a meaning while it is paused."""
    last_at_ms: fields.TimestampMs | None = None
    """Its last time that has a record. Absent before the first."""
    made_offset: fields.Offset | None = None
    """The offset of the record that `run` has made. Absent in other answers."""


class ScheduleDescription(ScheduleSummary):
    """A schedule with its record."""

    key: str | None = None
    """The key of the records as text. Absent if it was sent as bytes."""
    key_base64: fields.Base64 | None = None
    """The key of the records in base64. Absent unless it was sent as bytes."""
    value: Raw | UnsetType = UNSET
    """The value of the records, byte for byte; null is a tombstone. Absent if it was sent as bytes."""
    value_base64: fields.Base64 | None = None
    """The value of the records in base64. Absent unless it was sent as bytes."""
    headers: dict[str, str] = {}
    """Names to texts. Each record also has `__schedule.name`, and `__schedule.time_ms`, the time it is made for."""


class ScheduleList(Response):
    """All schedules of a topic, by name."""

    schedules: Annotated[list[ScheduleSummary], at_most(MAX_SCHEDULES)]
    """At most 1,000, which is all that a topic may have, without their records. getSchedule reads one."""
