"""The schedules of periodic tasks: a worker that starts makes them at the service, or changes them."""

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue.protocol.messages.scheduled import Missed, PutScheduleRequest, ScheduleDescription
from sharequeue.repeats import PART_DIED, Tries
from sharequeue.worker.payloads import HEADER, plain
from sharequeue.worker.task import Task
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger("sharequeue.worker")
MISSING: Final = ("RESOURCE_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION")


def schedule_of(name: str, cron: str, time_zone: str, payload: Any, missed: Missed) -> PutScheduleRequest:
    """Return the schedule of a task. Raises: TypeError: JSON has no form for the payload."""
    value, headers = (msgspec.Raw(msgspec.json.encode(each)) for each in (plain(payload), {HEADER: name}))
    record = ProduceRecord(value=value, headers=headers)
    return PutScheduleRequest(cron=cron, record=record, time_zone=time_zone, missed=missed)


async def put(client: Client, tasks: Iterable[Task[Any]]) -> None:
    """Make or change the schedules of periodic tasks. A service that is away is waited for.

    Raises: ApiError: the service refused one.
    """
    for task in tasks:
        tries = Tries(PART_DIED)
        while task.schedule is not None:
            try:
                await _put(client, task.schedule, {"topic": task.topics[0], "name": task.name})
                break
            except ApiError as error:
                error.detail = f"the schedule of the task {task.name}: {error.detail}"
                if not error.error.retriable:
                    raise
                log.warning("%s", error.detail)
                await tries.pause()


async def _put(client: Client, wanted: PutScheduleRequest, path: dict[str, str]) -> None:
    try:
        found: ScheduleDescription = await client.call(apis.GET_SCHEDULE, path=path)
    except ApiError as error:
        if error.error.code not in MISSING:
            raise
    else:
        has = (found.cron, found.time_zone, found.missed, found.value, found.headers.get(HEADER))
        if has == (wanted.cron, wanted.time_zone, wanted.missed, wanted.record.value, path["name"]):
            return
        wanted = msgspec.structs.replace(wanted, paused=found.paused)
    await client.call(apis.PUT_SCHEDULE, wanted, path=path)
    log.info("made the schedule %s of the topic %s: %s %s", path["name"], path["topic"], wanted.cron, wanted.time_zone)
