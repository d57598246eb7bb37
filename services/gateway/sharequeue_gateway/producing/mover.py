"""The loop that moves scheduled records into the log when they are due, and makes those of schedules. Each gateway has
one.

It looks when the next record that it knows of is due, and at least once a second; where another gateway has this duty,
every five seconds. So a million records for next week cost one look into an index a second. A record that this gateway
schedules for an earlier time brings its look forward.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

from sharequeue.repeats import heard
from sharequeue.service.failed_looks import looking
from sharequeue_gateway import metrics
from sharequeue_gateway.record_log.scheduled import scheduled_store
from sharequeue_gateway.record_log.scheduled.schedule_log import ScheduleLog
from sharequeue_gateway.record_log.scheduled.scheduled_log import ScheduledLog
from sharequeue_gateway.record_log.store import Query

LOOK_S: Final = 1.0
OTHERS_LOOK_S: Final = 5.0
LEAST_S: Final = 0.02
"""The shortest pause between two looks: what becomes due in it is moved together."""
MOVED_BY_OTHERS_S: Final = 0.1
"""The pause of a gateway while another one has locked all that is due."""
COUNT_S: Final = 15.0
"""How often the scheduled records are counted."""


class Mover:
    """Moves what is due. `on_duty`: whether this gateway is the one that looks each second."""

    def __init__(
        self, query: Query, scheduled: ScheduledLog, schedules: ScheduleLog, on_duty: Callable[[], bool]
    ) -> None:
        self._query = query
        self._scheduled = scheduled
        self._schedules = schedules
        self._on_duty = on_duty
        self._sooner = asyncio.Event()
        self._expected = math.inf
        """By the clock of the loop: when a record is due that was scheduled since the last look began."""
        self._oldest_due = math.inf
        """The same of the earliest record, as the last look has found it."""

    def expect(self, in_ms: int) -> None:
        """Note that this gateway has scheduled a record that is due in so many ms."""
        at = time.monotonic() + in_ms / 1000
        if at < self._expected:
            self._expected = at
            self._sooner.set()

    def overdue_s(self) -> float:
        """Return how long the earliest record has been due and not in the log."""
        return max(0.0, time.monotonic() - self._oldest_due)

    async def run(self) -> None:
        """Look again and again. Never returns."""
        count_at = 0.0
        while True:
            pause_s = LOOK_S
            self._expected = math.inf
            with looking("scheduled", "cannot move scheduled records into the log"):
                if time.monotonic() >= count_at:
                    count_at = time.monotonic() + COUNT_S
                    metrics.SCHEDULED_RECORDS.set(await self._query(scheduled_store.total))
                pause_s = await self.look()
            await self._pause(pause_s)

    async def look(self) -> float:
        """Move what is due. Returns: in how many seconds to look again. Raises: ApiError."""
        now_ms, due_at_ms = await self._query(scheduled_store.next_due)
        while due_at_ms is not None and due_at_ms <= now_ms:
            self._oldest_due = time.monotonic() - (now_ms - due_at_ms) / 1000
            moved = await self._scheduled.move()
            metrics.SCHEDULED_MOVED.inc(moved)
            made = await self._schedules.make_due()
            now_ms, due_at_ms = await self._query(scheduled_store.next_due)
            if not moved + made:  # another gateway moves what is due
                return MOVED_BY_OTHERS_S
        due_in_s = math.inf if due_at_ms is None else (due_at_ms - now_ms) / 1000
        self._oldest_due = time.monotonic() + due_in_s
        return min(LOOK_S if self._on_duty() else OTHERS_LOOK_S, max(LEAST_S, due_in_s))

    async def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := min(until, self._expected) - time.monotonic()) > 0:
            self._sooner.clear()
            await heard(self._sooner, left)
