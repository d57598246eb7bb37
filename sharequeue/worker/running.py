"""Runs functions: async ones in the program's event loop, the others in threads. Each ends with a verdict.

Queues live in another thread, with an event loop of their own. So a function that blocks the program's event loop keeps
no lock from being renewed.
"""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from sharequeue import background
from sharequeue.client import tracing
from sharequeue.worker.job import Job
from sharequeue.worker.outcomes import ACCEPTED

Done = Callable[[list[Job]], None]


class Results:
    """Hands ended jobs to a queue's event loop: many with one wake-up. Any thread may put."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Done) -> None:
        self._loop = loop
        self._take = take
        self._ended: deque[Job] = deque()
        self._woken = False

    def put(self, job: Job) -> None:
        self._ended.append(job)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends, and locks end by themselves
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False  # before the look: what is put after it wakes again
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        self._take(ended)


class Runner:
    """Runs the jobs of one program.

    Args:
        loop: the program's event loop, for async functions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: queue.SimpleQueue[tuple[Job, Results]] = queue.SimpleQueue()
        self._threads = 0
        self._in_threads = 0
        self._lock = threading.Lock()

    def start(self, jobs: Iterable[Job], results: Results) -> None:
        """Start jobs; `results` gets each when it has ended. Any thread may call."""
        async_jobs = []
        for job in jobs:
            if job.task.is_async:
                async_jobs.append(job)
            else:
                self._start_in_thread(job, results)
        if async_jobs:
            self._loop.call_soon_threadsafe(self._start_async, async_jobs, results)

    def cancel(self, job: Job) -> None:
        """Tell a job that its record is lost: an async function is cancelled, a plain one sees it in its context."""
        job.context.lost = True
        if job.task.is_async:
            self._loop.call_soon_threadsafe(lambda: job.cancel())  # noqa: PLW0108 - its start, on the way, sets it

    def _start_async(self, jobs: list[Job], results: Results) -> None:
        for job in jobs:
            job.cancel = background.start(self._tasks, self._await(job, results)).cancel

    async def _await(self, job: Job, results: Results) -> None:
        span = job.start_span()
        try:
            with tracing.current(span):
                await job.task.function(*job.arguments())
            job.verdict = ACCEPTED
        except asyncio.CancelledError:
            pass  # nobody awaits this task
        except BaseException as fault:
            job.failed(fault)
            if not isinstance(fault, Exception):  # the program is to end: SystemExit, KeyboardInterrupt
                raise
        finally:
            job.ended(span)
            results.put(job)

    def _start_in_thread(self, job: Job, results: Results) -> None:
        """Threads are daemons: a function that hangs keeps no program from ending."""
        with self._lock:
            self._in_threads += 1
            if self._in_threads > self._threads:
                self._threads += 1
                threading.Thread(target=self._work, name=f"sharequeue work {self._threads}", daemon=True).start()
        self._waiting.put((job, results))

    def _work(self) -> None:
        while True:
            job, results = self._waiting.get()
            span = job.start_span()
            try:
                with tracing.current(span):
                    job.task.function(*job.arguments())
                job.verdict = ACCEPTED
            except BaseException as fault:  # of a thread alone: SystemExit ends no program there
                job.failed(fault)
            job.ended(span)
            with self._lock:
                self._in_threads -= 1
            results.put(job)
