"""Schedules: calls of a gateway. Any gateway takes any of them, and makes the records."""

from sharequeue.protocol.access.columns import Access, in_path, topic
from sharequeue.protocol.access.rights import Operation
from sharequeue.protocol.errors import TOPIC_ERRORS
from sharequeue.protocol.messages.schedules import (
    PutScheduleRequest,
    RunSchedule,
    RunScheduleRequest,
    ScheduleDescription,
    ScheduleList,
    ScheduleSummary,
    UpdateScheduleRequest,
)
from sharequeue_http.forms.api import Api

_PATH = "/v1/topics/{topic}/schedules/{name}"
_CHANGE = Access((topic(Operation.WRITE),), audited=True)
_ERRORS = (*TOPIC_ERRORS, "RESOURCE_NOT_FOUND")

PUT_SCHEDULE = Api(
    "putSchedule",
    "PUT",
    _PATH,
    "Make or replace a schedule: one record of the topic at each of its times.",
    description="Whichever gateway is alive makes the record, exactly one for each time, by PostgreSQL's clock. The next "
    "time stays if `cron` and `time_zone` stay. docs/scheduled.md says what happens after an outage, and to hours that a "
    "time zone has twice or not at all.",
    request=PutScheduleRequest,
    response=ScheduleSummary,
    tag="Scheduled",
    errors=(*TOPIC_ERRORS, "MESSAGE_TOO_LARGE"),
    idempotent=True,
    access=Access((topic(Operation.WRITE),), creates=in_path("topic"), audited=True),
)
GET_SCHEDULE = Api(
    "getSchedule",
    "GET",
    _PATH,
    "Describe a schedule: its times and its record.",
    description="The times are those of PostgreSQL's clock.",
    response=ScheduleDescription,
    tag="Scheduled",
    errors=_ERRORS,
    idempotent=True,
    access=Access((topic(Operation.READ),)),
)
UPDATE_SCHEDULE = Api(
    "updateSchedule",
    "PATCH",
    _PATH,
    "Pause a schedule, or let it go on.",
    description="A schedule that goes on makes its next record at its next time from now on.",
    request=UpdateScheduleRequest,
    response=ScheduleSummary,
    tag="Scheduled",
    errors=_ERRORS,
    idempotent=True,
    access=_CHANGE,
)
DELETE_SCHEDULE = Api(
    "deleteSchedule",
    "DELETE",
    _PATH,
    "Delete a schedule. Records that it has made stay.",
    description="Deleting the topic deletes its schedules too.",
    status=204,
    tag="Scheduled",
    errors=_ERRORS,
    access=_CHANGE,
)
RUN_SCHEDULE = Api(
    "runSchedule",
    "POST",
    _PATH + "/run",
    "Make one record of a schedule now, beside its times; also while it is paused.",
    description="Its next time does not change. A repeat makes a further record.",
    request=RunScheduleRequest,
    response=RunSchedule,
    tag="Scheduled",
    errors=(*_ERRORS, "KAFKA_STORAGE_ERROR"),
    access=_CHANGE,
)
LIST_SCHEDULES = Api(
    "listSchedules",
    "GET",
    "/v1/topics/{topic}/schedules",
    "List the schedules of a topic by name.",
    description="It shows times, not records. A topic has at most 1,000 schedules.",
    response=ScheduleList,
    tag="Scheduled",
    errors=TOPIC_ERRORS,
    idempotent=True,
    access=Access((topic(Operation.READ),)),
)
