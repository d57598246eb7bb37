"""The calls of schedules."""

import re
from typing import Final

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.schedules import (
    PutScheduleRequest,
    RunSchedule,
    ScheduleList,
    ScheduleSummary,
    UpdateScheduleRequest,
)
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.producing.mover import Mover
from sharequeue_gateway.producing.producer import Producer
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.producing.scheduler import with_header, without_timestamp
from sharequeue_gateway.record_log.scheduled.cron_times import CronTimes
from sharequeue_gateway.record_log.scheduled.schedule_log import NAME_HEADER, ScheduleLog
from sharequeue_gateway.record_log.scheduled.schedule_store import Schedule
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted

_is_name: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}").fullmatch


class SchedulesApi:
    """The handlers of putSchedule, getSchedule, updateSchedule, deleteSchedule, runSchedule and listSchedules."""

    def __init__(self, producer: Producer, schedules: ScheduleLog, mover: Mover, metadata: Metadata) -> None:
        self._producer = producer
        self._schedules = schedules
        self._mover = mover
        self._metadata = metadata

    def calls(self) -> tuple[tuple[Api, Handler], ...]:
        return (
            (apis.PUT_SCHEDULE, self.put),
            (apis.GET_SCHEDULE, self.get),
            (apis.UPDATE_SCHEDULE, self.update),
            (apis.DELETE_SCHEDULE, self.delete),
            (apis.RUN_SCHEDULE, self.run),
            (apis.LIST_SCHEDULES, self.list_all),
        )

    async def put(self, call: Call) -> ScheduleSummary:
        request: PutScheduleRequest = call.request
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
        schedule = Schedule(
            name,
            request.cron,
            request.time_zone,
            request.missed,
            request.paused,
            append.partition,
            0,
            None,
            without_timestamp(append.tails[0]),
        )
        return self._told(*await self._schedules.put(prepared.topic.topic_id, schedule))

    async def get(self, call: Call) -> Answer:
        schedule = await self._schedules.get(*await self._place(call))
        return Answer(encode(_summary(schedule))[:-1] + schedule.tail)

    async def update(self, call: Call) -> ScheduleSummary:
        request: UpdateScheduleRequest = call.request
        return self._told(*await self._schedules.pause(*await self._place(call), request.paused))

    async def delete(self, call: Call) -> Empty:
        await self._schedules.delete(*await self._place(call))
        return Empty()

    async def run(self, call: Call) -> RunSchedule:
        partition, offset = await self._schedules.run(*await self._place(call))
        return RunSchedule(partition=partition, offset=offset)

    async def list_all(self, call: Call) -> ScheduleList:
        topic = await self._metadata.topic(call.path["topic"])
        found = await self._schedules.list_all(topic.topic_id)
        return ScheduleList(schedules=[_summary(schedule) for schedule in found])

    async def _place(self, call: Call) -> tuple[str, str]:
        """The topic id and the name of a schedule. A name that none can have is that of a missing one."""
        topic = await self._metadata.topic(call.path["topic"])
        name = call.path["name"]
        return topic.topic_id, name if _is_name(name) else ""

    def _told(self, schedule: Schedule, due_in_ms: int) -> ScheduleSummary:
        """The answer about a schedule that was stored. The mover of this gateway hears when it is due."""
        if not schedule.paused:
            self._mover.expect(due_in_ms)
        return _summary(schedule)


def _summary(schedule: Schedule) -> ScheduleSummary:
    fields = {name: value for name, value in schedule._asdict().items() if name != "tail"}
    return msgspec.convert(fields, ScheduleSummary)
