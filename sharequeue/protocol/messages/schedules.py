"""The messages of schedules: a named schedule makes one record of its topic at each of its times."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from sharequeue.protocol.messages.fields import (
    Base64,
    Offset,
    PartitionIndex,
    Request,
    Response,
    TimestampMs,
    at_most,
)
from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue.protocol.types import MAX_SCHEDULES

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
    """True: no record is made at its times until updateSchedule sets it false. `runSchedule` still makes one."""


class UpdateScheduleRequest(Request):
    """Pause a schedule, or let it go on."""

    paused: bool
    """False: it goes on with its next time. Times that passed while it was paused make no record."""


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
    partition: PartitionIndex
    """The partition that gets the records. It is chosen when the schedule is put."""
    paused: bool
    """Whether it makes no records at its times now."""
    next_at_ms: TimestampMs
    """Its next time that makes a record, in milliseconds since the epoch; without a meaning while it is paused."""
    last_at_ms: TimestampMs | None = None
    """Its last time that has a record. Absent before the first."""


class ScheduleDescription(ScheduleSummary):
    """A schedule with its record."""

    key: str | None = None
    """The key of the records as text. Absent if it was sent as bytes."""
    key_base64: Base64 | None = None
    """The key of the records in base64. Absent unless it was sent as bytes."""
    value: Raw | UnsetType = UNSET
    """The value of the records, byte for byte; null is a tombstone. Absent if it was sent as bytes."""
    value_base64: Base64 | None = None
    """The value of the records in base64. Absent unless it was sent as bytes."""
    headers: dict[str, str] = {}
    """Names to texts. Each record also has `__schedule.name`, and `__schedule.time_ms`, the time it is made for."""


class ScheduleList(Response):
    """All schedules of a topic, by name."""

    schedules: Annotated[list[ScheduleSummary], at_most(MAX_SCHEDULES)]
    """At most 1,000, which is all that a topic may have, without their records. getSchedule reads one."""


class RunScheduleRequest(Request):
    """A body without fields: send `{}`."""


class RunSchedule(Response):
    """The place of the record that the call has made."""

    partition: PartitionIndex
    """The partition of the schedule, which got the record."""
    offset: Offset
    """The place of the record in its partition."""
