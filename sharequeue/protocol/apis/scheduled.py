"""Scheduled records and schedules: calls of a gateway. Any gateway takes any of them."""

from functools import partial

from sharequeue.protocol import bounds, capabilities
from sharequeue.protocol.access.columns import Access, always, listed, topic
from sharequeue.protocol.apis.records import IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION, UNIQUE_ACCESS
from sharequeue.protocol.errors import TOPIC_ERRORS
from sharequeue.protocol.messages import scheduled as messages
from sharequeue_http.forms.api import Api

_call = partial(Api, tag="Scheduled", needs=capabilities.always(capabilities.Capability.SCHEDULED_RECORDS))
_PATH = "/v1/topics/{topic}/schedules/{name}"
_CHANGE = Access((topic("WRITE"),), audited=always)
_ERRORS = (*TOPIC_ERRORS, "RESOURCE_NOT_FOUND")

SCHEDULE_RECORDS = _call(
    "scheduleRecords",
    "POST /v1/topics/{topic}/scheduled",
    "Append records at a later time, each exactly once; answered when they are durable.",
    description="A record enters the log when its time has come, never before, and gets its offset and timestamp then. "
    "Until then no group, retention or compaction meets it, and cancelScheduledRecords takes it back. A missing topic is "
    "created, and `unique` asks the group, as in produceRecords. docs/scheduled.md has the details.",
    request=messages.ScheduleRequest,
    response=messages.ScheduleResponse,
    errors=(*TOPIC_ERRORS, "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
    headers=(IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION),
    check_body=bounds.check_records,
    large=True,
    access=UNIQUE_ACCESS,
)
LIST_SCHEDULED_RECORDS = _call(
    "listScheduledRecords",
    "GET /v1/topics/{topic}/scheduled",
    "List and count the scheduled records of a topic, the next one due first.",
    description="It shows keys and times, not values. With `page_size=1` it is the count alone.",
    request=messages.ListScheduledQuery,
    response=messages.ScheduledList,
    errors=TOPIC_ERRORS,
    access=Access((topic("READ"),)),
)
LIST_DUE = _call(
    "listDue",
    "GET /v1/scheduled",
    "List what is due next in all topics: scheduled records, and the next record of each schedule that is not paused.",
    description="The next one due comes first. A key sees the topics that it may READ. If others are due before, a page "
    "may have fewer entries than `page_size`, or none; `next_page_token` leads on.",
    request=messages.ListScheduledQuery,
    response=messages.DueList,
    idempotent=True,
    access=Access((listed("TOPIC", "READ"),)),
)
CANCEL_SCHEDULED_RECORDS = _call(
    "cancelScheduledRecords",
    "POST /v1/topics/{topic}/cancel-scheduled",
    "Cancel scheduled records by their ids or their key, so that they never enter the log.",
    description="The answer names what was cancelled. A record that entered the log before is not among them.",
    request=messages.CancelScheduledRequest,
    response=messages.CancelledRecords,
    errors=TOPIC_ERRORS,
    idempotent=True,
    access=Access((topic("WRITE"),), audited=always),
)
PUT_SCHEDULE = _call(
    "putSchedule",
    f"PUT {_PATH}",
    "Make or replace a schedule: one record of the topic at each of its times.",
    description="Whichever gateway is alive makes the record, exactly one for each time, by PostgreSQL's clock. The next "
    "time stays if `cron` and `time_zone` stay. docs/scheduled.md says what happens after an outage, and to hours that a "
    "time zone has twice or not at all.",
    request=messages.PutScheduleRequest,
    response=messages.ScheduleSummary,
    errors=(*TOPIC_ERRORS, "MESSAGE_TOO_LARGE"),
    idempotent=True,
    access=Access((topic("WRITE"),), creates="topic", audited=always),
)
GET_SCHEDULE = _call(
    "getSchedule",
    f"GET {_PATH}",
    "Describe a schedule: its times and its record.",
    description="The times are those of PostgreSQL's clock.",
    response=messages.ScheduleDescription,
    errors=_ERRORS,
    access=Access((topic("READ"),)),
)
UPDATE_SCHEDULE = _call(
    "updateSchedule",
    f"PATCH {_PATH}",
    "Pause a schedule, let it go on, or make one record now.",
    description="A schedule that goes on makes its next record at its next time from now on. `run` changes no time.",
    request=messages.UpdateScheduleRequest,
    response=messages.ScheduleSummary,
    errors=(*_ERRORS, "KAFKA_STORAGE_ERROR"),
    access=_CHANGE,
)
DELETE_SCHEDULE = _call(
    "deleteSchedule",
    f"DELETE {_PATH}",
    "Delete a schedule. Records that it has made stay.",
    description="Deleting the topic deletes its schedules too.",
    status=204,
    errors=_ERRORS,
    access=_CHANGE,
)
LIST_SCHEDULES = _call(
    "listSchedules",
    "GET /v1/topics/{topic}/schedules",
    "List the schedules of a topic by name.",
    description="It shows times, not records. A topic has at most 1,000 schedules.",
    response=messages.ScheduleList,
    errors=TOPIC_ERRORS,
    access=Access((topic("READ"),)),
)
