"""The calls of scheduled records."""

import re
from typing import Final

import msgspec

from sharequeue.protocol.errors import ResourceNotFound
from sharequeue.protocol.messages.fields import TimestampMs
from sharequeue.protocol.messages.scheduled import (
    CancelledRecords,
    CancelScheduledRequest,
    ListScheduledQuery,
    ScheduledList,
    ScheduledListing,
    ScheduleId,
    ScheduleRequest,
)
from sharequeue.protocol.types import MAX_CANCELLED
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.producing.scheduler import Scheduler, digest_of
from sharequeue_gateway.record_log.scheduled.scheduled_log import ScheduledLog
from sharequeue_gateway.record_log.scheduled.scheduled_store import Listed
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.mistakes import quoted

_BEGINNING: Final = (-1, "00000000-0000-0000-0000-000000000000")
_place: Final = msgspec.json.Decoder(tuple[TimestampMs, ScheduleId])
_is_id: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_KEY: Final = re.compile(rb',"key":("(?:[^"\\]|\\.)*")')


class ScheduledApi:
    """The handlers of scheduleRecords, listScheduledRecords, getScheduledRecord and cancelScheduledRecords."""

    def __init__(
        self, scheduler: Scheduler, scheduled: ScheduledLog, metadata: Metadata, owners: Owners, tokens: PageTokens
    ) -> None:
        self._scheduler = scheduler
        self._scheduled = scheduled
        self._metadata = metadata
        self._owners = owners
        self._tokens = tokens

    async def schedule(self, call: Call) -> Answer:
        request: ScheduleRequest = call.request
        scheduling = self._scheduler.schedule(
            call.path["topic"],
            request.records,
            call.raw,
            call.exchange.path,
            call.header("idempotency-key"),
            call.header("idempotency-retention-ms"),
            self._owners.of(call.caller.principal).principal,
        )
        call.raw, call.request = b"", None
        del request
        return Answer(await scheduling)

    async def list_some(self, call: Call) -> ScheduledList:
        query: ListScheduledQuery = call.request
        topic = await self._metadata.topic(call.path["topic"])
        after = _BEGINNING
        if query.page_token is not None:
            after = self._tokens.place(query.page_token, _place, "listScheduledRecords")
        digest = None if query.key is None else digest_of(query.key.encode())
        found, count = await self._scheduled.list_some(topic.topic_id, digest, after, query.page_size + 1)
        page = found[: query.page_size]
        return ScheduledList(
            scheduled=[_listing(row) for row in page],
            scheduled_count=count,
            next_page_token=self._tokens.token((page[-1].deliver_at_ms, page[-1].schedule_id))
            if len(found) > len(page)
            else None,
        )

    async def get(self, call: Call) -> Answer:
        topic = await self._metadata.topic(call.path["topic"])
        schedule_id = call.path["schedule"]
        row = await self._scheduled.get(topic.topic_id, schedule_id) if _is_id(schedule_id) else None
        if row is None:
            raise ResourceNotFound(
                f"no record {quoted(schedule_id)!r} of the topic {topic.name!r} is scheduled: it may have entered the log, or"
                " been cancelled"
            )
        head = b'{"schedule_id":"%b","partition":%d,"deliver_at_ms":%d'
        return Answer(head % (schedule_id.encode(), row.partition, row.deliver_at_ms) + row.tail)

    async def cancel(self, call: Call) -> CancelledRecords:
        request: CancelScheduledRequest = call.request
        if (request.key is None) == (not request.schedule_ids):
            raise InvalidRequest(
                "give exactly one of schedule_ids and key",
                pointers=[("/schedule_ids", "beside key, or neither is there")],
            )
        topic = await self._metadata.topic(call.path["topic"])
        which = request.schedule_ids if request.key is None else digest_of(request.key.encode())
        cancelled = await self._scheduled.cancel(topic.topic_id, which)
        return CancelledRecords(cancelled=cancelled, more=request.key is not None and len(cancelled) == MAX_CANCELLED)


def _listing(row: Listed) -> ScheduledListing:
    key = _KEY.match(row.head)
    return ScheduledListing(
        schedule_id=row.schedule_id,
        partition=row.partition,
        deliver_at_ms=row.deliver_at_ms,
        bytes=row.size,
        key=None if key is None else msgspec.json.decode(key[1], type=str),
    )
