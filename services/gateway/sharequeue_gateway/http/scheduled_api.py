"""The calls of scheduled records, and those of schedules."""

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.messages import scheduled as messages
from sharequeue.protocol.messages.fields import TimestampMs
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.types import MAX_CANCELLED
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.access.owners import Owners
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.producing.mover import Mover
from sharequeue_gateway.producing.producer import LARGE_BYTES, Producer, aside
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.producing.scheduler import (
    answer_of,
    check_and_mark,
    digest_of,
    new_rows,
    with_header,
    without_timestamp,
)
from sharequeue_gateway.producing.unique_producer import UniqueRules, digests_of
from sharequeue_gateway.record_log.scheduled import schedule_store, scheduled_store
from sharequeue_gateway.record_log.scheduled.cron_times import CronTimes
from sharequeue_gateway.record_log.scheduled.schedule_log import NAME_HEADER, ScheduleLog
from sharequeue_gateway.record_log.scheduled.schedule_store import Schedule
from sharequeue_gateway.record_log.scheduled.scheduled_log import ScheduledLog
from sharequeue_gateway.record_log.scheduled.scheduled_store import Listed
from sharequeue_gateway.record_log.store import Query
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted

_BEGINNING: Final = (-1, "00000000-0000-0000-0000-000000000000")
_place: Final = msgspec.json.Decoder(tuple[TimestampMs, messages.ScheduleId])
_due_place: Final = msgspec.json.Decoder(tuple[TimestampMs, messages.ScheduleId, str])
_LOOKS: Final = 10
"""How often a page looks for more in place of what its caller may not see."""
_is_name: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}").fullmatch
_KEY: Final = re.compile(rb',"key":("(?:[^"\\]|\\.)*")')


@dataclass(eq=False)
class ScheduledApi:
    """The handlers of the calls under `Scheduled`."""

    _query: Query
    _producer: Producer
    _scheduled: ScheduledLog
    _schedules: ScheduleLog
    _mover: Mover
    _rules: UniqueRules
    _clock: Clock
    _metadata: Metadata
    _owners: Owners
    _tokens: PageTokens

    # Scheduled records

    async def schedule_records(self, call: Call) -> Answer:
        """Schedule the records, all or none. The answer is made when they are durable."""
        request: messages.ScheduleRequest = call.request
        records, body = request.records, call.raw
        call.raw, call.request = b"", None
        large = len(body) > LARGE_BYTES
        await aside(large, check_and_mark, records, self._clock.now_ms())
        prepared = await self._producer.prepare(call.path["topic"], records, len(body))
        rows = await aside(large, new_rows, records, prepared)
        key, topic_id = self._owners.key_of(call, prepared, body), prepared.topic.topic_id
        rule = None
        if request.unique is not None:
            rule = await self._rules.rule(topic_id, await aside(large, digests_of, records), request.unique)
        answer, due_in_ms = await self._scheduled.schedule(topic_id, rows, key, answer_of, rule)
        if due_in_ms is not None:
            self._mover.expect(due_in_ms)
        return Answer(answer)

    async def list_scheduled_records(self, call: Call) -> messages.ScheduledList:
        query: messages.ListScheduledQuery = call.request
        topic = await self._metadata.topic(call.path["topic"])
        after = self._tokens.place(query.page_token, _place, "listScheduledRecords", _BEGINNING)
        found, count = await self._query(scheduled_store.list_some, topic.topic_id, after, query.page_size + 1)
        page, token = self._tokens.page(found, query.page_size, attrgetter("deliver_at_ms", "id"))
        return messages.ScheduledList(
            scheduled=[messages.ScheduledListing(schedule_id=row.id, **_listed(row)) for row in page],
            scheduled_count=count,
            next_page_token=token,
        )

    async def list_due(self, call: Call) -> messages.DueList:
        query: messages.ListScheduledQuery = call.request
        place = self._tokens.place(query.page_token, _due_place, "listDue", (*_BEGINNING, ""))
        page, more = messages.DueList(due=[]), True
        for _ in range(_LOOKS):
            wanted = query.page_size - len(page.due)
            if not wanted or not more:
                break
            found = await self._query(scheduled_store.list_due, place, wanted + 1)
            more = len(found) > wanted
            await self._metadata.topics_by_id(list({row.topic_id for row in found[:wanted]}))
            for row in found[:wanted]:
                place = row.deliver_at_ms, row.id, row.name
                topic = self._metadata.name_of(row.topic_id)
                if topic is not None and topic not in call.refused:  # a deleted one has no name
                    schedule_id, name = (None, row.name) if row.name else (row.id, None)
                    due = messages.DueRecord(topic=topic, schedule_id=schedule_id, name=name, **_listed(row))
                    page.due.append(due)
        page.next_page_token = self._tokens.token(place) if more else None
        return page

    async def cancel_scheduled_records(self, call: Call) -> messages.CancelledRecords:
        request: messages.CancelScheduledRequest = call.request
        if (request.key is None) == (not request.schedule_ids):
            raise InvalidRequest(
                "give exactly one of schedule_ids and key",
                pointers=[("/schedule_ids", "beside key, or neither is there")],
            )
        topic = await self._metadata.topic(call.path["topic"])
        which = request.schedule_ids if request.key is None else digest_of(request.key.encode())
        cancelled = await self._scheduled.cancel(topic.topic_id, which)
        return messages.CancelledRecords(
            cancelled=cancelled, more=request.key is not None and len(cancelled) == MAX_CANCELLED
        )

    # Schedules

    async def put_schedule(self, call: Call) -> messages.ScheduleSummary:
        request: messages.PutScheduleRequest = call.request
        name, record = call.path["name"], request.record
        if not _is_name(name):
            raise InvalidRequest(
                f"the name of a schedule has 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-', not {quoted(name)!r}"
            )
        if record.timestamp_ms is not None:
            raise unfit("/record/timestamp_ms", "the records of a schedule get their timestamps when they are made")
        CronTimes(request.cron, request.time_zone)  # refuses them before a topic is made
        record.headers = with_header(record.headers, NAME_HEADER, name)
        try:
            prepared = await self._producer.prepare(call.path["topic"], [record], len(call.raw))
        except ApiError as error:
            error.pointers = tuple(
                (pointer.replace("/records/0", "/record", 1), detail) for pointer, detail in error.pointers
            )
            raise
        (append,) = prepared.appends
        times = request.cron, request.time_zone, request.missed, request.paused
        schedule = Schedule(name, *times, append.partition, 0, None, without_timestamp(append.tails[0]))
        return self._told(*await self._schedules.put(prepared.topic.topic_id, schedule))

    async def get_schedule(self, call: Call) -> Answer:
        schedule = await self._schedules.get(*await self._place(call))
        return Answer(encode(_summary(schedule))[:-1] + schedule.tail)

    async def update_schedule(self, call: Call) -> messages.ScheduleSummary:
        request: messages.UpdateScheduleRequest = call.request
        place = await self._place(call)
        return self._told(*await self._schedules.update(*place, request.paused, run=request.run))

    async def delete_schedule(self, call: Call) -> Empty:
        await self._schedules.delete(*await self._place(call))
        return Empty()

    async def list_schedules(self, call: Call) -> messages.ScheduleList:
        topic = await self._metadata.topic(call.path["topic"])
        found = await self._query(schedule_store.list_all, topic.topic_id)
        return messages.ScheduleList(schedules=[_summary(schedule) for schedule in found])

    async def _place(self, call: Call) -> tuple[str, str]:
        """The topic id and the name of a schedule. A name that none can have is that of a missing one."""
        topic = await self._metadata.topic(call.path["topic"])
        name = call.path["name"]
        return topic.topic_id, name if _is_name(name) else ""

    def _told(self, schedule: Schedule, due_in_ms: int, made_offset: int | None = None) -> messages.ScheduleSummary:
        """The answer about a schedule that was stored. The mover of this gateway hears when it is due."""
        if not schedule.paused:
            self._mover.expect(due_in_ms)
        return msgspec.structs.replace(_summary(schedule), made_offset=made_offset)


def _listed(row: Listed) -> dict[str, Any]:
    """The fields that each entry of a list has."""
    key = _KEY.match(row.head)
    return {
        "partition": row.partition,
        "deliver_at_ms": row.deliver_at_ms,
        "bytes": row.size,
        "key": None if key is None else msgspec.json.decode(key[1], type=str),
    }


def _summary(schedule: Schedule) -> messages.ScheduleSummary:
    fields = {name: value for name, value in schedule._asdict().items() if name != "tail"}
    return msgspec.convert(fields, messages.ScheduleSummary)
