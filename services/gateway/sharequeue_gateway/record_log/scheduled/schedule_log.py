"""Schedules: stores them, and makes their records, each in the transaction that moves the schedule to its next time."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from sharequeue.protocol.errors import ResourceNotFound, UnknownTopicOrPartition
from sharequeue.protocol.types import MAX_SCHEDULES
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.locked_append import LockedAppend, Together
from sharequeue_gateway.record_log.log import PartitionAppend
from sharequeue_gateway.record_log.scheduled import schedule_store
from sharequeue_gateway.record_log.scheduled.cron_times import CronTimes
from sharequeue_gateway.record_log.scheduled.schedule_store import Schedule
from sharequeue_http.forms.errors import Throttled

AT_ONCE: Final = 10
"""Schedules of one transaction: their records may be large."""
RECORDS_AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 4 << 20
NAME_HEADER: Final = "__schedule.name"
TIME_HEADER: Final = "__schedule.time_ms"
_HEADERS: Final = b',"headers":{"%b":' % NAME_HEADER.encode()
"""How the headers of each stored record begin: behind its value, so the last such text of a record is this one."""


class ScheduleLog:
    """Schedules. Each method may raise StorageError."""

    def __init__(self, database: LogDatabase, locked_append: LockedAppend) -> None:
        self._database = database
        self._locked_append = locked_append

    async def put(self, topic_id: str, schedule: Schedule) -> tuple[Schedule, int]:
        """Store a schedule in place of one with its name. Its next time stays if its times stay.

        Returns: it, and in how many ms it is due. Raises: InvalidRequest (422): its cron expression or time zone;
        UnknownTopicOrPartition: the topic is deleted; Throttled: the topic has MAX_SCHEDULES.
        """
        times = CronTimes(schedule.cron, schedule.time_zone)
        async with self._together() as together:
            connection = together.connection
            now_ms, before = await schedule_store.find(connection, topic_id, schedule.name, lock=True)
            room, deleted = await schedule_store.may_add(connection, topic_id, MAX_SCHEDULES)
            if deleted:
                raise UnknownTopicOrPartition("the topic was deleted")
            if before is None and not room:
                raise Throttled(f"the topic has {MAX_SCHEDULES} schedules: delete some", limit=MAX_SCHEDULES)
            stays = before is not None and before[1:3] == schedule[1:3] and not before.paused
            next_at_ms = before.next_at_ms if before is not None and stays else times.after(now_ms)
            last_at_ms = None if before is None else before.last_at_ms
            schedule = schedule._replace(next_at_ms=next_at_ms, last_at_ms=last_at_ms)
            await schedule_store.put(connection, topic_id, schedule)
        return schedule, next_at_ms - now_ms

    async def update(
        self, topic_id: str, name: str, paused: bool | None, *, run: bool
    ) -> tuple[Schedule, int, int | None]:
        """Pause a schedule, let it go on at its next time from now on, or make one record now.

        Returns: as `put`, and the offset of the record. Raises: ResourceNotFound.
        """
        async with self._together() as together:
            connection = together.connection
            now_ms, found = await schedule_store.find(connection, topic_id, name, lock=True)
            schedule = _there(found, name)
            if run:
                append = PartitionAppend(topic_id, schedule.partition, _tails(schedule, [now_ms], now_ms), now_ms)
                await together.insert([append])
            if paused is not None and paused != schedule.paused:
                next_at_ms = schedule.next_at_ms
                if not paused:
                    next_at_ms = CronTimes(schedule.cron, schedule.time_zone).after(now_ms)
                schedule = schedule._replace(paused=paused, next_at_ms=next_at_ms)
                await schedule_store.put(connection, topic_id, schedule)
        return schedule, schedule.next_at_ms - now_ms, together.inserted[0][1].base_offset if run else None

    async def get(self, topic_id: str, name: str) -> Schedule:
        """Raises: ResourceNotFound."""
        _, found = await self._database.query(schedule_store.find, topic_id, name)
        return _there(found, name)

    async def delete(self, topic_id: str, name: str) -> None:
        """Raises: ResourceNotFound."""
        if not await self._database.query(schedule_store.delete, topic_id, name):
            raise _missing(name)

    async def make_due(self) -> int:
        """Make the records of some schedules whose time has come.

        Returns: how many schedules it has advanced. Those that another gateway has locked are left to it.
        """
        async with self._together() as together:
            now_ms, due = await schedule_store.lock_due(together.connection, AT_ONCE)
            if not due:
                return 0
            records, advanced = _records(due, now_ms)
            await together.insert_each(records, now_ms)
            await schedule_store.advance(together.connection, advanced)
        return len(advanced)

    def _together(self) -> AbstractAsyncContextManager[Together]:
        return self._locked_append.together("the schedule cannot be used")


def _records(
    due: Sequence[tuple[str, Schedule]], now_ms: int
) -> tuple[list[tuple[str, int, bytes]], list[tuple[str, str, int, int | None]]]:
    """The records of due schedules for `Together.insert_each`, and the next and last time of each schedule.

    What does not fit into one transaction is left to the next one.
    """
    made: list[tuple[str, int, bytes]] = []
    advanced: list[tuple[str, str, int, int | None]] = []
    records, size = RECORDS_AT_ONCE, BYTES_AT_ONCE
    for topic_id, schedule in due:
        if (made and len(schedule.tail) > size) or not records:
            continue
        most = min(records, max(1, size // len(schedule.tail)))
        cron_times = CronTimes(schedule.cron, schedule.time_zone)
        times, next_at_ms = cron_times.due(schedule.missed, schedule.next_at_ms, now_ms, most)
        made += [(topic_id, schedule.partition, tail) for tail in _tails(schedule, times, now_ms)]
        records, size = records - len(times), size - len(times) * len(schedule.tail)
        advanced.append((topic_id, schedule.name, next_at_ms, times[-1] if times else None))
    return made, advanced


def _tails(schedule: Schedule, times: Sequence[int], now_ms: int) -> list[bytes]:
    """The records of some times of a schedule."""
    before, _, behind = schedule.tail.rpartition(_HEADERS)
    head = b',"timestamp_ms":%d%b,"headers":{"%b":"' % (now_ms, before, TIME_HEADER.encode())
    rest = b'","%b":%b' % (NAME_HEADER.encode(), behind)
    return [b"%b%d%b" % (head, at_ms, rest) for at_ms in times]


def _there(found: Schedule | None, name: str) -> Schedule:
    if found is None:
        raise _missing(name)
    return found


def _missing(name: str) -> ResourceNotFound:
    return ResourceNotFound(f"the topic has no schedule {name[:100]!r}")
