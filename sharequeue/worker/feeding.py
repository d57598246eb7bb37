"""Feeds the tasks of one queue: polls its topics for one group, starts functions, settles what they answer.

One object for all tasks with the same topics and group. It lives in the event loop of the thread of queues.
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from sharequeue.client import AcknowledgementError, ApiError, Committed, Record, ShareConsumer
from sharequeue.client.consuming.values import DoesNotFit
from sharequeue.repeats import PART_DIED, Every, heard
from sharequeue.worker import outcomes
from sharequeue.worker.job import Job, place_of
from sharequeue.worker.judging import Breaker, Mismatches
from sharequeue.worker.payloads import HEADER
from sharequeue.worker.running import Results, Runner
from sharequeue.worker.task import Task

log = logging.getLogger("sharequeue.worker")

POLL_MS: Final = 5_000
LOOK_S: Final = 0.2
"""How often running functions are looked at: is their time over, is their lock lost?"""
QUICK_S: Final = 0.05
"""Functions that take less on average get records ahead, so that none waits for a fetch."""
AHEAD_S: Final = 0.5
"""So much work is fetched ahead of quick functions: what a worker beside this one waits for at most."""
MOST_AHEAD: Final = 500
SILENT_S: Final = 60.0
COUNTED: Final = {outcomes.ACCEPT: "accepted", outcomes.RELEASE: "released", outcomes.REJECT: "rejected"}
REFUSED_S: Final = 30.0
"""The longest pause after a fetch that the service refused for good: a right or a setting may be mended."""


class Lane:
    """The records of one task: those that wait for a free hand, and those in hand."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task
        self.waiting: deque[Record] = deque()
        self.running: set[Job] = set()
        self.breaker = Breaker(task.options.breaker)
        self.mismatches = Mismatches()
        self.stopped = False
        """Whether the task's payloads do not fit."""
        self.mean_s = QUICK_S
        self.counts: Counter[str] = Counter()
        """Records by what became of them: accepted, released, rejected, snoozed, lost, not_accepted."""

    @property
    def free(self) -> int:
        return self.task.options.concurrency - len(self.running)

    @property
    def room(self) -> int:
        """Return how many records to fetch."""
        if self.stopped or time.monotonic() < self.task.paused_until:
            return 0
        if self.breaker.open:
            return int(not self.waiting and not self.running)
        ahead = 0
        if self.mean_s < QUICK_S:
            ahead = min(MOST_AHEAD, int(self.task.options.concurrency * AHEAD_S / max(self.mean_s, 1e-6)))
        room = self.free + ahead - len(self.waiting)
        return room if self.free > len(self.waiting) or 2 * room >= ahead > 0 else 0


class Feeding:
    """Polls, starts and settles, until `stop`. `tasks`: of one app, with the same topics and group."""

    def __init__(self, tasks: Sequence[Task[Any]], runner: Runner, lock_duration_ms: int | None) -> None:
        gateways = tasks[0].gateways
        self._consumer = ShareConsumer(
            gateways.urls,
            tasks[0].group,
            tasks[0].topics,
            acknowledgement="deferred",
            priority=len(tasks[0].topics) > 1,
            lock_duration_ms=lock_duration_ms,
            max_poll_interval_ms=math.inf,  # a function has its own time; the program that hangs ends by its health port
            on_acknowledged=self.settled,
            **gateways.login,
        )
        self._runner = runner
        self.lanes = [Lane(task) for task in tasks]
        self._by_name = {lane.task.name: lane for lane in self.lanes}
        self._results = Results(asyncio.get_running_loop(), self._ended)
        self._changed = asyncio.Event()
        self._stopping = False
        self._closing = False
        """Whether the consumer itself sends what is left."""
        self.hurried = False
        """Whether the grace is over."""
        self._poll: asyncio.Task[list[Record]] | None = None
        self._committing = False
        self._chosen = False
        """Whether outcomes wait to be sent."""
        self.answered_at = time.monotonic()
        """When a gateway answered last."""

    # Records come

    async def run(self) -> None:
        """Feed until `stop`. Failures of the service are waited out."""
        pause_s = 0.0
        looking = asyncio.create_task(self._look())
        try:
            while not self._stopping:
                room = sum(lane.room for lane in self.lanes)
                if not room:
                    self._commit()
                    await self._wait()
                    continue
                try:
                    records = await self._fetch(min(room, MOST_AHEAD))
                except ApiError as error:
                    pause_s = PART_DIED.after(pause_s)
                    log.warning("cannot fetch from %s: %s", ", ".join(self.lanes[0].task.topics), error.detail)
                    await self._wait(min(pause_s, REFUSED_S))
                    continue
                pause_s = 0.0
                self.answered_at = time.monotonic()
                for record in records:
                    self._take(record)
                self._start()
        finally:
            looking.cancel()

    async def _fetch(self, room: int) -> list[Record]:
        self._chosen = False  # the poll carries them
        self._poll = asyncio.create_task(self._consumer.poll(POLL_MS, max_records=room))
        try:
            await asyncio.wait([self._poll])
            return [] if self._poll.cancelled() else self._poll.result()
        finally:
            self._poll = None

    async def _wait(self, at_most_s: float = LOOK_S) -> None:
        """Wait until a function has ended, or the time is over."""
        self._changed.clear()
        await heard(self._changed, at_most_s)

    def _take(self, record: Record) -> None:
        named = record.headers.get(HEADER)
        lane = self.lanes[0] if named is None else self._by_name.get(named)
        if lane is None:
            self._settle(record, outcomes.NO_TASK)
        elif lane.stopped:
            self._settle(record, outcomes.NOT_BEGUN)
        else:
            lane.waiting.append(record)

    def _start(self) -> None:
        now = time.monotonic()
        jobs = []
        for lane in self.lanes:
            while lane.waiting and lane.free > 0 and not lane.stopped and lane.breaker.may_start(now):
                job = self._begin(lane, lane.waiting.popleft(), now)
                if job is not None:
                    lane.running.add(job)
                    jobs.append(job)
        if jobs:
            self._runner.start(jobs, self._results)

    def _begin(self, lane: Lane, record: Record, now: float) -> Job | None:
        """The job of a record. None: its payload does not fit, or its lock ended while it waited."""
        if record.lost:
            self._settle(record, outcomes.NOT_BEGUN)
            return None
        record.begin()
        try:
            payload = lane.task.decode(record)
        except DoesNotFit as fault:
            self._does_not_fit(lane, record, str(fault))
            return None
        lane.mismatches.note(fits=True)
        return Job(lane.task, record, payload, now)

    def _does_not_fit(self, lane: Lane, record: Record, path: str) -> None:
        on_mismatch = lane.task.options.on_mismatch
        stops = lane.mismatches.note(fits=False) or on_mismatch == "stop"
        if stops:
            lane.stopped = True
            log.error(
                "the task %s stops: payloads do not fit (%s). Records wait in the topic; deploy a program that takes "
                "them, and start it again",
                lane.task.name,
                path,
            )
            self._give_back(lane)
        if stops and on_mismatch == "stop":
            self._settle(record, outcomes.NOT_BEGUN)
        else:
            self._finish(lane, record, outcomes.does_not_fit(path, on_mismatch))

    # Outcomes go

    def _ended(self, jobs: list[Job]) -> None:
        """Settle jobs that have ended, and start others in their place."""
        for job in jobs:
            lane = self._by_name[job.task.name]
            lane.running.discard(job)
            lane.mean_s += (job.ended_at - job.began_at - lane.mean_s) / 16
            if job.given_up:  # its outcome is sent, or its lock lost
                if job.verdict.type == outcomes.ACCEPT:
                    lane.counts["not_accepted"] += 1
                    log.warning("%s: %s: done, not accepted", lane.task.name, place_of(job.record))
            else:
                self._finish(lane, job.record, job.verdict)
        self._start()
        self._changed.set()
        if self._poll is not None:  # else the next poll carries them
            self._commit()

    def _finish(self, lane: Lane, record: Record, verdict: outcomes.Verdict) -> None:
        lane.counts[COUNTED[verdict.type] if verdict.begun else "snoozed"] += 1
        if verdict.type != outcomes.ACCEPT and verdict.begun:
            log.warning("%s: %s: %s: %s", lane.task.name, place_of(record), verdict.type, verdict.reason)
        if lane.breaker.note(verdict):
            log.warning("%s: slowed down to one record a second until one succeeds: %s", lane.task.name, verdict.reason)
            self._give_back(lane)
        self._settle(record, verdict)

    def _settle(self, record: Record, verdict: outcomes.Verdict) -> None:
        self._consumer.acknowledge(
            record, verdict.type, reason=verdict.reason, delay_ms=verdict.delay_ms, begun=verdict.begun
        )
        self._chosen = True

    def _give_back(self, lane: Lane) -> None:
        for record in lane.waiting:
            self._settle(record, outcomes.NOT_BEGUN)
        lane.waiting.clear()

    def _commit(self) -> None:
        """Send what has an outcome; one commit at a time, and the next has what came meanwhile."""
        if self._chosen and not self._committing and not self._closing:
            self._chosen = False
            self._committing = True
            self._consumer.commit_async(self._committed)

    def _committed(self, committed: Committed, fault: Exception | None) -> None:
        self._committing = False
        self.settled(committed, fault)
        if self._poll is not None or self._stopping:
            self._commit()

    def settled(self, committed: Committed, fault: Exception | None) -> None:
        """Outcomes were sent, with a poll or in a call of their own."""
        if committed:
            self.answered_at = time.monotonic()
        if isinstance(fault, AcknowledgementError):
            for failure in fault.failures:
                self.lanes[0].counts["not_accepted"] += failure.last_offset - failure.first_offset + 1
            log.warning("done, not accepted: %s", fault)
        elif fault is not None:
            log.warning("outcomes are not sent yet: %s", fault)
            self._chosen = True

    # Time passes

    async def _look(self) -> None:
        """End functions whose time is over or whose lock is lost, and start what waits for time to pass."""
        async for _ in Every(LOOK_S):
            now = time.monotonic()
            for lane in self.lanes:
                for job in [job for job in lane.running if not job.given_up]:
                    if job.record.lost:
                        self._give_up(job)
                        lane.counts["lost"] += 1
                        place = place_of(job.record)
                        log.warning("%s: %s: its lock is lost: another worker may get it", lane.task.name, place)
                    elif now >= job.context.deadline:
                        self._give_up(job)
                        self._finish(lane, job.record, outcomes.timed_out(lane.task.options.timeout_s))
                        self._commit()
            self._start()

    def _give_up(self, job: Job) -> None:
        """End a function whose record goes back. A plain one cannot be ended: it keeps its hand until it returns."""
        job.given_up = True
        self._runner.cancel(job)

    @property
    def alive(self) -> bool:
        """Tell whether a gateway answered in the last minute, or a function runs."""
        return time.monotonic() - self.answered_at < SILENT_S or any(lane.running for lane in self.lanes)

    @property
    def stopped(self) -> bool:
        """Tell whether no task fetches any more, because payloads do not fit."""
        return all(lane.stopped for lane in self.lanes)

    @property
    def hung(self) -> bool:
        """Tell whether half of a task's hands are kept by functions that do not end."""
        return any(2 * sum(job.hangs for job in lane.running) >= lane.task.options.concurrency for lane in self.lanes)

    # The end

    def stop(self) -> None:
        """Fetch nothing more, and give back at once what no function has begun."""
        self._stopping = True
        if self._poll is not None:
            self._poll.cancel()
        for lane in self.lanes:
            self._give_back(lane)
        self._commit()
        self._changed.set()

    async def finish(self, grace_s: float) -> None:
        """After `stop`: wait for what runs, release what does not end within the grace, and close the consumer."""
        end = time.monotonic() + grace_s
        while any(lane.running for lane in self.lanes) and time.monotonic() < end and not self.hurried:
            self._commit()
            await self._wait(min(LOOK_S, max(end - time.monotonic(), 0.001)))
        for lane in self.lanes:
            for job in list(lane.running):
                if not job.given_up:
                    self._give_up(job)
                    self._finish(lane, job.record, outcomes.STOPPED)
        self._closing = True
        try:
            await self._consumer.close()
        except ApiError as error:
            log.warning("while the worker stopped: %s", error)
