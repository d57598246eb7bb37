"""Scheduled records: calls of a gateway. Any gateway takes any of them."""

from sharequeue.protocol import bounds
from sharequeue.protocol.access.columns import Access, in_path, topic
from sharequeue.protocol.access.rights import Operation
from sharequeue.protocol.apis.records import IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION
from sharequeue.protocol.errors import TOPIC_ERRORS
from sharequeue.protocol.messages.scheduled import (
    CancelledRecords,
    CancelScheduledRequest,
    ListScheduledQuery,
    ScheduledDescription,
    ScheduledList,
    ScheduleRequest,
    ScheduleResponse,
)
from sharequeue_http.forms.api import Api

SCHEDULE_RECORDS = Api(
    "scheduleRecords",
    "POST",
    "/v1/topics/{topic}/scheduled",
    "Append records at a later time, each exactly once; answered when they are durable.",
    description="A record enters the log when its time has come, never before, and gets its offset and timestamp then. "
    "Until then no group, retention or compaction meets it, and cancelScheduledRecords takes it back. A missing topic is "
    "created, as in produceRecords. docs/scheduled.md has the details.",
    request=ScheduleRequest,
    response=ScheduleResponse,
    tag="Scheduled",
    errors=(*TOPIC_ERRORS, "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
    headers=(IDEMPOTENCY_KEY, IDEMPOTENCY_RETENTION),
    check_body=bounds.check_records,
    large=True,
    access=Access((topic(Operation.WRITE),), creates=in_path("topic")),
)
LIST_SCHEDULED_RECORDS = Api(
    "listScheduledRecords",
    "GET",
    "/v1/topics/{topic}/scheduled",
    "List and count the scheduled records of a topic, the next one due first.",
    description="It shows keys and times, not values. With `page_size=1` it is the count alone.",
    request=ListScheduledQuery,
    response=ScheduledList,
    tag="Scheduled",
    errors=TOPIC_ERRORS,
    idempotent=True,
    access=Access((topic(Operation.READ),)),
)
GET_SCHEDULED_RECORD = Api(
    "getScheduledRecord",
    "GET",
    "/v1/topics/{topic}/scheduled/{schedule}",
    "Read one scheduled record with its value.",
    description="A record that has entered the log, or that was cancelled, is not found any more.",
    response=ScheduledDescription,
    tag="Scheduled",
    errors=(*TOPIC_ERRORS, "RESOURCE_NOT_FOUND"),
    idempotent=True,
    access=Access((topic(Operation.READ),)),
)
CANCEL_SCHEDULED_RECORDS = Api(
    "cancelScheduledRecords",
    "POST",
    "/v1/topics/{topic}/cancel-scheduled",
    "Cancel scheduled records by their ids or their key, so that they never enter the log.",
    description="The answer names what was cancelled. A record that entered the log before is not among them.",
    request=CancelScheduledRequest,
    response=CancelledRecords,
    tag="Scheduled",
    errors=TOPIC_ERRORS,
    idempotent=True,
    access=Access((topic(Operation.WRITE),), audited=True),
)
